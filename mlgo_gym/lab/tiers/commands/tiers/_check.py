"""``mlgo-gym tiers check``: replays held against the program under a JIT."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Final

from corpus_tools.command_line import whole
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.lab.tiers._recorder import CheckedSchedule

_APART: Final = 1.05

DESCRIPTION = (
    "Run a recorded program under LLVM's JIT with the decisions of policies and of random "
    "schedules, and compare instructions and seconds with the replay. Its output must be right "
    "each time."
)
EXAMPLE = "mlgo-gym tiers check json.npz --workload json"


def add_options(add: shared.Options) -> None:
    add("recording", "FILE", "a recording")
    add.corpus()
    add("--workload", "NAME", "the workload's name; give one corpus", required=True)
    add("--policy", "NAME", "a policy that decides; repeat for more", many=True)
    add("--schedules", "N", "also check N random schedules", 10, type=whole(0))
    add("--repeats", "N", "how often each is timed; 0 does not time", 3, type=whole(0))
    add.seed("the random schedules")


def run(options: argparse.Namespace, output: Output) -> int:
    from dataclasses import asdict

    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.tiers import Recording, check_recording

    corpus = shared.one_corpus_of(options)
    recording = Recording.load(options.recording)
    heads = ("decisions", "replayed", "counted", "ms", "measured", "")
    table = narrow_table(heads, right=heads[1:5])
    checked = []
    policies = options.policy or ["O0", "O2", "ski-rental"]
    found = check_recording(
        corpus,
        options.workload,
        recording,
        policies,
        schedules=options.schedules,
        timings=options.repeats,
        seed=options.seed,
    )
    total = len(policies) + options.schedules
    for each in output.track(found, "running", total):
        checked.append(each)
        measured = f"{each.measured * 1e3:,.1f}" if options.repeats else "-"
        cells = (f"{each.instructions:,}", f"{each.counted:,}", f"{each.seconds * 1e3:,.1f}")
        table.add_row(each.policy, *cells, measured, "")
    output.print(table)
    worst = max(abs(each.instructions - each.counted) for each in checked)
    output.print(f"largest difference: {worst:,} instructions")
    if options.repeats:
        output.print(_compared(checked))
    output.json([asdict(each) for each in checked])
    return 0


def _compared(checked: Sequence[CheckedSchedule]) -> str:
    """Say how far times are off, and which pairs more than 5 % apart are in order."""
    off = median(abs(each.seconds / each.measured - 1) for each in checked)
    pairs = [
        (a, b) if a.measured > b.measured else (b, a)
        for a, b in combinations(checked, 2)
        if max(a.measured, b.measured) > _APART * min(a.measured, b.measured)
    ]
    right = sum(slow.seconds > fast.seconds for slow, fast in pairs)
    return (
        f"time: median difference {off:.1%}; of {len(pairs)} pairs that are more than 5 % apart "
        f"{right} are in the right order"
    )
