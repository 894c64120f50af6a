"""``mlgo-gym profile compare``: how much two profiles differ."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Compare two profiles, such as those of two training runs. Print their distance, the share of "
    "all counts that is elsewhere, from 0 (equal) to 1, and the functions that differ."
)
EXAMPLE = "mlgo-gym profile compare monday.profdata tuesday.profdata"

_LEAST_SHARE = 0.00005


def add_options(add: shared.Options) -> None:
    add("IN", "IN", "a profile")
    add("OTHER", "IN", "another profile")
    add("--functions", "N", "print the N functions that differ most", 10)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import Grid
    from mlgo_gym.lab.programs import ProfileFile, compare_profiles

    found = compare_profiles(ProfileFile.read(options.IN), ProfileFile.read(options.OTHER))
    rows = [
        (each.function, *(f"{100 * share:.2f} %" for share in (each.share_a, each.share_b)))
        for each in found.functions[: options.functions]
        if each.distance >= _LEAST_SHARE
    ]
    output.print(
        f"distance {found.distance:.4f}, {found.factor:.3f} times the counts; functions in the "
        f"one alone {len(found.only_a)}, in the other {len(found.only_b)}, with another control "
        f"flow {len(found.rebuilt)}",
        *([Grid(("function", "of the one", "of the other"), rows, folds=True)] if rows else []),
    )
    output.json(found.record())
    return 0
