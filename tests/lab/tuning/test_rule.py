"""Rules: one answer in numpy, Python, C++ and the graph, round thresholds, lines that are kept."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from mlgo_gym.lab.tuning._rule import (
    FUNCTION,
    KNOWN,
    LEAST_LINES,
    Rule,
    RuleNode,
    answers,
    cpp_text,
    features_of,
    line_count,
    narrowed,
    python_text,
    simplified,
    splits_of,
)
from mlgo_gym.lab.tuning._rule_distillation import Calls, RuleNetwork, _rounded, fit_rules
from mlgo_gym.problems._inlining_for_size import InliningForSize

INT64 = np.iinfo(np.int64)
BOUNDS = (INT64.min, -(2**31), -1, 0, 1, 2**31 - 1, INT64.max)

SMALL = RuleNode(
    "cost_estimate",
    -25,
    low=True,
    high=RuleNode(
        "callee_users",
        3,
        low=RuleNode("is_multiple_blocks", 1, low=True, high=False),
        high=RuleNode("cost_estimate", 5, low=True, high=False),
    ),
)

PYTHON = '''"""Shall it?"""


def should_inline(is_multiple_blocks, cost_estimate, callee_users, **_):
    if cost_estimate < -25:
        return True
    if callee_users < 3:
        return is_multiple_blocks == 0
    return cost_estimate < 5


if __name__ == "__main__":  # features by name as JSON, a call in each line
    import json, sys

    for line in sys.stdin:
        print(int(should_inline(**json.loads(line))))
'''

CPP = """inline bool should_inline(
    int64_t is_multiple_blocks,
    int64_t cost_estimate,
    int64_t callee_users) {
  return cost_estimate < -25 || ((callee_users < 3
    ? (is_multiple_blocks == 0)
    : (cost_estimate < 5)));
}
"""


def drawn(random: np.random.Generator, depth: int) -> Rule:
    """A rule with nothing that it does without."""
    if depth == 0 or random.random() < 0.15:
        return bool(random.integers(2))
    name = str(random.choice(list(KNOWN)))
    least = 1 if KNOWN[name].unit == "flag" else int(random.choice([-7, 0, 3, 50, *BOUNDS[1:-1]]))
    return RuleNode(name, least, drawn(random, depth - 1), drawn(random, depth - 1))


def rules() -> list[Rule]:
    random = np.random.default_rng(0)
    found = [simplified(drawn(random, depth)) for depth in (1, 2, 3, 4, 6, 7)]
    return [SMALL, *(each for each in found if isinstance(each, RuleNode))]


def calls(rule: Rule, count: int = 300) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers about each threshold, small ones, and those at the bounds."""
    random = np.random.default_rng(1)
    near = [each.least + step for each in splits_of(rule) for step in (-1, 0, 1)]
    return {
        name: random.choice(np.array([*near, *BOUNDS, *range(-3, 9)], np.int64), count)
        for name in features_of(rule)
    }


def test_a_rule_as_text() -> None:
    assert python_text(SMALL, "Shall it?") == PYTHON
    text = cpp_text(SMALL, "Shall it?")
    assert text.startswith("// Shall it?\n//\n")
    assert text.endswith(CPP)
    assert "//       *ModelRunner->getTensor<int64_t>(FeatureIndex::callee_users))\n" in text


def test_a_header_says_what_llvm_does_not_send() -> None:
    rule = RuleNode("callee_is_local", 1, low=False, high=True)
    said = "// but LLVM does not send these, which mlgo-gym adds: callee_is_local\n"
    assert said in cpp_text(rule, "")
    assert "mlgo-gym adds" not in cpp_text(SMALL, "")


def test_python_answers_as_the_rule_does(tmp_path: Path) -> None:
    for rule in rules():
        columns = calls(rule)
        numbers = np.stack(list(columns.values()), axis=1).tolist()
        asked = "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in numbers)
        path = tmp_path / "rule.py"
        path.write_text(python_text(rule, "A rule."))
        done = subprocess.run(
            [sys.executable, path], input=asked, capture_output=True, text=True, check=True
        )
        assert list(map(int, done.stdout.split())) == answers(rule, columns).astype(int).tolist()


