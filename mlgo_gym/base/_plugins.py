"""Plug-ins: problems, measures, trainers and commands that other packages add by entry points.

A plug-in is loaded when somebody asks for it by name: a broken one fails for its own users alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module, metadata
from typing import Any, Final

from mlgo_gym.base._errors import EnvironmentSetupError

TAKEN: Final = "expected a name of its own, found that of another"
"""The fault of a plug-in whose name another one has."""


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group by name, those of `mlgo_gym` first; nothing is loaded."""
    try:
        found = metadata.entry_points(group=group)
    except OSError as error:
        raise EnvironmentSetupError(f"entry points {group}: cannot be read: {error}") from error
    return sorted(found, key=lambda each: (not each.value.startswith("mlgo_gym."), each.name))


def plugins(group: str, own: Collection[str]) -> Mapping[str, metadata.EntryPoint]:
    """Return the entry points that other packages add to a group, by name.

    Args:
        group: such as ``mlgo_gym.measures``.
        own: the names that `mlgo_gym` has; a plug-in of such a name is left out with a warning.
    """
    found: dict[str, metadata.EntryPoint] = {}
    for point in entry_points(group):
        if point.name in own or point.name in found:
            report(broken(point, TAKEN))
        else:
            found[point.name] = point
    return found


def load(point: metadata.EntryPoint, lacks: Callable[[Any], str | None], module: str = "") -> Any:
    """Load a plug-in.

    Args:
        point: where it is.
        lacks: says what is wrong with the loaded object; ``None`` if it is complete.
        module: a module to import instead, where the entry point's object names several.

    Raises:
        EnvironmentSetupError: it cannot be loaded, or lacks a part.
    """
    try:
        found = import_module(module) if module else point.load()
    except Exception as error:
        raise broken(point, f"cannot be loaded: {error}") from error
    if problem := lacks(found):
        raise broken(point, problem)
    return found


def missing_parts(found: Any, parts: Collection[str]) -> str | None:
    """Say which attributes an object lacks."""
    missing = [part for part in parts if not hasattr(found, part)]
    return f"expected {', '.join(missing)}, found none" if missing else None


def broken(point: metadata.EntryPoint, message: str) -> EnvironmentSetupError:
    """Return the error of a plug-in, which names its entry point and its distribution."""
    of = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return EnvironmentSetupError(f"entry point {point.name!r}{of} ({point.value}): {message}")


def report(error: EnvironmentSetupError) -> None:
    """Warn that a plug-in is left out."""
    warnings.warn(f"{error}; left out", RuntimeWarning, stacklevel=3)
