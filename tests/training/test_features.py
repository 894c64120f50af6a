"""Which features a network is given, and that a model without one needs it nowhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.model._card import read_card
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.runners import ModelUnderTrainingRunner, ReleaseModeModelRunner
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.training import train
from mlgo_gym.training._networks import EvictionNetwork, Normalization, network_features

ALL = InliningForSize().layout.feature_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("core", ALL),
        ("core-edge_count", tuple(name for name in ALL if name != "edge_count")),
        ("-edge_count-core+cost_estimate", ("cost_estimate",)),
        ("callee_users+cost_estimate", ("cost_estimate", "callee_users")),
        ("+core", ALL),
    ],
)
def test_what_a_text_chooses(text: str, expected: tuple[str, ...]) -> None:
    assert network_features(InliningForSize(), text) == expected


@pytest.mark.parametrize(
    ("problem", "text", "message"),
    [
        (
            InliningForSize(),
            "core-edges",
            "features: expected some of core, sroa_savings, sroa_losses and "
            f"{len(ALL) - 2} more, found 'edges'",
        ),
        (
            InliningForSize(),
            "core--edge_count",
            "features: expected names joined by + and -, found 'core--edge_count'",
        ),
        (InliningForSize(), "-", "features: expected names joined by + and -, found '-'"),
        (
            InliningForSize(),
            "-cost_estimate",
            "features: expected 'cost_estimate', by which LLVM's rule goes that the network adds "
            "to, found '-cost_estimate'",
        ),
        (
            RegallocEviction(),
            "core-max_stage",
            "features: expected 'max_stage', by which LLVM's rule goes that the network adds to, "
            "found 'core-max_stage'",
        ),
    ],
)
def test_bad_texts(problem: Problem, text: str, message: str) -> None:
    with pytest.raises(OptionsError) as error:
        network_features(problem, text)
    assert str(error.value) == message


def test_sets_of_embeddings() -> None:
    """Each number of an embedding is one of the network's; what counts has a name of its own."""
    problem = InliningForSize(ir2vec="one-hot")
    counts = ("callee_embedding",) * 80 + ("caller_embedding",) * 80
    assert network_features(problem, "core+counts") == ALL + counts
    assert network_features(problem, "core+ir2vec-callee_embedding") == ALL + counts[80:]
    for other, sets in ((None, "core"), ("seed-75", "core, ir2vec")):
        found = InliningForSize(ir2vec=other)
        with pytest.raises(OptionsError) as error:
            network_features(found, "core+counts")
        more = len(found.layout.features) + len(sets.split(", ")) - 2
        some = f"node_count, edge_count and {more} more"
        assert str(error.value) == f"features: expected some of {some}, found 'counts'"


def test_eviction_without_some() -> None:
    names = network_features(RegallocEviction(), "core-liverange_size-progress")
    assert {"liverange_size", "progress", "mask"}.isdisjoint(names)
    ones = (1.0,) * len(names)
    network = EvictionNetwork(Normalization(names, ones, ones, ones, ones), (4,))
    given = {
        each.name: np.zeros(each.shape, each.dtype)
        for each in RegallocEviction().layout.specs
        if each.name in {*names, "mask"}
    }
    assert network(given).shape == (1, 33)


@pytest.mark.e2e
def test_a_model_without_a_feature(sample: Corpus, compiler: Compiler, tmp_path: Path) -> None:
    """It takes the others from whoever sends them, and answers alike in every runner."""
    corpus = sample.only(["digest.c", "json_write.c", "frame_stream.c", "hash_map.c"])
    without = ["features=core-edge_count", "fit.epochs=1", "hidden=[4]"]
    model = train("clone", corpus, output=tmp_path / "run", settings=without).model
    card = read_card(model, InliningForSize().layout.specs)
    assert card
    assert set(card.features) == {*ALL} - {"edge_count"}
    made = []
    fewer = tuple(each for each in InliningForSize().layout.specs if each.name != "edge_count")
    for kind in (ReleaseModeModelRunner, ModelUnderTrainingRunner):
        with kind(model, fewer, InliningForSize.advice) as runner:
            assert runner.evaluate() in (0, 1)
        policy = RunnerPolicy(partial(kind, model))
        module = corpus["digest.c"]
        result = compiler.compile_module(module, problem=InliningForSize(), policy=policy)
        made.append(result.object_sha256)
    assert made[0] == made[1]
