"""Where an environment's modules come from: one corpus, or several as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import CorpusError, OptionsError
from mlgo_gym.corpus import (
    SAMPLE_CORPUS,
    SPLITS,
    Corpus,
    Module,
    ModuleKey,
    Packages,
    PackagesLike,
)

CorporaLike = PackagesLike
"""The modules of an environment: a corpus, corpora by name, folders of either, or `Packages`."""

Weights = str | Mapping[str, float]
"""How often each module is drawn: ``uniform``, ``size``, or by name, others never."""


class JoinedModules:
    """The modules of several corpora, each as ``PACKAGE/MODULE``; used as a `Corpus` is.

    Attributes:
        packages: where they are.
        names: of all modules, in order.

    >>> corpus = Corpus.load(SAMPLE_CORPUS)
    >>> joined = JoinedModules(Packages.of({"a": corpus, "b": corpus}))
    >>> len(joined), joined["b/digest.c"].name
    (44, 'b/digest.c')
    """

    def __init__(self, packages: Packages) -> None:
        self.packages: Final = packages
        self._keys = {packages.label(key): key for key in packages}
        self.names: Final = tuple(self._keys)

    @property
    def folder(self) -> str:
        """The folders of the corpora, as messages name them."""
        folders = dict.fromkeys(str(each.folder) for each in self.packages.named.values())
        return ", ".join(folders)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def key(self, name: str) -> ModuleKey:
        """The package of a module, and its name there.

        Raises:
            CorpusError: there is no such module.
        """
        if name not in self._keys:
            package, _, own = name.partition("/")
            corpora = self.packages.named
            if package in corpora:
                corpora[package].file(own)  # which says what it has
            known = ", ".join(corpora)
            raise CorpusError(f"module: expected PACKAGE/MODULE of {known}, found {name!r}")
        return self._keys[name]

    def size_bytes(self, name: str) -> int:
        """The size of a module's bitcode; 0 if it is missing."""
        return self.packages.size_bytes(self._keys[name])

    def __getitem__(self, name: str) -> Module:
        """Read a module.

        Raises:
            CorpusError: there is no such module.
            ModuleError: its files cannot be read.
        """
        return replace(self.packages[self.key(name)], name=name)


def modules_of(given: object, split: str | None) -> Corpus | JoinedModules:
    """The corpus that is given, or the modules of several.

    Args:
        given: as `CorporaLike`, or ``None`` for the sample corpus.
        split: leaves out corpora of another, ``train`` or ``test``; ``None`` takes all that are
            named, but of folders of corpora none of ``final``.

    Raises:
        CorpusError: a folder is no corpus and has none in it, or nothing is left.
        OptionsError: it is none of what is taken, or the split is none.
    """
    if split is not None and split not in SPLITS:
        raise OptionsError(f"split: expected one of {', '.join(SPLITS)}, found {split!r}")
    if isinstance(given, Corpus | JoinedModules) and split is None:
        return given
    folders = [given] if isinstance(given, str | Path) else given
    if given is None:
        folders = [SAMPLE_CORPUS]
    if _are_folders(folders):
        packages = Packages.load(folders, split)
    elif split is not None:
        raise OptionsError(f"split: expected folders of corpora to choose of, found {given!r}")
    else:
        packages = _packages(given)
    corpora = packages.named
    return JoinedModules(packages) if len(corpora) > 1 else next(iter(corpora.values()))


def _are_folders(given: object) -> TypeGuard[Sequence[Path | str]]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return False
    return bool(given) and all(isinstance(each, str | Path) for each in given)


def _packages(given: object) -> Packages:
    if isinstance(given, Packages | Mapping) and len(given):
        return Packages.of(given)
    expected = "a corpus, its folder, folders of corpora, corpora by name, or None"
    raise OptionsError(f"corpus: expected {expected}, found {given!r}")


def weights_of(given: Weights, modules: Corpus | JoinedModules) -> NDArray[np.float64]:
    """How likely each module is drawn, in their order; the sum is 1.

    Raises:
        OptionsError: it is no name that is known, names a module that is not there, or a weight is
            no number of 0 or more, or all are 0.
    """
    names = modules.names
    if isinstance(given, str):
        if given not in ("uniform", "size"):
            raise OptionsError(f"weights: expected uniform, size or a mapping, found {given!r}")
        found = [1.0 if given == "uniform" else float(modules.size_bytes(name)) for name in names]
    else:
        if unknown := [name for name in given if name not in modules]:
            raise OptionsError(f"weights: expected modules of the corpus, found {unknown[0]!r}")
        found = [float(given.get(name, 0.0)) for name in names]
    weights = np.array(found)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise OptionsError("weights: expected finite numbers of 0 or more, some above 0")
    return np.asarray(weights / weights.sum())
