"""The rule of headers: LLVM 22's as they were recorded, and those that are announced."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import EnvironmentSetupError, UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._fit import Fit, record_of
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import (
    RegallocEviction,
    keep,
    legal_positions,
    lowest_density,
)
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.rollout._allocation import Allocator
from mlgo_gym.runners._model_runners import ReleaseModeModelRunner
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._training_log import Header, Observation, StreamDecoder
from tests.problems.test_regalloc import pressure

HEADERS = Path(__file__).parent / "headers"
MODELS = Path(__file__).parents[1] / "models"
X86 = "x86_64-unknown-linux-gnu"
NEW = TensorSpec("nr_copies", "uint32_t", (1, 4))
PROBLEMS = {
    "inlining": InliningForSize(),
    "inlining-ir2vec": InliningForSize(ir2vec="one-hot"),
    "eviction": RegallocEviction(),
    "priority": RegallocPriority(),
}


def recorded(name: str) -> Header:
    """A header as LLVM 22 wrote it: llvmlite 0.50's 22.1.0, and the same by opt-22's 22.1.8."""
    decoder = StreamDecoder()
    decoder.feed((HEADERS / f"llvm-22-{name}.json").read_bytes())
    header = decoder.next_event()
    assert isinstance(header, Header)
    return header


@pytest.mark.parametrize("name", PROBLEMS)
def test_llvm_22_sends_what_is_documented(name: str) -> None:
    problem, header = PROBLEMS[name], recorded(name)
    assert header.features == problem.layout.specs
    assert problem.as_sent(header) is problem
    asked = Observation(header, "f", 0, bytes(header.size_bytes))
    assert Fit(problem.layout, header).observation(asked) is asked


@pytest.mark.parametrize("name", ["inlining", "inlining-ir2vec"])
def test_the_embedded_llvm_sends_what_was_recorded(
    compiler: Compiler, small: Corpus, name: str
) -> None:
    with compiler.start(small["frame_stream.c"], PROBLEMS[name]) as compilation:
        observation = compilation.next_observation()
    assert observation is not None
    text = (HEADERS / f"llvm-22-{name}.json").read_text()
    assert f"{observation.header.to_json()}\n" == text


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_what_comes_besides_is_kept(problem: Problem) -> None:
    specs = problem.layout.specs
    sent = Header((NEW, *specs[::-1]), advice=problem.advice)
    found = problem.as_sent(sent)
    assert found == problem
    assert found.layout.specs == sent.features
    assert found.layout.features == problem.layout.features
    (extra,) = found.layout.extras[len(problem.layout.extras) :]
    assert (extra.spec, extra.low, extra.high) == (NEW, 0, 2**32 - 1)
    for same in (copy.deepcopy(found), copy.copy(found)):
        assert (same, same.layout) == (found, found.layout)
    assert replace(found).layout == problem.layout
    watched = problem.as_sent(sent, observe=["nr_copies"])
    assert watched.layout.features[-1].spec == NEW
    assert watched.layout.extras == problem.layout.extras


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_asked_stays_the_same(problem: Problem) -> None:
    specs = problem.layout.specs
    asked = Observation(Header(specs), "f", 3, _noise(Header(specs)))
    sent = Header((*specs[:2], NEW, *specs[:1:-1]), advice=problem.advice)
    values = {name: array.tobytes() for name, array in asked.items()} | {
        "nr_copies": bytes(15) + b"\7"
    }
    payload = b"".join(values[spec.name] for spec in sent.features)
    found = Fit(problem.layout, sent).observation(Observation(sent, "f", 3, payload))
    assert (found.header.features, found.payload) == (specs, asked.payload)
    assert (found.context, found.index, found.sent.payload) == ("f", 3, payload)
    (extra,) = problem.extra_tensors(found).items()
    assert (extra[0], extra[1].tolist()) == ("nr_copies", [[0, 0, 0, 7 << 24]])
    assert problem.as_sent(sent, observe=["nr_copies"]).extra_tensors(found) == {}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_recorded_has_all(problem: Problem) -> None:
    """Behind what the problem documents, as it documents it, whatever the header's order."""
    specs = problem.layout.specs
    sent = Header((NEW, *specs[::-1]), advice=problem.advice)
    reversed_ = Header(specs[::-1], advice=problem.advice)
    assert problem.recorded_layout(reversed_) == problem.layout
    asked = Observation(sent, "f", 0, _noise(sent))
    found = Fit(problem.layout, sent).observation(asked)
    layout, (payload, again) = record_of(problem, [found.sent, asked])
    assert layout.specs == (*specs, NEW)
    assert (layout.name, layout.features) == (problem.name, problem.layout.features)
    assert payload == again == found.payload + asked.payload[: NEW.size_bytes]
    assert layout.extended(sent) is layout
    assert problem.as_sent(layout.header).layout.specs == (*specs, NEW)
    same = copy.deepcopy(found).sent  # as a report goes to another process
    assert (same.header, same.payload) == (sent, asked.payload)


