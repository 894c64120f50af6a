"""Rules: small decision trees over the numbers of one call, as Python and as C++.

A split sends a call on by one of its numbers: to ``low`` below the least value that goes to
``high``. Of a flag, 0 goes to ``low`` and all else to ``high``. What follows of a rule, text, graph
and arrays, answers alike for all int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_gym.problems import DERIVED, FEATURES, Feature

_Array = np.ndarray[Any, Any]

KNOWN: Final[Mapping[str, Feature]] = {
    each.spec.name: each for each in chain(FEATURES, *DERIVED.values())
}
"""The features that rules may be over: single numbers that are read, so no embeddings."""

_WIDTH: Final = 88
_MOST_CONDITIONS: Final = 3
"""The most conditions in one line of Python, or in one part of a C++ expression."""
FUNCTION: Final = "should_inline"


@dataclass(frozen=True, slots=True)
class RuleNode:
    """A question about one feature, and the rules for either answer."""

    feature: str
    least: int
    low: Rule
    high: Rule

    @property
    def is_flag(self) -> bool:
        return KNOWN[self.feature].unit == "flag"


Rule = bool | RuleNode
"""Whether to inline, or what decides about it."""


def simplified(rule: Rule) -> Rule:
    """The rule without questions that change nothing."""
    if isinstance(rule, bool):
        return rule
    low, high = simplified(rule.low), simplified(rule.high)
    return low if low == high else RuleNode(rule.feature, rule.least, low, high)


def narrowed(rule: Rule, feature: str, most: int) -> Rule:
    """Return the rule for calls whose feature is at most a bound."""
    if isinstance(rule, bool):
        return rule
    low = narrowed(rule.low, feature, most)
    if rule.feature == feature and most < rule.least:
        return low
    return simplified(RuleNode(rule.feature, rule.least, low, narrowed(rule.high, feature, most)))


def features_of(rule: Rule) -> tuple[str, ...]:
    """The features that a rule asks about, in LLVM's order."""
    asked = {each.feature for each in splits_of(rule)}
    return tuple(name for name in KNOWN if name in asked)


def splits_of(rule: Rule) -> Iterator[RuleNode]:
    """The questions of a rule, first to last."""
    if isinstance(rule, RuleNode):
        yield rule
        yield from splits_of(rule.low)
        yield from splits_of(rule.high)


def answers(rule: Rule, columns: Mapping[str, _Array]) -> _Array:
    """Return a rule's answers to calls: ``bool [N]`` of features ``[N]``."""
    if isinstance(rule, bool):
        return np.full(len(next(iter(columns.values()))), rule)
    values = columns[rule.feature]
    is_low = values == 0 if rule.is_flag else values < rule.least
    return np.where(is_low, answers(rule.low, columns), answers(rule.high, columns))


class _Language(NamedTuple):
    conjunction: str
    disjunction: str
    literals: tuple[str, str]


_PYTHON: Final = _Language("and", "or", ("False", "True"))
_CPP: Final = _Language("&&", "||", ("false", "true"))


class _Text(NamedTuple):
    text: str
    operator: str = ""

    def within(self, operator: str) -> str:
        return f"({self.text})" if self.operator not in {"", operator} else self.text


def _condition(split: RuleNode, *, is_low: bool) -> str:
    if split.is_flag:
        return f"{split.feature} {'==' if is_low else '!='} 0"
    return f"{split.feature} {'<' if is_low else '>='} {split.least}"


def _expression(rule: Rule, language: _Language) -> _Text | None:
    """The rule as one condition; ``None`` where both answers to a question lead to others."""
    if isinstance(rule, bool):
        return _Text(language.literals[rule])
    for known, other, is_low in ((rule.low, rule.high, False), (rule.high, rule.low, True)):
        if not isinstance(known, bool):
            continue
        if isinstance(other, bool):
            return _Text(_condition(rule, is_low=rule.low is True))
        rest = _expression(other, language)
        if rest is None:
            return None
        operator = language.disjunction if known else language.conjunction
        condition = _condition(rule, is_low=is_low is not known)
        return _Text(f"{condition} {operator} {rest.within(operator)}", operator)
    return None


def _short(rule: Rule, language: _Language) -> str | None:
    """The rule as one condition, if it can be read as such."""
    found = _expression(rule, language)
    if found is None or sum(1 for _ in splits_of(rule)) > _MOST_CONDITIONS:
        return None
    return found.text


