"""What training starts from: a given network, or what contexts ask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModelError, OptionsError, TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.training._data import Sampler, TrainingContext, Workshop
from mlgo_gym.training._group import Config
from mlgo_gym.training._networks import Normalization, network_features, network_for
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import load_start, prepared, statistics
from tests.training.conftest import Recorded, data_of, record

INLINING = InliningForSize()


def test_a_network_of_the_problem(inlining: Recorded, tmp_path: Path) -> None:
    fitted = Normalization.fit(INLINING.layout.columns(inlining), network_features(INLINING))
    network = network_for(INLINING, fitted, (3,), 1)
    (tmp_path / "network.json").write_text(json.dumps(network.config()))
    np.savez(
        tmp_path / "weights.npz",
        **{str(index): each for index, each in enumerate(network.get_weights())},
    )
    loaded = load_start(str(tmp_path), INLINING)
    for mine, theirs in zip(loaded.get_weights(), network.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)
    with pytest.raises(ModelError) as error:
        load_start(str(tmp_path), RegallocEviction())
    assert str(error.value) == (
        f"model {str(tmp_path)!r}: expected one for RegallocEviction, found one for InliningForSize"
    )


def test_what_the_inliner_starts_from(sample: Corpus, tmp_path: Path) -> None:
    """Whole modules, none of them held out by itself, and what they ask under LLVM's rule."""
    data = data_of(sample, "frame_stream.c")
    run = TrainingRun(tmp_path / "run", "group", INLINING, Config())
    with prepared(run, data, 5, 0) as (workshop, sampler, held_out):
        assert [each.name for each in sampler.contexts] == ["sample/frame_stream.c"]
        assert held_out is None
        found = statistics(workshop, sampler, 0)
    asked = record(sample, INLINING, ("frame_stream.c",))
    assert found == Normalization.fit(INLINING.layout.columns(asked), network_features(INLINING))


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (
            RegallocPriority(),
            OptionsError,
            "training: expected a problem of InliningForSize, RegallocEviction, found "
            "RegallocPriority",
        ),
        (
            INLINING,
            TrainingError,
            "training: expected contexts that ask for decisions, found none",
        ),
    ],
)
def test_nothing_to_start_from(problem: Problem, error: type[Exception], message: str) -> None:
    quiet = Module.from_ir(
        'target triple = "x86_64-unknown-linux-gnu"\ndefine i32 @f() { ret i32 1 }\n', "quiet"
    )
    sampler = Sampler([TrainingContext("quiet", quiet, 6.0)])
    with Workshop(problem, jobs=1, timeout_s=60) as workshop, pytest.raises(error) as caught:
        statistics(workshop, sampler, 0)
    assert str(caught.value) == message
