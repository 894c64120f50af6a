"""Labels: what single recompilations say, averaged over flips and shared by those of a group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, never
from mlgo_gym.search._attribution import NamedDecision
from mlgo_gym.training._labels import LabelSetting, _wanted, label_modules
from tests.curation.make import assembled, make_corpus
from tests.search.recompiled import saved_by_single_flips, saved_together

# Two calls of one callee, which goes away where both are inlined; and a callee with one call.
CALLS = """
target triple = "x86_64-unknown-linux-gnu"
define internal i32 @shared(i32 %x) minsize optsize {
  %y = mul i32 %x, %x
  %z = xor i32 %y, 12345
  %w = mul i32 %z, %x
  %v = add i32 %w, 777
  ret i32 %v
}
define i32 @alone(i32 %x) minsize optsize {
  %y = mul i32 %x, 12345
  %z = xor i32 %y, %x
  %w = mul i32 %z, %z
  ret i32 %w
}
define i32 @first(i32 %x) minsize optsize {
  %y = call i32 @shared(i32 %x)
  ret i32 %y
}
define i32 @second(i32 %x) minsize optsize {
  %y = add i32 %x, 1
  %z = call i32 @shared(i32 %y)
  ret i32 %z
}
define i32 @third(i32 %x) minsize optsize {
  %y = call i32 @alone(i32 %x)
  ret i32 %y
}
"""
BATCHES = 3


def test_labels_are_means_of_what_recompiling_says(compiler: Compiler, tmp_path: Path) -> None:
    """A call flipped by itself counts what it saves; one of a group, its part of the group's."""
    folder = make_corpus(tmp_path, {"m": assembled(CALLS)})
    packages = Packages.of({"p": Corpus.load(folder)})
    module = packages[ModuleKey("p", "m")]
    first, second, alone = saved_by_single_flips(compiler, module, never)
    group = saved_together(compiler, module, never, (0, 1))
    assert group / 2 not in {first, second, group}
    (done,) = label_modules(packages, never, "never", {}, LabelSetting(batches=BATCHES))
    episode = done.value[1]
    assert episode is not None
    times = episode.label("sample_weight")
    # In each batch one of the two by itself, and then both of them as a group.
    assert times[:2].sum() == 3 * BATCHES
    assert times[2] == 2 * BATCHES
    expected = [
        (times[0] - BATCHES) * first + BATCHES * group / 2,
        (times[1] - BATCHES) * second + BATCHES * group / 2,
        2 * BATCHES * alone,
    ]
    for label in ("saved_bytes", "saved_linked_bytes"):
        assert (episode.label(label) * times).tolist() == pytest.approx(expected)


def test_what_is_wanted_goes_with_the_band() -> None:
    """Most in its lower part, which is -25 to 60 of -25 to 120."""

    def wanted(cost: int, band: tuple[int, int]) -> float:
        row = np.zeros(1, InliningForSize().layout.dtype)
        row["cost_estimate"] = cost
        return _wanted(band, NamedDecision(("f", 0), "g", row.tobytes(), 0))

    expected = {-26: 0.05, -25: 1.0, 59: 1.0, 60: 0.7, 119: 0.7, 120: 0.02}
    assert {cost: wanted(cost, (-25, 120)) for cost in expected} == expected
    assert {cost: wanted(3 * cost + 75, (0, 435)) for cost in expected} == expected


def test_a_module_that_never_asks_has_no_labels(tmp_path: Path) -> None:
    text = 'target triple = "x86_64-unknown-linux-gnu"\ndefine i32 @f() { ret i32 1 }\n'
    packages = Packages.of({"p": Corpus.load(make_corpus(tmp_path, {"m": assembled(text)}))})
    (done,) = label_modules(packages, never, "never", {}, LabelSetting(batches=BATCHES))
    assert done.value.source.policy == "never"
    assert done.value.episode is None