def python_lines(rule: Rule, indent: str = "    ") -> list[str]:
    """The body of a function of the features."""
    text = _short(rule, _PYTHON)
    if isinstance(rule, bool) or (text and len(indent) + len(text) <= _WIDTH):
        return [f"{indent}return {text}"]
    is_low = len(python_lines(rule.low)) <= len(python_lines(rule.high))
    first, second = (rule.low, rule.high) if is_low else (rule.high, rule.low)
    return [
        f"{indent}if {_condition(rule, is_low=is_low)}:",
        *python_lines(first, indent + "    "),
        *python_lines(second, indent),
    ]


def python_text(rule: Rule, title: str) -> str:
    """A module with the rule as a function, which answers observations as JSON if it is run."""
    names = "".join(f"{name}, " for name in features_of(rule))
    indent = " " * len(f"def {FUNCTION}(")
    signature = wrap(f"def {FUNCTION}({names}**_):", _WIDTH, subsequent_indent=indent)
    lines = [
        f'"""{title}"""',
        "",
        "",
        *signature,
        *python_lines(rule),
        "",
        "",
        'if __name__ == "__main__":  # features by name as JSON, a call in each line',
        "    import json, sys",
        "",
        "    for line in sys.stdin:",
        f"        print(int({FUNCTION}(**json.loads(line))))",
    ]
    return "\n".join(lines) + "\n"


def line_count(rule: Rule) -> int:
    """How many lines `python_text` has."""
    return python_text(rule, "").count("\n")


def _cpp_lines(rule: Rule) -> list[str]:
    """The rule as one expression, over several lines."""
    text = _short(rule, _CPP)
    if isinstance(rule, bool) or text:
        return [str(text)]
    for known, other, is_low in ((rule.low, rule.high, False), (rule.high, rule.low, True)):
        if isinstance(known, bool):
            operator = _CPP.disjunction if known else _CPP.conjunction
            condition = _condition(rule, is_low=is_low is not known)
            return _cpp_within(f"{condition} {operator} (", other)
    condition = _condition(rule, is_low=True)
    return [f"({condition}", *_cpp_within("? (", rule.low), *_cpp_within(": (", rule.high, "))")]


def _cpp_within(start: str, rule: Rule, end: str = ")") -> list[str]:
    first, *rest = _cpp_lines(rule)
    lines = [start + first, *(f"  {line}" for line in rest)]
    return [*lines[:-1], lines[-1] + end]


def cpp_text(rule: Rule, title: str) -> str:
    """A header with the rule as an expression over LLVM's features, and how LLVM asks it."""
    names = features_of(rule)
    tensors = [f"*ModelRunner->getTensor<int64_t>(FeatureIndex::{name})" for name in names]
    lines = [
        f"// {title}",
        "//",
        "// Names are those of FeatureIndex (llvm/Analysis/InlineModelFeatureMaps.h):",
        *(f"// - {name}: {KNOWN[name].meaning}" for name in names),
    ]
    if strangers := [name for name in names if KNOWN[name].is_derived]:
        lines.append(
            f"// but LLVM does not send these, which mlgo-gym adds: {', '.join(strangers)}"
        )
    lines += [
        "//",
        "// In llvm/lib/Analysis/MLInlineAdvisor.cpp, where the features are there, this takes the",
        "// place of ModelRunner->evaluate<int64_t>():",
        "//",
        f"//   {FUNCTION}(",
        *(f"//       {each}" for each in _separated(tensors, ")")),
        "#pragma once",
        "#include <cstdint>",
        "",
        f"inline bool {FUNCTION}(",
        *(f"    {each}" for each in _separated([f"int64_t {name}" for name in names], ") {")),
    ]
    first, *rest = _cpp_lines(rule)
    body = [f"  return {first}", *(f"  {line}" for line in rest)]
    return "\n".join([*lines, *body]) + ";\n}\n"


def _separated(parts: list[str], end: str) -> list[str]:
    return [part + ("," if number < len(parts) else end) for number, part in enumerate(parts, 1)]


LEAST_LINES: Final = line_count(RuleNode("cost_estimate", 0, low=True, high=False))
"""The lines of a rule of one question."""
