"""Several corpora as one: their modules under names of which there is one each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from corpus_tools.manifest import MANIFEST_NAME, Manifest, name_problem
from mlgo_gym.base import CorpusError
from mlgo_gym.corpus._corpus import Corpus, read_manifest
from mlgo_gym.corpus._packages import SPLITS, ModuleKey, Packages, corpus_info


@dataclass(frozen=True, slots=True)
class JoinedCorpora:
    """Several corpora as one; keys and, where a corpus records one, sides are by modules' names."""

    packages: Packages
    keys: Mapping[str, ModuleKey]
    sides: Mapping[ModuleKey, str]
    has_thinlto: bool
    global_command: tuple[str, ...] | None


def join_corpora(folders: Sequence[Path]) -> JoinedCorpora:
    """Open corpora; nothing but their manifests is read.

    A corpus whose ``corpus_info.json`` names a package is that package. Of several corpora, one
    that names none is a package too, called after its folder, and the package's name stands before
    those of its modules. A single one that names none is taken apart: the first part of a module's
    name is its package, ``.`` where there is no other.
    """
    if not folders:
        raise CorpusError("corpora: expected at least one folder, found none")
    is_single = len(folders) == 1
    manifests = [read_manifest(folder) for folder in folders]
    corpora: dict[ModuleKey, Corpus] = {}
    sides: dict[ModuleKey, str] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        _check_alike(folders[0], manifests[0], folder, manifest)
        corpus = Corpus(folder, manifest.modules, manifest.global_command_override)
        info = corpus_info(folder)
        for name in corpus:
            key = ModuleKey(_package(info.get("package"), folder, name if is_single else ""), name)
            if key in corpora:
                raise CorpusError(
                    f"module {str(key)!r}: expected in one corpus, found in "
                    f"{str(corpora[key].folder)!r} and {str(folder)!r}"
                )
            corpora[key] = corpus
            if info.get("split") in SPLITS:
                sides[key] = info["split"]
    keys = dict(sorted((key.name if is_single else str(key), key) for key in corpora))
    return JoinedCorpora(
        Packages({key: corpora[key] for key in keys.values()}),
        keys,
        sides,
        manifests[0].has_thinlto,
        manifests[0].global_command_override,
    )


def _package(recorded: object, folder: Path, name: str) -> str:
    """Return the name of a module's package; ``name`` is its own where the corpus is alone."""
    if isinstance(recorded, str) and "/" not in recorded and not name_problem(recorded):
        return recorded
    if name:
        return PurePosixPath(name).parts[0] if "/" in name else "."
    return folder.resolve().name


def _check_alike(folder: Path, manifest: Manifest, other: Path, found: Manifest) -> None:
    """Raise where two corpora cannot share one manifest."""
    for key in ("has_thinlto", "global_command_override"):
        if getattr(manifest, key) != getattr(found, key):
            raise CorpusError(
                f"corpus {str(other)!r}: expected {key} as in {str(folder)!r} "
                f"({json.dumps(getattr(manifest, key))}), found "
                f"{json.dumps(getattr(found, key))} in {MANIFEST_NAME}"
            )
