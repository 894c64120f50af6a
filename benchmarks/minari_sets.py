"""What it costs to give datasets to Minari and to read them back; both have to be equal.

``python -m benchmarks.minari_sets SET...`` takes datasets; without any it records the sample corpus
under random answers. Sets of Minari go to a folder that is removed.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
from mlgo_gym.datasets import Dataset, DatasetWriter, Episode, header_of, record

NAME = "benchmarks/round-trip-v0"


def run(folders: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["MINARI_DATASETS_PATH"] = scratch
        from mlgo_gym.datasets import MinariSet, export_minari  # noqa: PLC0415 - reads the variable

        folders = folders or [recorded(Path(scratch) / "recorded")]
        dataset = Dataset.open(*folders)
        start = time.perf_counter()
        count = export_minari(dataset, NAME)
        written = time.perf_counter()
        found, back = MinariSet.open(NAME), Path(scratch) / "back"
        with DatasetWriter(back, found.header) as writer:
            found.write(writer)
        end = time.perf_counter()
        episodes_of_both = zip(dataset.episodes(), Dataset.open(back).episodes(), strict=True)
        sizes = [size(one, other) for one, other in episodes_of_both]
        megabytes = sum(each.stat().st_size for each in Path(scratch, NAME).rglob("*.*")) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{count:,} decisions in {len(sizes):,} episodes: written in {written - start:.1f} s, "
        f"{megabytes:,.0f} MB; read back, equal, in {end - written:.1f} s; at most {peak:.2f} GB"
    )


def size(one: Episode, other: Episode) -> int:
    """How many decisions two episodes have, which have to be equal."""
    for name in ("observations", "actions"):
        if getattr(one, name).tobytes() != getattr(other, name).tobytes():
            raise SystemExit(f"{one.source}, {one.context!r}: {name} differ")
    if (one.source, one.context, one.reward) != (other.source, other.context, other.reward):
        raise SystemExit(f"{one.source}, {one.context!r}: found {other.source}, {other.context!r}")
    return len(one)


def recorded(folder: Path) -> Path:
    problem, corpus = InliningForSize(), Corpus.load(SAMPLE_CORPUS)
    with DatasetWriter(folder, header_of(problem)) as writer:
        policy = problem.policy("random")
        list(record(writer, {"sample": corpus}, problem, "random", policy))
    return folder


if __name__ == "__main__":
    run([Path(each) for each in sys.argv[1:]])
