"""Traces: the file, bit by bit, and replay with real LLVM."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import TraceError, UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._site import Call, Site
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, never
from mlgo_gym.problems._policy import Answer, PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density
from mlgo_gym.problems._regalloc_priority import RegallocPriority, by_size
from mlgo_gym.rollout._replay import options_of_trace, problem_of, record, replay, resume, trace_of
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.rollout._trace import Trace, trace_path
from mlgo_gym.stream._training_log import Observation

PROBLEM = InliningForSize()
SPEC = TensorSpec("inlining_decision", "int64_t", (1,))
HASH = "0123456789abcdef" * 4


def made(**changes: Any) -> Trace:
    values: dict[str, Any] = {
        "module": "m",
        "module_sha256": HASH,
        "settings": {"opt_level": "Oz", "problem": "InliningForSize"},
        "llvm_version": "22.1.0",
        "advice_spec": SPEC,
        "advice": SPEC.encode(1) + SPEC.encode(0),
        "object_sha256": HASH,
        "text_size_bytes": 12,
    }
    return Trace(**(values | changes))


def alternate(observation: Observation) -> int:
    return observation.index % 2


@pytest.fixture
def trace(compiler: Compiler, small: Corpus) -> Trace:
    return record(compiler, small["frame_stream.c"], PROBLEM, alternate, keep_observations=True)


def test_there_and_back(tmp_path: Path) -> None:
    features = (TensorSpec("a", "int64_t", (1,)), TensorSpec("b", "float", (2,)))
    call = Call(3, "caller\n", 0, "a.c", 7, 1)
    sites = (Site("caller\n", "b\u2028", (call, call)), Site("a", "b", ()))
    observed = made(features=features, observations=bytes(32))
    for trace in (made(), observed, replace(observed, sites=sites), made(advice=b"")):
        path = trace_path(tmp_path, "a folder/m")
        trace.save(path)
        assert Trace.load(path) == trace
        assert [each.name for each in path.parent.iterdir()] == ["m.trace"]
    assert made().actions().tolist() == [[1], [0]]
    assert made().observation(0) is None
    assert made(features=features, observations=bytes(31) + b"x").observation(1) == bytes(15) + b"x"


def test_a_trace_is_replaced_and_not_written_over(tmp_path: Path) -> None:
    """Who has the old one open reads it whole; an interrupted writer leaves it."""
    path = trace_path(tmp_path, "m")
    old, new = made(), made(advice=SPEC.encode(0), text_size_bytes=11)
    old.save(path)
    with path.open("rb") as file:
        new.save(path)
        assert Trace.from_bytes(file.read()) == old
    assert Trace.load(path) == new


def test_every_damaged_byte_is_noticed() -> None:
    data = made().to_bytes()
    for position in range(len(data)):
        for damaged in (
            data[:position],
            data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
        ):
            with pytest.raises(TraceError, match=r"^trace 'f': "):
                Trace.from_bytes(damaged, "f")
    with pytest.raises(TraceError, match=r"bytes after the header, found"):
        Trace.from_bytes(data + b"x")


def rewritten(body: bytes | None = None, **changes: Any) -> bytes:
    """A file whose hash is right and whose header says something else."""
    line, _, rest = made().to_bytes().partition(b"\n")
    body = rest[:-32] if body is None else body
    header = json.loads(line) | {"body_bytes": len(body)} | changes
    data = json.dumps(header).encode() + b"\n" + body
    return data + hashlib.sha256(data).digest()


def sited(lines: bytes) -> bytes:
    """A file with so much behind the tensors."""
    body = zlib.compress(made().advice + lines)
    return rewritten(body=body, sites_bytes=len(lines))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a trace's header, found b''"),
        (b"{}\n", "expected a trace's header, found b'{}\\n'"),
        (b"[" * 99999 + b"\n", f"expected a trace's header, found {b'[' * 40!r}"),
        (
            rewritten(settings={"x": "y" * (1 << 20)}),
            f"expected a trace's header, found {made().to_bytes()[:40]!r}",
        ),
        (rewritten(module_sha256="x"), "module_sha256: expected 64 hexadecimal digits, found 'x'"),
        (rewritten(features=[{}] * 4097), "expected at most 4096 features, found 4097"),
        (rewritten(trace=2), "expected version 1, found 2"),
        (rewritten(sites_bytes=None), "sites_bytes: expected int, found None"),
        (rewritten(sites_bytes=4), "expected 20 bytes of tensors, found 16 or more"),
        (sited(b"[]"), "site: expected [caller, callee, calls], found b'[]'"),
        (sited(b'["a", "b", [[1, "a", 0, "", -1, 0]]]'), "site: expected [caller, callee, calls], "
         """found b'["a", "b", [[1, "a", 0, "", -1, 0]]]'"""),
        (sited(b'["a", "b", []]'), "sites: expected 2, or none, found 1"),
        (sited(b"\n" * 9999), "sites: expected 2, or none, found 9999"),
        (
            sited(b'["a", "b", []]\n' + b" " * (1 << 20) + b"\n"),
            "a site: expected at most 1048576 bytes, found 1048577",
        ),
        (
            rewritten(body=zlib.compress(made().advice) + b"x"),
            "expected 16 bytes of tensors, found 16 or more",
        ),
        (rewritten(module=3), "module: expected str, found 3"),
        (rewritten(settings=[]), "settings: expected dict, found []"),
        (rewritten(decisions=True), "decisions: expected int, found True"),
        (rewritten(decisions=-1), "decisions: expected 0 to 1073741824, found -1"),
        (rewritten(decisions=1), "expected 8 bytes of tensors, found 9 or more"),
        (rewritten(decisions=3), "expected 24 bytes of tensors, found 16 or more"),
        (
            rewritten(decisions=1 << 30),
            "expected at most 1073741824 bytes of tensors, found 8589934592",
        ),
        (rewritten(byte_order="middle"), "byte_order: expected 'little', found 'middle'"),
        (
            rewritten(body=b"no zlib"),
            "the tensors cannot be decompressed: Error -3 while decompressing data: incorrect "
            "header check",
        ),
        (rewritten(advice=None), "tensor spec: expected a JSON object, found None"),
        (rewritten(advice={}), "tensor spec '': expected the properties name, type, port and "
         "shape, found no name, type, port, shape"),
    ],
)  # fmt: skip
def test_files_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        Trace.from_bytes(data, "f")
    assert str(caught.value) == f"trace 'f': {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"module_sha256": "x"}, "module_sha256: expected 64 hexadecimal digits, found 'x'"),
        ({"object_sha256": ""}, "object_sha256: expected 64 hexadecimal digits, found ''"),
        ({"advice": b"123456789"}, "advice: expected 8 bytes, found 9"),
        ({"observations": b"1"}, "observations: expected 0 bytes, found 1"),
        ({"features": (SPEC,)}, "observations: expected 16 bytes, found 0"),
    ],
)
def test_parts_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        made(**changes)
    assert str(caught.value) == f"trace 'm': {message}"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none.trace"
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value) == f"trace {str(path)!r}: cannot be read: No such file or directory"
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="cannot be written: "):
        made().save(tmp_path / "file" / "x.trace")


def test_replay_gives_the_same_object(compiler: Compiler, small: Corpus, trace: Trace) -> None:
    again = Trace.from_bytes(trace.to_bytes())
    assert replay(compiler, again, small["frame_stream.c"]).object_sha256 == trace.object_sha256
    assert problem_of(again) == PROBLEM
    assert len(trace.to_bytes()) < 20 * trace.decisions + 8000
    lifted = InliningForSize(float("inf"))
    other = record(compiler, small["frame_stream.c"], lifted, always, CompileOptions("O2"))
    assert problem_of(other) == lifted
    assert options_of_trace(other).opt_level == "O2"
    replay(compiler, other, small["frame_stream.c"], CompileOptions("O2"))


def test_settings_that_are_not_of_code_may_differ(compiler: Compiler, small: Corpus) -> None:
    """Corpora's commands have ``-faddrsig``, which changes the object and no code."""
    module = small["frame_stream.c"]
    plain = replace(options_of(module), addrsig=False)
    assert options_of(module).addrsig
    trace = record(compiler, module, InliningForSize(), never, plain)
    assert trace.settings["addrsig"] is False
    result = replay(compiler, trace, module, options_of(module))
    assert result.object_sha256 == trace.object_sha256
    now = record(compiler, module, InliningForSize(), never)
    assert now.settings["addrsig"] is True
    assert now.object_sha256 != trace.object_sha256
    assert now.text_size_bytes == trace.text_size_bytes
    sections = replace(plain, function_sections=True)
    with pytest.raises(TraceError, match="function_sections: expected False, found True"):
        replay(compiler, trace, module, sections)


