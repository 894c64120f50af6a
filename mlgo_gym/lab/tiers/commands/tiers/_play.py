"""``mlgo-gym tiers play``: what policies make of recordings."""

from __future__ import annotations

import argparse
from statistics import geometric_mean
from typing import Any

from corpus_tools.command_line import whole
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Replay recordings under policies, and print the seconds of each over those of the best "
    "decisions in hindsight (with compiler threads: over a bound). No program runs."
)
EXAMPLE = "mlgo-gym tiers play json.npz --policy ski-rental --policy O2@8192"
POLICIES = ("O0", "O1", "O2", "O3", "hotspot", "v8", "ski-rental")


def add_options(add: shared.Options) -> None:
    what = "recordings, or folders of them (default: the sample's)"
    add("recordings", "FILE", what, nargs="*")
    what = (
        "O0 to O3, O2@COUNT, hotspot, v8, ski-rental or random, with a suffix +enter, +specialise"
    )
    what += ", +prune or +trust; repeat for more (default: all plain ones but O2@COUNT and random)"
    add("--policy", "NAME", what, many=True)
    add(
        "--threads",
        "N",
        "compiler threads; 0 compiles while the program waits",
        0,
        type=whole(0),
    )
    add.seed("the random policy")


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab import tiers

    names = list(dict.fromkeys(options.policy or POLICIES))
    policies = {name: tiers.schedule_named(name, options.seed) for name in names}
    recordings = tiers.load_recordings(options.recordings or tiers.SAMPLE_RECORDING)
    table = narrow_table(("% above the best", *names, "best s"), right=(*names, "best s"))
    records: list[dict[str, Any]] = []
    for program, recording in output.track(recordings.items(), "replaying", len(recordings)):
        replay = tiers.Replay(recording, options.threads)
        best = tiers.oracle_s(recording, waits=not options.threads)
        seconds = {
            name: tiers.played(recording, policy, replay=replay).total_s
            for name, policy in policies.items()
        }
        cells = [f"{100 * (each / best - 1):,.0f}" for each in seconds.values()]
        table.add_row(program, *cells, f"{best:,.2f}")
        records.append({"program": program, "best_seconds": best, "seconds": seconds})
    if len(records) > 1:
        above = [[each["seconds"][n] / each["best_seconds"] for each in records] for n in names]
        table.add_row("mean (geometric)", *(f"{100 * (geometric_mean(e) - 1):,.0f}" for e in above))
        table.add_row("worst", *(f"{100 * (max(each) - 1):,.0f}" for each in above))
    output.print(table)
    output.json(records)
    return 0
