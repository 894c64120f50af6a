"""Linked text: closed forms, and what a real linker keeps of real objects."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import ModuleError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default, never
from mlgo_gym.problems._policy import Answer
from mlgo_gym.rollout import MeasureSetting
from mlgo_gym.rollout._linked_text import Code, LinkedText, linked_text_bytes, linked_text_shares
from tests.conftest import require

_KEPT = re.compile(r"^ *\w+ +\w+ +(\w+) +\d+ +\S+:\((\.text\S*)\)$", re.MULTILINE)
"""An input section in lld's map: addresses, size, alignment, and where it comes from."""


@pytest.mark.parametrize("policy", [default, never])
def test_a_linker_keeps_the_same(
    policy: Answer, sample: Corpus, compiler: Compiler, tmp_path: Path
) -> None:
    linker = require("ld.lld-22", "lld-22")
    codes = []
    files = []
    for name in (each for each in sample if each.endswith(".cpp")):
        result = compiler.compile_module(
            sample[name], problem=InliningForSize(), policy=policy, keep_object=True
        )
        codes.append(Code.of(result))
        files.append(tmp_path / f"{name}.o")
        files[-1].write_bytes(result.object_bytes or b"")
    flags = ["-shared", "--unresolved-symbols=ignore-all", "--allow-multiple-definition"]
    outputs = ["-Map", str(tmp_path / "map"), "-o", str(tmp_path / "linked.so")]
    subprocess.run([linker, *flags, *outputs, *map(str, files)], check=True)
    kept = [int(size, 16) for size, _ in _KEPT.findall((tmp_path / "map").read_text())]
    linked = linked_text_bytes(codes)
    assert linked == sum(kept)
    assert linked < sum(each.text_bytes for each in codes)
    assert np.isclose(linked_text_shares(codes).sum(), linked)


def test_the_first_group_counts() -> None:
    one, two = Code(100, {"f": 40}), Code(50, {"f": 10, "g": 20})
    assert linked_text_bytes([one, two]) == 60 + 20 + 40 + 20
    assert linked_text_bytes([two, one]) == 60 + 20 + 10 + 20
    assert linked_text_bytes([]) == 0


def test_shares() -> None:
    codes = [Code(100, {"f": 40}), Code(50, {"f": 10, "g": 20}), Code(0, {})]
    assert linked_text_shares(codes).tolist() == [80.0, 60.0, 0.0]


def test_dropping_a_copy_saves_nothing_where_another_is_left() -> None:
    before = [Code(100, {"f": 40}), Code(90, {"f": 40})]
    after = [Code(60, {}), Code(90, {"f": 40})]
    assert sum(each.text_bytes for each in before) - sum(each.text_bytes for each in after) == 40
    assert linked_text_bytes(before) == linked_text_bytes(after)


@pytest.mark.parametrize("others", [default, never])
def test_scores_differ_as_the_package_does(
    others: Answer, sample: Corpus, compiler: Compiler
) -> None:
    names = [name for name in sample if name.endswith(".cpp")]
    how = InliningForSize(), others
    measure = LinkedText.prepare(MeasureSetting(sample.only(names), how, jobs=2))
    assert measure == LinkedText.prepare(MeasureSetting(sample.only(names), how))
    codes: dict[str, dict[Answer, Code]] = {}
    scores: dict[str, dict[Answer, float]] = {}
    for name in names:
        for policy in (default, never):
            result = compiler.compile_module(sample[name], problem=InliningForSize(), policy=policy)
            codes.setdefault(name, {})[policy] = Code.of(result)
            scores.setdefault(name, {})[policy] = measure.score(result)
    moved = 0
    for name in names:
        sizes = {
            policy: linked_text_bytes(
                [codes[each][policy if each == name else others] for each in names]
            )
            for policy in (default, never)
        }
        assert scores[name][never] - scores[name][default] == sizes[never] - sizes[default]
        alone = codes[name][never].text_bytes - codes[name][default].text_bytes
        moved += alone != sizes[never] - sizes[default]
    assert moved  # text by itself says something else


def test_groups_that_others_have() -> None:
    measure = LinkedText({"a": Code(100, {"f": 40}), "b": Code(60, {"f": 30, "g": 20})})
    other = LinkedText({"a": Code(100, {"f": 40}), "b": Code(60, {"f": 31, "g": 20})})
    assert measure.context() != other.context()
    assert measure.context().keys() == {"package_sha256"}


def test_a_module_of_no_package(sample: Corpus, compiler: Compiler) -> None:
    result = compiler.compile_module(sample["digest.c"])
    with pytest.raises(ModuleError) as caught:
        LinkedText({}).score(result)
    expected = "module 'digest.c': expected a module of the package that is linked"
    assert str(caught.value) == expected
