"""Which problems there are: the entry points of the group ``mlgo_gym.problems``.

A package of anybody's adds one by an entry point; the name is what the command line calls it::

    [project.entry-points."mlgo_gym.problems"]
    my-problem = "my_package:MyProblem"

`mlgo_gym` declares its own in the same way, and asks for them by no other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib import metadata
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.problems._problem import Problem

GROUP: Final = "mlgo_gym.problems"
DEFAULT: Final = "inlining-for-size"
"""What commands and functions take where no problem is named."""

_OWN: Final = "mlgo_gym.problems"
_PARTS: Final = ("name", "features", "extras", "advice", "policies", "default_policy", "measure")


def entry_points() -> tuple[metadata.EntryPoint, ...]:
    """The entry points, the package's own first; nothing is loaded."""
    try:
        found = metadata.entry_points(group=GROUP)
    except OSError as error:
        raise EnvironmentSetupError(f"entry points {GROUP}: cannot be read: {error}") from error
    return tuple(sorted(found, key=lambda each: (each.module != _OWN, each.name)))


@functools.cache
def problems() -> Mapping[str, type[Problem]]:
    """The problems by the names that the command line calls them.

    Raises:
        EnvironmentSetupError: a package's problem cannot be loaded, lacks a part, has the name of
            another, or an advice that cannot be; the message names its entry point.

    >>> list(problems())[0]
    'inlining-for-size'
    """
    known: dict[str, type[Problem]] = {}
    for point in entry_points():
        kind = _loaded(point)
        if point.name in known:
            raise _error(point, "expected a name of its own, found that of another entry point")
        if kind.name in {each.name for each in known.values()}:
            raise _error(point, f"expected a problem of another name, found {kind.name!r} twice")
        known[point.name] = kind
    return MappingProxyType(known)


def problem_named(name: str) -> type[Problem]:
    """The problem of a name: the command line's, or the one on model cards and in records.

    Raises:
        OptionsError: there is none; the message names those there are.

    >>> problem_named("inlining-for-size") is problem_named("InliningForSize")
    True
    """
    known = dict(problems())
    known |= {kind.name: kind for kind in problems().values()}
    if name not in known:
        raise OptionsError(f"problem: expected one of {', '.join(problems())}, found {name!r}")
    return known[name]


def option_name(kind: type[Problem]) -> str:
    """What the command line calls a problem.

    >>> option_name(problem_named("RegallocEviction"))
    'regalloc-eviction'
    """
    return next((name for name, each in problems().items() if each is kind), kind.name)


def _loaded(point: metadata.EntryPoint) -> type[Problem]:
    try:
        kind: Any = point.load()
    except Exception as error:
        raise _error(point, f"cannot be loaded: {error}") from error
    has_fields = is_dataclass(kind)
    if not isinstance(kind, type) or not issubclass(kind, Problem):
        raise _error(point, f"expected a subclass of mlgo_gym.problems.Problem, found {kind!r}")
    missing = [part for part in _PARTS if not hasattr(kind, part)]
    missing += sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise _error(point, f"{kind.__name__}: expected {', '.join(missing)}, found none")
    if not has_fields:
        raise _error(point, f"{kind.__name__}: expected a dataclass, found none")
    if kind.advice.element_count != 1 or np.dtype(kind.advice.dtype).kind not in "fiu":
        found = f"{kind.advice.type} {kind.advice.shape}"
        raise _error(point, f"{kind.__name__}: advice: expected one number, found {found}")
    if kind.default_policy not in kind.policies:
        raise _error(
            point,
            f"{kind.__name__}: default_policy: expected one of {', '.join(kind.policies)}, "
            f"found {kind.default_policy!r}",
        )
    return kind


def _error(point: metadata.EntryPoint, message: str) -> EnvironmentSetupError:
    return EnvironmentSetupError(f"entry point {point.name!r} ({point.value}): {message}")
