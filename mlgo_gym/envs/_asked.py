"""What the options of ``reset`` ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError


@dataclass(frozen=True, slots=True)
class Asked:
    """What ``reset`` is asked for; where it is ``None``, what comes next.

    Attributes:
        module: a module, of the corpus or any other.
        function: the name of a function.
    """

    module: Module | None = None
    function: str | None = None


def asked_for(options: Mapping[str, Any], known: Sequence[str], corpus: Corpus) -> Asked:
    """Read the options of ``reset``.

    Args:
        options: ``module``, a name in the corpus or a module, and ``function``, a name.
        known: those of the two that may be there.
        corpus: where modules are asked for by name.

    Raises:
        OptionsError: an option is unknown, or is not what it should be.
        CorpusError: the corpus has no such module.
        ModuleError: its files cannot be read.
    """
    unknown = set(options) - set(known)
    if unknown:
        expected = ", ".join(f"{name!r}" for name in known)
        raise OptionsError(f"reset options: expected only {expected}, found {sorted(unknown)}")
    module, function = options.get("module"), options.get("function")
    if not isinstance(module, str | Module | None):
        raise OptionsError(f"reset options: expected a module or its name, found {module!r}")
    if not isinstance(function, str | None):
        raise OptionsError(f"reset options: expected a function's name, found {function!r}")
    return Asked(corpus[module] if isinstance(module, str) else module, function)
