"""``mlgo-gym box``: one call of a program's function, repeated under many compilations of it."""

DESCRIPTION = (
    "Stop a program where a call of one of its functions begins, and keep it: a box. Repeat the "
    "call under any compilation of the function, count its instructions, time it alone, and check "
    "that it does the same."
)
EXAMPLE = "mlgo-gym box record --workload json --output boxes"
COMMANDS = {
    "_calls": "print how often a program calls each of its functions",
    "_record": "box calls of functions, and write them to a folder",
    "_try": "repeat boxed calls under policies, models and traces",
}