def test_what_may_be_a_feature_stands_with_them() -> None:
    problem, known = PROBLEMS["inlining"], PROBLEMS["inlining-ir2vec"]
    header = Header((*known.layout.specs, NEW), advice=known.advice)
    layout = problem.recorded_layout(header)
    assert layout.specs == header.features
    assert layout.feature_names == known.layout.feature_names


def test_what_is_recorded_of_fewer_positions() -> None:
    """A corpus may be for several targets: what is documented stays as wide as it is."""
    problem, sent = RegallocEviction(), columns(17)
    asked = Observation(sent, "f", 0, _noise(sent))
    documented = Fit(problem.layout, sent).observation(asked).payload
    assert record_of(problem, [asked]) == (problem.layout, [documented])
    more = Header((*sent.features, NEW), advice=sent.advice)
    layout, (payload,) = record_of(
        problem, [Observation(more, "f", 0, asked.payload + bytes(15) + b"\7")]
    )
    assert layout.specs == (*problem.layout.specs, NEW)
    assert payload == documented + bytes(15) + b"\7"
    assert record_of(problem, []) == (problem.layout, [])


# As LLVM's development mode sends them under -regalloc-enable-development-features
# (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.h, https://github.com/llvm/llvm-project/pull/55852).
DEVELOPMENT = (
    TensorSpec("instructions", "int64_t", (1, 300)),
    TensorSpec("instructions_mapping", "int64_t", (1, 33, 300)),
    TensorSpec("mbb_frequencies", "float", (1, 100)),
    TensorSpec("mbb_mapping", "int64_t", (1, 300)),
)


def test_features_of_development() -> None:
    problem = RegallocEviction()
    sent = Header((*problem.layout.specs, *DEVELOPMENT), advice=problem.advice)
    rows = np.frombuffer(bytes(sent.size_bytes), problem.as_sent(sent).layout.dtype)
    assert rows["instructions_mapping"].shape == (1, 33, 300)
    observation = Observation(sent, "f", 0, bytes(sent.size_bytes))
    assert list(problem.extra_tensors(observation)) == [spec.name for spec in DEVELOPMENT]
    found = Fit(problem.layout, sent).observation(observation)
    assert len(found.payload) == recorded("eviction").size_bytes


def test_what_is_not_sent_cannot_be_observed() -> None:
    problem = RegallocPriority()
    with pytest.raises(EnvironmentSetupError) as caught:
        problem.as_sent(
            Header((*problem.layout.specs, NEW), advice=problem.advice), ["age", "weight"]
        )
    assert str(caught.value) == (
        "RegallocPriority: observe: expected some of ['nr_copies'], which this LLVM sends besides, "
        "found ['age', 'weight']"
    )


# As https://github.com/llvm/llvm-project/pull/224598 ("Do not hardcode 33 eviction feature
# columns", open) has it: one column for each register of the target's longest allocation order,
# and one more, the last, for the live range that asks (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.h).
def columns(width: int, **other: int) -> Header:
    specs = (
        replace(spec, shape=(1, other.get(spec.name, width))) if len(spec.shape) == 2 else spec
        for spec in RegallocEviction().layout.specs
    )
    return Header(tuple(specs), advice=RegallocEviction.advice)


