"""The problems that are installed: entry points of the group ``mlgo_gym.problems``.

A package of anybody's adds one by an entry point; the name is what the command line calls it::

    [project.entry-points."mlgo_gym.problems"]
    my-problem = "my_package:MyProblem"

`mlgo_gym` declares its own in the same way, and asks for them by no other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mlgo_gym.base import EnvironmentSetupError, OptionsError, broken, entry_points, load, report
from mlgo_gym.problems._problem import Problem

GROUP: Final = "mlgo_gym.problems"
DEFAULT: Final = "inlining-for-size"
"""The problem of commands and functions where none is named."""

_PARTS: Final = ("name", "advice", "policies", "default_policy", "measure")


@functools.cache
def _found() -> tuple[Mapping[str, type[Problem]], Mapping[str, EnvironmentSetupError]]:
    """The problems by the names of their entry points, and why others are left out."""
    known: dict[str, type[Problem]] = {}
    left_out: dict[str, EnvironmentSetupError] = {}
    for point in entry_points(GROUP):
        try:
            kind: type[Problem] = load(point, _lacks)
            if point.name in known:
                raise broken(point, "expected a name of its own, found that of another")
            if kind.name in {each.name for each in known.values()}:
                raise broken(
                    point, f"expected a problem of another name, found {kind.name!r} twice"
                )
        except EnvironmentSetupError as error:
            left_out[point.name] = error
            report(error)
        else:
            known[point.name] = kind
    return MappingProxyType(known), left_out


def problems() -> Mapping[str, type[Problem]]:
    """The problems by the names that the command line calls them.

    A package's problem that cannot be loaded, lacks a part or has the name of another is left out
    with a warning that names its entry point and its distribution.

    >>> list(problems())[0]
    'inlining-for-size'
    """
    return _found()[0]


def problem_named(name: str) -> type[Problem]:
    """The problem of a name: the command line's, or the one on model cards and in records.

    Raises:
        OptionsError: there is none; the message names those there are.
        EnvironmentSetupError: it is another package's, and cannot be used.

    >>> problem_named("inlining-for-size") is problem_named("InliningForSize")
    True
    """
    known = dict(problems())
    known |= {kind.name: kind for kind in problems().values()}
    if name not in known and name in (left_out := _found()[1]):
        raise left_out[name]
    if name not in known:
        raise OptionsError(f"problem: expected one of {', '.join(problems())}, found {name!r}")
    return known[name]


def option_name(kind: type[Problem]) -> str:
    """Return the command line's name of a problem.

    >>> option_name(problem_named("RegallocEviction"))
    'regalloc-eviction'
    """
    return next((name for name, each in problems().items() if each is kind), kind.name)


def _lacks(kind: Any) -> str | None:
    if not isinstance(kind, type) or not issubclass(kind, Problem):
        return f"expected a subclass of mlgo_gym.problems.Problem, found {kind!r}"
    missing = [part for part in _PARTS if not hasattr(kind, part)]
    missing += sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        return f"{kind.__name__}: expected {', '.join(missing)}, found none"
    if kind.__dataclass_fields__ is Problem.__dataclass_fields__:
        return f"{kind.__name__}: expected a dataclass, found none"
    if kind.advice.element_count != 1 or np.dtype(kind.advice.dtype).kind not in "fiu":
        found = f"{kind.advice.type} {kind.advice.shape}"
        return f"{kind.__name__}: advice: expected one number, found {found}"
    if kind.default_policy not in kind.policies:
        expected, found = ", ".join(kind.policies), repr(kind.default_policy)
        return f"{kind.__name__}: default_policy: expected one of {expected}, found {found}"
    return None
