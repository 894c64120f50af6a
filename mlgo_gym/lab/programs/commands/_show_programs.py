"""Programs that run under policies, as grids and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from mlgo_gym.cli import Cell, Grid, Row, change
from mlgo_gym.lab.programs import METERS
from mlgo_gym.lab.programs._program_scores import (
    ProgramScores,
    layouts_change,
    noise,
    paired_change,
    program_change,
    spread,
)
from mlgo_gym.rollout import BASELINE

_POLICIES_A_TABLE: Final = 2


def program_tables(
    scores: Sequence[ProgramScores], policies: Sequence[str], meters: Sequence[str], seed: int
) -> Iterator[Grid | str]:
    """Each policy's changes with their intervals, then every program."""
    known = [each for each in scores if not each.error]
    if not known:
        yield "No program was measured under every policy."
        return
    for start in range(0, len(policies), _POLICIES_A_TABLE):
        shown = policies[start : start + _POLICIES_A_TABLE]
        rows: list[Row] = []
        for meter in meters:
            changes = [program_change(known, policy, meter, seed) for policy in shown]
            rows.append([meter, *(change(each.value, each.interval) for each in changes)])
        yield Grid(("change of", *shown), rows, folds=True)
    packages = len({each.package for each in known})
    yield (
        f"Geometric means against LLVM's default, negative is better, over programs ({len(known)}, "
        f"of packages: {packages}); [95 % intervals] by bootstrap over packages and programs."
    )
    for policy in policies:
        rows = [[each.label, *(_cell(each, policy, meter) for meter in meters)] for each in known]
        yield Grid((f"under {policy}", *meters), rows, folds=True)
    if (moves := spread(known)) is not None:
        yield (
            "Seconds of the CPU are geometric means over layouts of the program in memory, which "
            f"alone move it by {100 * moves:.1f} % (standard deviation, mean of programs)."
        )
    if (differs := noise(known)) is not None:
        yield (
            f"Seconds of the CPU are medians; the same program again differs by {100 * differs:.1f}"
            " % in the mean."
        )


def _cell(scores: ProgramScores, policy: str, meter: str) -> Cell:
    own, baseline = (scores.readings[name][meter] for name in (policy, BASELINE))
    if not own.samples or own is baseline:
        return change(scores.ratio(policy, meter) - 1)
    changed = layouts_change if own.layouts > 1 else paired_change
    found = changed(own.samples, baseline.samples)
    return change(found.value, found.interval)


def programs_record(
    scores: Sequence[ProgramScores], policies: Sequence[str], meters: Sequence[str], seed: int
) -> dict[str, Any]:
    """Return the record with all readings."""
    changes = {
        policy: {meter: program_change(scores, policy, meter, seed) for meter in meters}
        for policy in policies
    }
    return {
        "meters": {name: METERS[name].unit for name in meters},
        "policies": {
            policy: {meter: each.to_json() for meter, each in found.items()}
            for policy, found in changes.items()
        },
        "programs": [
            {
                "package": each.package,
                "workload": each.workload,
                "error": each.error and str(each.error),
                "readings": {
                    policy: {meter: asdict(reading) for meter, reading in found.items()}
                    for policy, found in each.readings.items()
                },
            }
            for each in scores
        ],
    }
