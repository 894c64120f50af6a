"""``mlgo-gym profile show``: what a profile, or a corpus with counts, says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.lab.programs import Summary

DESCRIPTION = (
    "Print LLVM's summary of a profile: the counts from which a block is hot, and up to which it "
    "is cold. For a profile, print functions with their counters; for a corpus, with entry counts "
    "and branch weights."
)
EXAMPLE = "mlgo-gym profile show json.profdata"

_SHOWN_WEIGHTS = 3


def add_options(add: shared.Options) -> None:
    add("IN", "IN", "a profile, or a corpus with counts in its bitcode")
    add("--functions", "N", "print the N functions that run most", 10)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    found = _of_corpus if options.IN.is_dir() else _of_profile
    summary, heads, rows, records = found(options.IN, options)
    from mlgo_gym.cli import Grid

    cutoffs = [
        (f"{each.millionths / 10_000:g} %", f"{each.least_count:,}", f"{each.blocks:,}")
        for each in summary.cutoffs
    ]
    output.print(
        f"{summary.functions:,} functions, {summary.blocks:,} blocks, {summary.total:,} counts; "
        f"entered at most {summary.largest_entry:,} times, inside at most "
        f"{summary.largest_inside:,}",
        Grid(("of all counts", "count at least", "blocks"), cutoffs),
        f"hot from {summary.hot_threshold:,}, cold up to {summary.cold_threshold:,}",
        Grid(heads, rows[: options.functions], folds=True),
    )
    output.json({"summary": summary.record(), "functions": records})
    return 0


_Found = tuple["Summary", tuple[str, ...], list[tuple[str, ...]], list[dict[str, Any]]]


def _of_profile(path: Path, _: argparse.Namespace) -> _Found:
    from mlgo_gym.lab.programs import ProfileFile, counters_of, summary_of_profile

    profile = ProfileFile.read(path)
    counters = sorted(counters_of(profile).items(), key=lambda each: -sum(each[1]))
    rows: list[tuple[str, ...]] = [
        (name, f"{sum(counts):,}", str(len(counts))) for (name, _), counts in counters
    ]
    records: list[dict[str, Any]] = [
        {"function": name, "hash": flow, "counters": list(counts)}
        for (name, flow), counts in counters
    ]
    return summary_of_profile(profile), ("function", "counts", "counters"), rows, records


def _of_corpus(path: Path, options: argparse.Namespace) -> _Found:
    from mlgo_gym.corpus import Corpus
    from mlgo_gym.lab.programs import counts_of_corpus

    counts = counts_of_corpus(Corpus.load(path), **shared.workers_of(options))
    functions = [
        (module, name, each)
        for module, found in counts.modules.items()
        for name, each in found.functions.items()
    ]
    functions.sort(key=lambda each: -each[2].flow)
    rows: list[tuple[str, ...]] = []
    records: list[dict[str, Any]] = []
    for module, name, each in functions:
        weights = ["/".join(map(str, ways)) for ways in each.weights]
        more = ["..."] if len(weights) > _SHOWN_WEIGHTS else []
        shown = ", ".join(weights[:_SHOWN_WEIGHTS] + more)
        rows.append((f"{module} {name}", f"{each.entry:,}", shown))
        records.append(
            {"module": module, "function": name, "entry": each.entry, "weights": each.weights}
        )
    return counts.summary, ("function", "entered", "branches"), rows, records