def test_another_policy_goes_on(compiler: Compiler, small: Corpus, trace: Trace) -> None:
    module = small["frame_stream.c"]

    def first_alternate(observation: Observation) -> int:
        return observation.index % 2 if observation.index < 5 else 0

    expected = record(compiler, module, PROBLEM, first_alternate)
    with resume(compiler, trace, module, 5) as compilation:
        assert compilation.decisions == 5
        while compilation.next_observation() is not None:
            compilation.answer(0)
        assert trace_of(compilation) == expected
    with pytest.raises(UsageError) as caught:
        resume(compiler, trace, module, trace.decisions + 1)
    assert str(caught.value) == (
        f"trace 'frame_stream.c': expected 0 to {trace.decisions} decisions to repeat, found "
        f"{trace.decisions + 1}"
    )


def test_without_a_problem_there_is_no_trace(compiler: Compiler, small: Corpus) -> None:
    compilation = compiler.start(small["frame_stream.c"], None)
    with pytest.raises(
        UsageError, match="^module 'frame_stream.c': expected one problem, found 0$"
    ):
        trace_of(compilation)


def other_observation(trace: Trace) -> Trace:
    data = bytearray(trace.observations)
    data[304 + 8 + 8] ^= 1  # of 39 int64 features: the second decision's second
    return replace(trace, observations=bytes(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: replace(t, module_sha256=HASH), f"module_sha256: expected {HASH}, found "),
        (lambda t: replace(t, llvm_version="21.0.0"), "llvm_version: expected 21.0.0, found 22.1."),
        (lambda t: replace(t, object_sha256=HASH), f"object_sha256: expected {HASH}, found "),
        (other_observation, "decision 1, feature 'sroa_losses': expected [1], found [0]"),
        (
            lambda t: replace(t, features=(TensorSpec("a", "int64_t", (39,)),)),
            "features: expected ['a'], found ['sroa_savings', ",
        ),
        (
            lambda t: replace(t, advice=t.advice[:-8], observations=t.observations[: -39 * 8]),
            "expected 58 decisions, found that LLVM asks for more",
        ),
        (
            lambda t: replace(t, advice=t.advice + t.advice[:8], features=(), observations=b""),
            "expected 60 decisions, found only 59",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "problem": "Loops"}),
            "problem: expected one of InliningForSize, RegallocEviction, RegallocPriority, "
            "found Loops",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "problem": ["InliningForSize"]}),
            "problem: expected one of InliningForSize, RegallocEviction, RegallocPriority, "
            "found ['InliningForSize']",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "size_increase_threshold": -1}),
            "settings of InliningForSize: size_increase_threshold: expected a number above 0, "
            "found -1",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "size_increase_threshold": "much"}),
            "settings: size_increase_threshold: expected a number, found 'much'",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "opt_level": "fast"}),
            "settings: opt_level: expected one of O0, O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'fast'",
        ),
        (
            lambda t: replace(
                t, settings={**t.settings, "llvm_options": ["-exec-on-ir-change=touch here"]}
            ),
            "settings: llvm_options: -exec-on-ir-change=touch here: it is not one of those known "
            "to run, read, write and show nothing",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "llvm_options": ["-ir-dump-directory=."]}),
            "settings: llvm_options: -ir-dump-directory=.: it is not one of those known to run, "
            "read, write and show nothing",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "llvm_options": [5]}),
            "settings: llvm_options: expected a text, found 5",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "llvm_options": "-inline-threshold=5"}),
            "settings: llvm_options: expected a list of options, found '-inline-threshold=5'",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "abi": "\udcff"}),
            "settings: abi: expected at most 256 characters of ASCII, without spaces, found "
            "'\\udcff'",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "features": "+a" * 40_000}),
            "settings: features: expected at most 65536 characters of ASCII, without spaces, found "
            f"'{'+a' * 19}+...",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "cpu": None}),
            "settings: cpu: expected at most 256 characters of ASCII, without spaces, found None",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "run_passes": "no"}),
            "settings: run_passes: expected true or false, found 'no'",
        ),
        (
            lambda t: replace(t, settings={**t.settings, "vectorize_slp": 1}),
            "settings: vectorize_slp: expected true or false, found 1",
        ),
        (
            lambda t: replace(t, settings={"problem": "InliningForSize"}),
            "settings: expected opt_level, relocation_model, code_model, ",
        ),
    ],
)
def test_what_differs_is_named(
    compiler: Compiler,
    small: Corpus,
    trace: Trace,
    change: Callable[[Trace], Trace],
    message: str,
) -> None:
    changed = change(trace)
    with pytest.raises(TraceError) as caught:
        replay(compiler, changed, small["frame_stream.c"])
    assert str(caught.value).startswith(f"trace 'frame_stream.c': {message}")
    replay(compiler, trace, small["frame_stream.c"])  # the compiler goes on


