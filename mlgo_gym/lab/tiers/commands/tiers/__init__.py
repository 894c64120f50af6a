"""``mlgo-gym tiers``: programs recorded at every tier of a JIT, and replayed."""

DESCRIPTION = (
    "A dynamic compiler decides when a function is compiled, and at which tier. Record a program "
    "once, replay it exactly under any decisions, and check replays against the real JIT."
)
EXAMPLE = "mlgo-gym tiers play json.npz --policy ski-rental --policy O2@8192"
COMMANDS = {
    "_record": "run a program at each tier, and write what it does",
    "_play": "compare policies over recordings with the best in hindsight",
    "_check": "compare replays with the program under a JIT",
}
