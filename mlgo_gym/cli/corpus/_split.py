"""``mlgo-gym corpus split``: corpora into one to train on and one to test on."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._grid import Grid, Row, amount
from mlgo_gym.cli.show._output import Output
from mlgo_gym.curation import UNITS, SplitOptions

if TYPE_CHECKING:
    from mlgo_gym.curation import Group, Split

DESCRIPTION = (
    "Split corpora into one to train on and one to test on. Packages or modules that share much of "
    "their code stay on one side."
)
EXAMPLE = "mlgo-gym corpus split --corpus corpora --output both"

_SHOWN_NAMES = 4


def add_options(add: shared.Options) -> None:
    default = SplitOptions()
    add.corpus()
    add.output("folder for the corpora DIR/train and DIR/test")
    add("--test-fraction", "F", "share of the bitcode to test on", default.test_fraction)
    add.seed("the assignment to sides")
    add("--by", UNITS, "what stays together: whole packages, or single modules", default.by)
    what = "modules that share this much of their own instructions stay together"
    add("--similarity", "T", what, default.similarity)
    add("--ignore-recorded", "", "also assign packages whose recipes name a side")
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.corpus import join_corpora
    from mlgo_gym.curation import check_split_output, split_corpora, write_split

    chosen = SplitOptions(
        options.test_fraction,
        options.seed,
        options.by,
        options.similarity,
        honour_recorded=not options.ignore_recorded,
    )
    folders = shared.folders_of(options)
    check_split_output(options.output, folders)
    corpora = join_corpora(folders)
    with output.progress() as progress:
        task = progress.add_task("reading", total=len(corpora))
        split = split_corpora(
            corpora,
            chosen,
            **shared.workers_of(options),
            progress=lambda: progress.advance(task),
        )
    written = write_split(corpora, split, chosen, options.output)
    sides = {side: _side(split, side) for side in written}
    output.print(_grid(sides), *_sentences(split))
    output.json(_as_json(split, sides))
    return output.warn_of(f"{name}: {why}" for name, why in split.failures.items())


def _side(split: Split, side: str) -> dict[str, Any]:
    return {
        "modules": list(split.modules(side)),
        "packages": sorted({name for group in split.sides[side] for name in group.packages}),
        "bitcode_bytes": sum(group.bitcode_bytes for group in split.sides[side]),
    }


def _grid(sides: dict[str, dict[str, Any]]) -> Grid:
    total = sum(each["bitcode_bytes"] for each in sides.values())
    rows: list[Row] = []
    for side, each in sides.items():
        size = each["bitcode_bytes"]
        counts = (len(each["packages"]), len(each["modules"]), size)
        rows.append([side, *map(amount, counts), f"{size / total:.1%}"])
    return Grid(("side", "packages", "modules", "bitcode, bytes", "share"), rows)


def _sentences(split: Split) -> list[str]:
    lines = [f"near-duplicates, kept together: {_shown(each)}" for each in split.merged_groups]
    lines += [f"recorded for both sides, tested on: {_shown(each)}" for each in split.conflicts]
    lines.append(
        f"of the test side's own instructions {split.own_overlap:.1%} are in bodies that train "
        f"has too; with those that come with headers, {split.overlap:.1%} of all"
    )
    return lines


def _shown(group: Group) -> str:
    more = len(group.units) - _SHOWN_NAMES
    return ", ".join(group.units[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _as_json(split: Split, sides: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        **sides,
        "merged_groups": [list(group.units) for group in split.merged_groups],
        "conflicts": [list(group.units) for group in split.conflicts],
        "near_duplicates": [asdict(pair) for pair in split.near_duplicates],
        "own_overlap": split.own_overlap,
        "overlap": split.overlap,
        "failures": dict(split.failures),
    }