@pytest.mark.e2e
def test_the_graph_answers_as_the_rule_does() -> None:
    for rule in rules():
        columns = calls(rule)
        network = RuleNetwork(rule, InliningForSize(derived=True, hotness=True))
        logits = network({name: tf.constant(each) for name, each in columns.items()}).numpy()
        assert (logits.argmax(axis=-1) == 1).tolist() == answers(rule, columns).tolist()


@pytest.mark.skipif(not shutil.which("clang++-22"), reason="needs clang++-22")
def test_cpp_answers_as_the_rule_does(tmp_path: Path) -> None:
    known = rules()
    parts = ["#include <cstdint>\n"]
    for number, rule in enumerate(known):
        body = cpp_text(rule, "A rule.").replace("#pragma once\n", "")
        inputs = ", ".join(f"row[{place}]" for place in range(len(features_of(rule))))
        parts.append(f"namespace n{number} {{\n{body}}}\n")
        parts.append(f'extern "C" int rule{number}(const int64_t *row) ')
        parts.append(f"{{ return n{number}::{FUNCTION}({inputs}); }}\n")
    (tmp_path / "rules.cpp").write_text("".join(parts).replace("#include <cstdint>\n\n", ""))
    library = tmp_path / "rules.so"
    command = ["clang++-22", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Werror"]
    command += ["-Wno-logical-op-parentheses", "-o", str(library), str(tmp_path / "rules.cpp")]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    for number, rule in enumerate(known):
        columns = calls(rule)
        table = np.ascontiguousarray(np.stack(list(columns.values()), axis=1))
        asked = getattr(loaded, f"rule{number}")
        pointer = ctypes.POINTER(ctypes.c_int64)
        found = [bool(asked(row.ctypes.data_as(pointer))) for row in table]
        assert found == answers(rule, columns).tolist()


def test_what_is_narrowed_answers_alike_below() -> None:
    for rule in rules():
        columns = calls(rule)
        for name in features_of(rule):
            chosen = columns[name] <= 3
            if chosen.any():
                some = {each: values[chosen] for each, values in columns.items()}
                expected = answers(rule, some).tolist()
                assert answers(narrowed(rule, name, 3), some).tolist() == expected


def test_thresholds_are_round() -> None:
    values = np.arange(0, 3000, 7)
    assert _rounded(values, np.ones(len(values)), 1013) == 1010  # between 1008 and 1015
    assert _rounded(np.array([0, 10_000]), np.ones(2), 4_321) == 4_000
    assert _rounded(np.array([-40, -33, -17]), np.ones(3), -32) == -30
    assert _rounded(np.array([31, 32, 33, 34]), np.ones(4), 33) == 33


def some_calls(count: int = 4000) -> Calls:
    random = np.random.default_rng(0)
    names = ("cost_estimate", "callee_users", "is_multiple_blocks", "caller_basic_block_count")
    columns = {name: random.integers(-60, 200, count) for name in names}
    columns["is_multiple_blocks"] = random.integers(0, 2, count)
    wave = sum(np.sin(columns[name] / 25) for name in names)
    return Calls(columns, np.asarray(wave - columns["cost_estimate"] / 40))


@pytest.mark.parametrize("lines", [LEAST_LINES, LEAST_LINES + 3, 25, 40, 120])
def test_a_rule_keeps_to_its_lines(lines: int) -> None:
    known = some_calls()
    found = fit_rules(known, lines, None, 0)
    assert all(line_count(each) <= lines for each in found)
    right = (answers(found[0], known.columns) == (known.certainties > 0)).mean()
    assert right > (0.7 if lines < 20 else 0.8)


def test_outside_of_the_band_a_rule_goes_by_the_cost() -> None:
    known = some_calls()
    for rule in fit_rules(known, 40, (-25, 120), 0):
        assert line_count(rule) <= 40
        costs = known.columns["cost_estimate"]
        found = answers(rule, known.columns)
        assert found[costs < -25].all()
        assert not found[costs >= 120].any()


def test_no_rule_where_all_is_one_answer() -> None:
    known = some_calls()
    assert fit_rules(Calls(known.columns, np.ones(len(known.certainties))), 40, None, 0) == []