@pytest.mark.parametrize("width", [2, 17, 34, 257])
def test_eviction_is_as_wide_as_the_header(width: int) -> None:
    problem = RegallocEviction().as_sent(columns(width))
    assert problem.positions == problem.action_space().n  # type: ignore[attr-defined]
    assert problem.positions == width
    nothing = problem.action_mask(None)
    assert nothing is not None
    assert (len(nothing), int(nothing.argmax())) == (width, width - 1)
    row = np.zeros(1, [(s.name, s.dtype, s.shape) for s in columns(width).features])
    row["mask"][:, :, [0, width - 1]] = 1
    row["use_def_density"][:, :, 0] = 0.5
    asked = Observation(columns(width), "f", 0, row.tobytes())
    assert legal_positions(asked) == [0, width - 1]
    assert (keep(asked), lowest_density(asked)) == (width - 1, width - 1)
    assert problem.encode_advice(width - 1, asked) == (width - 1).to_bytes(8, "little")
    with pytest.raises(UsageError, match=rf"expected one of \[0, {width - 1}\], found {width}"):
        problem.encode_advice(width, asked)
    assert problem.layout.array([asked.payload])["mask"].shape == (1, width)
    assert len(problem.describe(asked)) == 2


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (columns(17, is_free=33), "feature 'is_free': expected int64_t (1, 17), "
         "found int64_t (1, 33)"),
        (columns(33, mask=1), "feature 'mask': expected int64_t (1, 33), found int64_t (1, 1)"),
    ],
)  # fmt: skip
def test_widths_that_disagree(header: Header, message: str) -> None:
    with pytest.raises(EnvironmentSetupError) as caught:
        RegallocEviction().as_sent(header)
    prefix = "RegallocEviction: this LLVM describes the problem differently: "
    assert str(caught.value) == prefix + message


def test_models_for_fewer_positions_than_are_sent() -> None:
    with pytest.raises(EnvironmentSetupError) as caught:
        Fit(RegallocEviction().layout, columns(49))
    assert str(caught.value) == (
        "RegallocEviction: expected at most 33 positions, which is what models for it take, "
        "found 49; as_sent is the problem that has them"
    )
    wide = RegallocEviction().as_sent(columns(49)).layout
    Fit(wide, columns(49))


@pytest.mark.e2e
def test_a_model_made_for_more_positions_than_are_sent(compiler: Compiler) -> None:
    """What LLVM 22 asks, as an LLVM of 17 columns would: x86-64 has 15 registers in an order."""
    module = pressure(X86, 24)
    asked: list[Observation] = []

    def watched(observation: Observation) -> int:
        asked.append(observation)
        return keep(observation)

    allocator = Allocator(compiler, RegallocEviction())
    _, known = allocator.baseline(allocator.optimize(module, options_of(module)))
    allocator.allocate(known, watched)
    header = columns(17)
    problem = RegallocEviction()
    fit = Fit(problem.layout, header)
    policy = RunnerPolicy(
        lambda inputs, output: ReleaseModeModelRunner(MODELS / "lowest_density", inputs, output)
    )
    with policy.begin(module) as answer:
        for each in asked:
            narrow = Observation(header, each.context, each.index, _narrowed(each, 17))
            found = fit.observation(narrow)
            assert found.payload == each.payload
            action = problem.encode_advice(answer(found), found)
            expected = answer(each)
            assert int.from_bytes(fit.advice(action), "little") == (
                16 if expected == 32 else expected
            )
    assert len(asked) > 20


def _narrowed(observation: Observation, width: int) -> bytes:
    def narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate([values[:, : width - 1], values[:, -1:]], axis=1)

    return b"".join(
        (narrow(values) if values.ndim == 2 else values).tobytes()
        for values in observation.values()
    )


def _noise(header: Header) -> bytes:
    return np.random.default_rng(0).bytes(header.size_bytes)
