"""Episodes for tests: of any bytes, so that nothing is true of them but their form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from mlgo_gym.datasets._episodes import LABELS, Episode, Source
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem

LLVM = "22.1.0"
PROBLEM = InliningForSize()
SETTINGS = {"opt_level": "Oz", "llvm_options": ["-x"], "size_increase_threshold": 2.0}
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)


def source(number: int = 0, policy: str = "default", **settings: object) -> Source:
    """A module, told apart by its number."""
    return Source("pack", f"m{number}.c", f"{number:064x}", policy, SETTINGS | settings)


def episode(
    origin: Source,
    size: int = 3,
    *,
    seed: int = 0,
    context: str = "",
    problem: Problem = PROBLEM,
) -> Episode:
    """An episode of random bytes, with all that an episode can have."""
    random = np.random.default_rng(seed)
    layout = problem.layout
    dtype, advice = layout.dtype, layout.advice
    return Episode(
        origin,
        layout,
        np.frombuffer(random.bytes(size * dtype.itemsize), dtype),
        np.frombuffer(random.bytes(size * advice.size_bytes), advice.dtype),
        context,
        random.normal(size=size).astype(np.float32),
        reward=0.25,
        score=100.0,
        baseline_score=133.0,
        labels={"saved_bytes": random.normal(size=size)},
    )


def write(
    folder: Path,
    *found: Episode,
    problem: Problem | None = None,
    llvm_version: str | None = LLVM,
    opt_level: str | None = None,
) -> Path:
    """A dataset of episodes, each of another module."""
    header = DatasetHeader.of(problem or PROBLEM, llvm_version, opt_level=opt_level)
    with DatasetWriter(folder, header) as writer:
        for each in found:
            writer.add(each.source, [each])
    return folder


@st.composite
def episodes(draw: st.DrawFn, origin: Source, problem: Problem) -> Episode:
    """Any episode of a source."""
    size = draw(st.integers(1, 5))
    layout = problem.layout
    dtype, advice = layout.dtype, layout.advice
    numbers = st.floats(allow_nan=True)

    def raw(item_bytes: int) -> bytes:
        pattern = draw(st.binary(min_size=1, max_size=33))
        return (pattern * (size * item_bytes))[: size * item_bytes]

    labels = draw(st.sets(st.sampled_from(LABELS)))
    values = st.lists(st.floats(allow_nan=False), min_size=size, max_size=size)
    return Episode(
        origin,
        layout,
        np.frombuffer(raw(dtype.itemsize), dtype),
        np.frombuffer(raw(advice.size_bytes), advice.dtype),
        draw(NAMES),
        np.frombuffer(raw(4), np.float32) if draw(st.booleans()) else None,
        draw(numbers),
        draw(numbers),
        draw(numbers),
        {name: np.array(draw(values)) for name in sorted(labels)},
    )


def same(one: Episode, other: Episode) -> bool:
    """Whether two episodes are equal to the byte; a NaN is a NaN."""

    def parts(each: Episode) -> list[object]:
        outcomes = None if each.outcomes is None else each.outcomes.tobytes()
        scores = np.array([each.reward, each.score, each.baseline_score])
        arrays = each.observations.tobytes(), each.actions.tobytes(), outcomes
        labels = {name: values.tobytes() for name, values in each.labels.items()}
        facts = each.source, each.layout, each.context, labels, each.sites, *arrays
        return [*facts, np.where(np.isnan(scores), np.nan, scores).tobytes()]

    return parts(one) == parts(other)
