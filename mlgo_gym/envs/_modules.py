"""Where an environment's modules come from, and how likely each is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError
from mlgo_gym.corpus import (
    SAMPLE_CORPUS,
    SPLITS,
    Corpus,
    Packages,
    PackagesLike,
)

CorporaLike = PackagesLike
"""The modules of an environment: a corpus, corpora by name, folders of either, or `Packages`."""

Weights = str | Mapping[str, float]
"""How often each module is drawn: ``uniform``, ``size``, or by name, others never."""


def modules_of(given: object, split: str | None) -> Packages:
    """The modules of the corpora that are given.

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
    folders = [given] if isinstance(given, str | Path) else given
    if given is None:
        folders = [SAMPLE_CORPUS]
    if _are_folders(folders):
        return Packages.load(folders, split)
    if split is not None:
        raise OptionsError(f"split: expected folders of corpora to choose of, found {given!r}")
    if isinstance(given, Packages | Corpus | Mapping) and len(given):
        return Packages.of(given)
    expected = "a corpus, its folder, folders of corpora, corpora by name, or None"
    raise OptionsError(f"corpus: expected {expected}, found {given!r}")


def _are_folders(given: object) -> TypeGuard[Sequence[Path | str]]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return False
    return bool(given) and all(isinstance(each, str | Path) for each in given)


def weights_of(given: Weights, modules: Packages) -> NDArray[np.float64]:
    """How likely each module is drawn, in their order; the sum is 1.

    Raises:
        OptionsError: it is no name that is known, names a module that is not there, or a weight is
            no number of 0 or more, or all are 0.
    """
    names = modules.names
    if isinstance(given, str):
        if given not in ("uniform", "size"):
            raise OptionsError(f"weights: expected uniform, size or a mapping, found {given!r}")
        found = [1.0 if given == "uniform" else float(modules.size_bytes(key)) for key in modules]
    elif not isinstance(given, Mapping):
        raise OptionsError(f"weights: expected uniform, size or a mapping, found {given!r}")
    else:
        if unknown := [name for name in given if name not in modules]:
            raise OptionsError(f"weights: expected modules of the corpus, found {unknown[0]!r}")
        found = [float(given.get(name, 0.0)) for name in names]
    weights = np.array(found)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise OptionsError("weights: expected finite numbers of 0 or more, some above 0")
    return np.asarray(weights / weights.sum())
