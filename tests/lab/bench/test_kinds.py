"""Suites of register allocation and of programs that run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym import InliningForSize
from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.errors import BenchmarkError
from mlgo_gym.lab.bench import Submission, Suite, run, sample_suite, table, verify
from mlgo_gym.lab.bench._archive import make_suite
from mlgo_gym.lab.bench._table import page
from mlgo_gym.problems import RegallocEviction
from mlgo_gym.rollout import BASELINE, Trace
from tests.conftest import require

VM = "traces/plain/0/sample/expr_vm.c.trace"


def suite_of(kind: str, problem: str, folder: Path, modules: Sequence[str] = ()) -> Suite:
    with sample_suite(["digest.c"]) as sample:
        described = replace(sample, kind=kind, problem=problem, tracks=("plain",), sums={})
    make_suite(described, {"sample": SAMPLE_CORPUS}, folder / kind, modules=modules)
    return Suite.open(folder / kind)


def test_register_allocation(tmp_path: Path) -> None:
    suite = suite_of("spill", "regalloc-eviction", tmp_path, ["expr_vm.c", "digest.c"])
    seeds = {str(seed): RegallocEviction.policy("random", seed) for seed in range(2)}
    made = run(suite, seeds, jobs=2)
    values = made.card.values["plain"]["sample"]
    assert values[BASELINE] == {"cost": 1.0}
    assert values["0"]["cost"] != values["1"]["cost"] > 1
    verify(made, suite)
    shown = page(table(suite, [made.named("chance", "us", "", "").card]))
    assert "| seeds | score | better than LLVM | cost, % |" in shown
    trace = Trace.from_bytes(made.files[VM])
    actions = np.array(trace.actions())
    assert len(actions) > 3
    other = Trace.from_bytes(made.files[VM.replace("/0/", "/1/")])
    forged = replace(trace, advice=other.advice)
    with pytest.raises(BenchmarkError, match="altered|expr_vm"):
        verify(_with(made, forged), suite)


@pytest.mark.e2e
def test_programs_that_run(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    suite = suite_of("speed", "inlining-for-size", tmp_path)
    made = run(suite, {"0": InliningForSize.policy("never")}, jobs=2)
    values = made.card.values["plain"]["sample"]
    assert values["0"]["instructions"] > values[BASELINE]["instructions"] > 1000
    verify(made, suite, jobs=2)


def _with(made: Submission, trace: Trace) -> Submission:
    files = {**made.files, VM: trace.to_bytes()}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return replace(made, files=files, card=replace(made.card, sha256=hashes))
