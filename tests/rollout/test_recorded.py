"""Traces as a policy, and what ``mlgo-gym explain --trace`` says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import TraceError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default, never
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._replay import RecordedContexts, RecordedPolicy, record
from mlgo_gym.rollout._trace import Trace
from tests.cli.command import check_refused, run

PROBLEM = InliningForSize()


@pytest.fixture
def trace(compiler: Compiler, sample: Corpus) -> Trace:
    return record(compiler, sample["digest.c"], PROBLEM, never, keep_observations=True)


def compiled(compiler: Compiler, sample: Corpus, trace: Trace, name: str = "digest.c") -> str:
    policy = RecordedPolicy([trace], default)
    made = compiler.compile_module(sample[name], problem=PROBLEM, policy=policy)
    return made.object_sha256


def test_a_module_is_answered_as_it_was(compiler: Compiler, sample: Corpus, trace: Trace) -> None:
    """And others as the other policy does."""
    assert compiled(compiler, sample, trace) == trace.object_sha256
    other = compiler.compile_module(sample["bignum.c"], problem=PROBLEM, policy=default)
    assert compiled(compiler, sample, trace, "bignum.c") == other.object_sha256


def test_llvm_asks_otherwise(compiler: Compiler, sample: Corpus, trace: Trace) -> None:
    size, count = trace.advice_spec.size_bytes, trace.decisions
    plain = replace(trace, features=(), observations=b"")
    cases = {
        f"expected {count - 1} decisions, found that LLVM asks for more": replace(
            plain, advice=plain.advice[size:]
        ),
        f"expected {count + 1} decisions, found only {count}": replace(
            plain, advice=plain.advice + bytes(size)
        ),
        "decision 0, feature": replace(
            trace, observations=bytes([trace.observations[0] ^ 1]) + trace.observations[1:]
        ),
    }
    for message, wrong in cases.items():
        with pytest.raises(TraceError, match=message):
            compiled(compiler, sample, wrong)


def test_a_trace_beside_llvm(trace: Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "it.trace")
    done = run("explain", "--trace", "it.trace", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["policies"] == ["LLVM", "trace"]
    (module,) = found["modules"]
    assert (module["module"], module["text_bytes"][1]) == ("digest.c", trace.text_size_bytes)
    assert module["first"]["answers"] == [1, 0]
    line = ("explain", "--policy", "never", "--trace", "it.trace", "--json")
    (module,) = json.loads(run(*line, cwd=tmp_path).stdout)["modules"]
    assert (module["first"], module["functions"]) == (None, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--opt-level", "O2"), "trace 'digest.c': opt_level: expected Oz, found O2"),
        (
            ("--size-increase-threshold", "3"),
            "trace 'digest.c': size_increase_threshold: expected 2.0, found 3.0",
        ),
        (
            ("--module", "bignum.c"),
            "trace 'it.trace': expected the trace of one of 1 modules, found 'digest.c' of other "
            "bitcode",
        ),
        (
            ("--policy", "never", "--policy", "always"),
            "expected one or two models or policies, found 3",
        ),
    ],
)
def test_other_settings_are_named(
    options: tuple[str, ...], message: str, trace: Trace, tmp_path: Path
) -> None:
    trace.save(tmp_path / "it.trace")
    check_refused(message, "explain", "--trace", "it.trace", *options, cwd=tmp_path)


@pytest.mark.parametrize("name", ["derived", "skip_policy"])
def test_settings_that_are_left_out_are_named(name: str, trace: Trace, tmp_path: Path) -> None:
    """What is the problem's default stands in no settings."""
    value = {"derived": True, "skip_policy": "if-caller-not-cold"}[name]
    plain = replace(trace, features=(), observations=b"", settings={**trace.settings, name: value})
    plain.save(tmp_path / "it.trace")
    done = run("explain", "--trace", "it.trace", cwd=tmp_path)
    message = f"mlgo-gym: error: trace 'digest.c': {name}: expected {value}, found None\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_contexts_that_were_not_recorded(compiler: Compiler, sample: Corpus) -> None:
    problem = RegallocEviction()
    with pytest.raises(TraceError) as caught:
        compiler.compile_module(
            sample["expr_vm.c"], problem=problem, policy=RecordedContexts(problem, {})
        )
    assert str(caught.value) == (
        "trace 'expr_vm.c': 'expr_run': expected 0 decisions, found that LLVM asks for more"
    )