def test_another_module_or_other_options(compiler: Compiler, small: Corpus, trace: Trace) -> None:
    with pytest.raises(TraceError, match="^trace 'frame_stream.c': module_sha256: expected "):
        replay(compiler, trace, Module.from_ir(""))
    options = replace(options_of_trace(trace), opt_level="O2")
    with pytest.raises(
        TraceError, match="^trace 'frame_stream.c': opt_level: expected Oz, found O2$"
    ):
        replay(compiler, trace, small["frame_stream.c"], options)


@pytest.mark.parametrize(
    ("problem", "policy"),
    [(RegallocEviction(), lowest_density), (RegallocPriority(), by_size)],
)
def test_register_allocation_is_repeated(
    compiler: Compiler,
    small: Corpus,
    problem: RegallocEviction | RegallocPriority,
    policy: Answer,
) -> None:
    module = small["hash_map.c"]
    made = record(compiler, module, problem, policy, keep_observations=True)
    again = Trace.from_bytes(made.to_bytes())
    assert problem_of(again) == problem
    assert replay(compiler, again, module).decisions == made.decisions > 0


def test_what_a_trace_cannot_hold(compiler: Compiler, small: Corpus) -> None:
    eviction = RegallocEviction()
    corpus, policies = small.only(["frame_stream.c"]), {"never": InliningForSize.policy("never")}
    also: dict[Problem, PolicyLike] = {eviction: RegallocEviction.policy("first", 0)}
    both = next(rollout(corpus, policies, PROBLEM, keep_decisions=True, also=also))
    assert both.is_complete
    assert both.attempts[0].trace(PROBLEM) is None
    scored = next(rollout(corpus, {"first": also[eviction]}, eviction))
    assert scored.is_complete
    assert scored.attempts[0].trace(eviction) is None
    result = compiler.start(small["frame_stream.c"], [PROBLEM, eviction])
    with pytest.raises(
        UsageError, match="^module 'frame_stream.c': expected one problem, found 2$"
    ):
        trace_of(result)


def test_never_is_a_trace_of_zeros(compiler: Compiler, small: Corpus) -> None:
    assert not record(compiler, small["frame_stream.c"], PROBLEM, never).actions().any()


def test_sites_change_nothing_else(compiler: Compiler, small: Corpus) -> None:
    module = small["frame_stream.c"]
    plain = record(compiler, module, PROBLEM, alternate, keep_observations=True)
    sited = record(compiler, module, PROBLEM, alternate, keep_observations=True, sites=True)
    assert replace(sited, sites=()) == plain
    assert [site.calls[-1].function for site in sited.sites] == [s.caller for s in sited.sites]
    assert len(sited.sites) == sited.decisions
    again = Trace.from_bytes(sited.to_bytes())
    assert again.sites == sited.sites
    assert replay(compiler, again, module).object_sha256 == plain.object_sha256
    assert record(compiler, module, PROBLEM, alternate, sites=True).sites == sited.sites
