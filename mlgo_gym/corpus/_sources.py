"""Several corpora as one: their modules under names of which there is one each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import MANIFEST_NAME, Manifest, name_problem
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.staging import INFO_NAME
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CorpusError
from mlgo_gym.files import read_json

SIDES: Final = ("train", "test")
"""What a split makes, and what a recipe may say of its package."""


@dataclass(frozen=True, slots=True)
class SourceModule:
    """A module of one of several corpora.

    Attributes:
        name: what it is called among all.
        corpus: where it is.
        own_name: what it is called there.
        package: the package that it belongs to.
        recorded_side: the side that its corpus says it is for, where it says so.
    """

    name: str
    corpus: Corpus
    own_name: str
    package: str
    recorded_side: str | None

    @property
    def bitcode_bytes(self) -> int:
        """The size of its bitcode."""
        return (self.corpus.folder / f"{self.own_name}.bc").stat().st_size


@dataclass(frozen=True, slots=True)
class JoinedCorpora:
    """Several corpora as one.

    Attributes:
        modules: by name, in alphabetical order.
        has_thinlto: whether they were made for ThinLTO.
        global_command: the command line that stands for every module's own, if there is one.
    """

    modules: dict[str, SourceModule]
    has_thinlto: bool
    global_command: tuple[str, ...] | None


def join_corpora(folders: Sequence[Path]) -> JoinedCorpora:
    """Open corpora; nothing but their manifests is read.

    A corpus whose ``corpus_info.json`` names a package is that package. Of several corpora, one
    that names none is a package too, called after its folder. A single one that names none is
    taken apart: the first part of a module's name is its package, ``.`` where there is no other.

    Raises:
        CorpusError: no corpus is given, one cannot be used, they differ in what holds for all
            modules, or two modules get the same name.
    """
    if not folders:
        raise CorpusError("corpora: expected at least one folder, found none")
    corpora = [_Source(folder, is_single=len(folders) == 1) for folder in folders]
    first = corpora[0]
    modules: dict[str, SourceModule] = {}
    for corpus in corpora:
        _check_alike(first, corpus)
        for module in corpus.modules():
            if (other := modules.get(module.name)) is not None:
                raise CorpusError(
                    f"module {module.name!r}: expected in one corpus, found in "
                    f"{str(other.corpus.folder)!r} and {str(corpus.folder)!r}"
                )
            modules[module.name] = module
    return JoinedCorpora(
        dict(sorted(modules.items())),
        first.manifest.has_thinlto,
        first.manifest.global_command_override,
    )


class _Source:
    def __init__(self, folder: Path, *, is_single: bool) -> None:
        self.folder = folder
        self.is_single = is_single
        try:
            self.manifest = Manifest.read(folder)
        except CorpusToolsError as error:
            raise CorpusError(str(error)) from error
        if not self.manifest.modules:
            raise CorpusError(f"corpus {str(folder)!r}: expected at least one module, found none")
        self._info = _read_info(folder / INFO_NAME)

    def modules(self) -> list[SourceModule]:
        corpus = Corpus(self.folder, self.manifest.modules, self.manifest.global_command_override)
        side = self._info.get("split")
        recorded = side if side in SIDES else None
        return [
            SourceModule(self._name(name), corpus, name, self._package(name), recorded)
            for name in corpus
        ]

    def _package(self, name: str) -> str:
        if self._recorded_package:
            return self._recorded_package
        if self.is_single:
            return PurePosixPath(name).parts[0] if "/" in name else "."
        return self.folder.resolve().name

    @property
    def _recorded_package(self) -> str | None:
        package = self._info.get("package")
        if isinstance(package, str) and "/" not in package and not name_problem(package):
            return package
        return None

    def _name(self, name: str) -> str:
        return name if self.is_single else f"{self._package(name)}/{name}"


def _read_info(path: Path) -> dict[str, Any]:
    """What a corpus says of its origin; empty where it says nothing that can be read."""
    try:
        info = read_json(path, LARGEST_TEXT_BYTES)
    except OSError:
        return {}
    return info if isinstance(info, dict) else {}


def _check_alike(first: _Source, other: _Source) -> None:
    """Raise where two corpora cannot share one manifest."""
    for key in ("has_thinlto", "global_command_override"):
        if (wanted := getattr(first.manifest, key)) != (found := getattr(other.manifest, key)):
            raise CorpusError(
                f"corpus {str(other.folder)!r}: expected {key} as in {str(first.folder)!r} "
                f"({json.dumps(wanted)}), found {json.dumps(found)} in {MANIFEST_NAME}"
            )
