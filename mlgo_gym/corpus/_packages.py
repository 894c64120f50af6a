"""Packages: modules of several corpora, by package and name, and which of them are held out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from corpus_tools.manifest import MANIFEST_NAME, name_problem
from corpus_tools.printable import listed
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.staging import INFO_NAME
from mlgo_gym.base import CorpusError, OptionsError, read_json
from mlgo_gym.corpus._corpus import (
    SAMPLE_CORPUS,
    Corpus,
    Module,
    ModuleFile,
    local_corpora,
    read_manifest,
)

FINAL: Final = "final"
SPLITS: Final = ("train", "test", FINAL)
"""The splits of recipes: to train policies on, to choose them by, and to test them on once."""

_EVERY: Final = 4
_SAMPLE: Final = "sample"


class ModuleKey(NamedTuple):
    """A module of a package.

    >>> str(ModuleKey("lupa", "src/lapi.c")), str(ModuleKey("", "lapi.c"))
    ('lupa/src/lapi.c', 'lapi.c')
    """

    package: str
    name: str

    def __str__(self) -> str:
        return "/".join(filter(None, self))


@dataclass(frozen=True)
class Packages:
    """Modules of packages; they are read when they are asked for.

    Iterating yields their keys, in order; ``packages[key]`` reads a module, ``packages[label]``
    reads one and calls it so.

    Attributes:
        corpora: where each module is.

    Raises:
        CorpusError: two modules have one label.

    >>> packages = Packages.of({"sample": Corpus.load(SAMPLE_CORPUS)})
    >>> key = ModuleKey("sample", "digest.c")
    >>> key in packages, packages[key].name, packages.size_bytes(key) > 1000
    (True, 'digest.c', True)
    """

    corpora: Mapping[ModuleKey, Corpus]

    def __post_init__(self) -> None:
        labels: dict[str, ModuleKey] = {}
        for key in self:
            first = labels.setdefault(self.label(key), key)
            if first != key:
                raise CorpusError(
                    f"packages {first.package!r} and {key.package!r}: expected one module "
                    f"{str(key)!r}, found one in each; give one of their folders another name"
                )

    @classmethod
    def of(cls, given: PackagesLike) -> Packages:
        """Packages, of corpora by their names, of folders (`load`), or of one corpus, then ``""``.

        Raises:
            CorpusError: a folder is no corpus and has none in it.
            OptionsError: a corpus is given twice.
        """
        if isinstance(given, Packages):
            return given
        if not isinstance(given, Mapping | Corpus):
            return cls.load([given] if isinstance(given, Path | str) else given)
        named = {"": given} if isinstance(given, Corpus) else given
        return cls(
            {
                ModuleKey(package, name): corpus
                for package, corpus in named.items()
                for name in corpus
            }
        )

    @classmethod
    def load(
        cls, folders: Sequence[Path | str], split: str | None = None, *, allow_thinlto: bool = False
    ) -> Packages:
        """The corpora of folders, by the shortest ends of their paths that tell them apart.

        Args:
            folders: corpora, and folders of corpora, by path or URI.
            split: leave out those that ``corpus_info.json`` says are of another split; ``None``
                takes those of ``final`` only where they are named themselves.
            allow_thinlto: take those that were made for ThinLTO too.

        Raises:
            CorpusError: a folder is no corpus and has none in it, or nothing is left.
            OptionsError: a corpus is given twice.
        """
        found = corpus_folders(folders, split)
        names = shortest_names(found)
        if SAMPLE_CORPUS in names:
            names[SAMPLE_CORPUS] = _SAMPLE
        return cls.of(
            {names[each]: Corpus.load(each, allow_thinlto=allow_thinlto) for each in found}
        )

    def __len__(self) -> int:
        return len(self.corpora)

    def __iter__(self) -> Iterator[ModuleKey]:
        return iter(self.corpora)

    def __contains__(self, key: object) -> bool:
        return key in (self._keys if isinstance(key, str) else self.corpora)

    def __getitem__(self, key: ModuleKey | str) -> Module:
        """Read a module, by its key or its label.

        Raises:
            CorpusError: there is no such module.
            ModuleError: its files cannot be read, or its command line is not one of ``-cc1``.
        """
        if isinstance(key, str):
            return replace(self[self.key(key)], name=key)
        return self._corpus(key)[key.name]

    def file(self, key: ModuleKey) -> ModuleFile:
        """A module that is yet to be read, by whoever compiles it.

        Raises:
            CorpusError: there is no such module.
        """
        return self._corpus(key).file(key.name)

    def keyed(self, key: ModuleKey) -> tuple[ModuleKey, ModuleFile]:
        """The key, and the same."""
        return key, self.file(key)

    def size_bytes(self, key: ModuleKey) -> int:
        """The size of a module's bitcode, about what it takes to compile it; 0 if it is missing."""
        return self._corpus(key).size_bytes(key.name)

    @cached_property
    def by_package(self) -> Mapping[str, tuple[ModuleKey, ...]]:
        """The modules of each package, in order."""
        found: dict[str, list[ModuleKey]] = {}
        for key in self:
            found.setdefault(key.package, []).append(key)
        return {package: tuple(keys) for package, keys in found.items()}

    @property
    def named(self) -> dict[str, Corpus]:
        """The corpora by the names of their packages, each with the modules that are here."""
        return {
            package: self.corpora[keys[0]].only(key.name for key in keys)
            for package, keys in self.by_package.items()
        }

    def label(self, key: ModuleKey) -> str:
        """Return a module's name where all are shown or written: ``PACKAGE/MODULE``.

        Where there is but one corpus, the module's own name.
        """
        return key.name if self._is_single else str(key).lstrip("/")

    @cached_property
    def _is_single(self) -> bool:
        return len({(key.package, each.folder) for key, each in self.corpora.items()}) == 1

    @cached_property
    def _keys(self) -> Mapping[str, ModuleKey]:
        return {self.label(key): key for key in self}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The labels of all modules, in order."""
        return tuple(self._keys)

    @property
    def folder(self) -> str:
        """The folders of the corpora, as messages name them."""
        return ", ".join(dict.fromkeys(str(each.folder) for each in self.corpora.values()))

    def key(self, label: str) -> ModuleKey:
        """The key of the module of a label.

        Raises:
            CorpusError: there is no such module.
        """
        if label not in self._keys:
            corpora = self.named
            package, _, name = label.partition("/")
            if len(corpora) == 1:
                (package,), name = corpora, label
            if package in corpora:
                corpora[package].file(name)  # which says what it has
            known = ", ".join(corpora)
            raise CorpusError(f"module: expected PACKAGE/MODULE of {known}, found {label!r}")
        return self._keys[label]

    def only(self, keys: Iterable[ModuleKey]) -> Packages:
        """Some of the modules, in the order given.

        Raises:
            CorpusError: there is no such module.
        """
        return Packages({key: self._corpus(key) for key in keys})

    def some_modules(self, most: int, seed: int) -> Packages:
        """Some modules of each package, so that large ones do not take all the time.

        Args:
            most: modules of a package.
            seed: decides which.
        """
        import numpy as np  # noqa: PLC0415 (slow to import)

        chosen: list[ModuleKey] = []
        for package, keys in self.by_package.items():
            generator = np.random.default_rng([seed, *package.encode()])
            indices = generator.permutation(len(keys))[:most].tolist()
            chosen += (keys[index] for index in sorted(indices))
        return self.only(chosen)

    def hold_out(self, names: Sequence[str] = ()) -> tuple[Packages, Packages]:
        """Modules to train on, and modules to choose on.

        Args:
            names: which packages are held out; none holds out every fourth module of each package,
                the last where there are fewer.

        Returns:
            Those to train on, and those held out.

        Raises:
            CorpusError: a package is of the split ``final``.
            OptionsError: there is no such package, or nothing is left on a side.
        """
        check_not_final(self, "to train and to choose on")
        known = self.by_package
        if unknown := [name for name in names if name not in known]:
            raise OptionsError(
                f"hold-out: expected packages out of {listed(known, unknown[0])}, "
                f"found {unknown[0]!r}"
            )
        parts = [known[name] for name in dict.fromkeys(names)]
        if not names:
            parts = [keys[_EVERY - 1 :: _EVERY] or keys[1:][-1:] for keys in known.values()]
        held = self.only(key for keys in parts for key in keys)
        kept = self.only(key for key in self if key not in held)
        if not kept or not held:
            raise OptionsError(
                f"hold-out: expected modules to train on and modules to choose on, found "
                f"{len(kept)} and {len(held)}"
            )
        return kept, held

    def _corpus(self, key: ModuleKey) -> Corpus:
        if key not in self.corpora:
            raise CorpusError(
                f"packages: expected one of their {len(self)} modules, found {str(key)!r}"
            )
        return self.corpora[key]


PackagesLike = Packages | Mapping[str, Corpus] | Corpus | Path | str | Sequence[Path | str]
"""Packages, or what becomes some: corpora by name, one corpus, and folders."""


def join_corpora(folders: Sequence[Path]) -> Packages:
    """Open corpora that are to become others, by their labels; only their manifests are read.

    A corpus is the package that its ``corpus_info.json`` names. Of several corpora, one that names
    none is called after its folder.

    Raises:
        CorpusError: there is none, a manifest cannot be used, two cannot share one, or a module is
            there twice.
    """
    corpora: dict[ModuleKey, Corpus] = {}
    for folder in folders:
        found = read_manifest(folder)
        corpus = Corpus(folder, found.modules, found.global_command_override, found.has_thinlto)
        _check_alike(next(iter(corpora.values()), corpus), corpus)
        package = corpus_info(folder).get("package")
        if not isinstance(package, str) or "/" in package or name_problem(package):
            package = folder.resolve().name if len(folders) > 1 else ""
        for key in (ModuleKey(package, name) for name in corpus):
            if key in corpora:
                raise CorpusError(
                    f"module {str(key)!r}: expected in one corpus, found in "
                    f"{str(corpora[key].folder)!r} and {str(folder)!r}"
                )
            corpora[key] = corpus
    if not corpora:
        raise CorpusError("corpora: expected at least one folder, found none")
    joined = Packages(corpora)
    return joined.only(sorted(joined, key=joined.label))


def _check_alike(corpus: Corpus, other: Corpus) -> None:
    """Raise where two corpora cannot share one manifest."""
    keys = {"has_thinlto": "has_thinlto", "global_command_override": "global_command"}
    for key, name in keys.items():
        expected, found = getattr(corpus, name), getattr(other, name)
        if expected != found:
            raise CorpusError(
                f"corpus {str(other.folder)!r}: expected {key} as in {str(corpus.folder)!r} "
                f"({json.dumps(expected)}), found {json.dumps(found)} in {MANIFEST_NAME}"
            )


def corpus_folders(folders: Sequence[Path | str], split: str | None = None) -> list[Path]:
    """Corpora, of folders without a manifest those in them, but for those of another split.

    Without a split, what a folder has of `FINAL` is left out: nobody looks at it by accident.
    """
    found: list[Path] = []
    for folder in map(local_corpora, folders):
        if (folder / MANIFEST_NAME).exists():
            inside = [folder]
        else:
            inside = sorted(each.parent for each in folder.glob(f"*/{MANIFEST_NAME}"))
        if not inside:
            raise CorpusError(
                f"corpus {str(folder)!r}: expected {MANIFEST_NAME} in it or in folders in it, "
                "found none; 'mlgo-gym corpus build' makes a corpus"
            )
        found += [each for each in inside if each == folder or split or split_of(each) != FINAL]
    chosen = [each for each in found if split is None or split_of(each) in {None, split}]
    if not chosen:
        wanted = f"the split {split!r}" if split else f"a split other than {FINAL!r}"
        raise CorpusError(f"corpora: expected some of {wanted}, found none")
    return chosen


def final_corpora(packages: Packages) -> list[Path]:
    """The folders of the corpora that are of the split `FINAL`."""
    folders = dict.fromkeys(corpus.folder for corpus in packages.corpora.values())
    return [folder for folder in folders if split_of(folder) == FINAL]


def check_not_final(packages: Packages, what: str) -> None:
    """See that nothing is done with corpora of the split `FINAL` but to evaluate on them.

    Raises:
        CorpusError: naming the first of them, and what was to be done.
    """
    for folder in final_corpora(packages):
        raise CorpusError(
            f"corpus {str(folder)!r}: expected one of the split 'train' or 'test' {what}, found "
            f"{FINAL!r}, which is only evaluated on"
        )


def shortest_names(paths: Sequence[Path], taken: Collection[str] = ()) -> dict[Path, str]:
    """The shortest ends of paths that tell them apart, other than the names that are taken.

    >>> list(shortest_names([Path("runs/a/model"), Path("runs/b/model")]).values())
    ['a/model', 'b/model']
    """
    resolved = [path.resolve() for path in paths]
    names = {}
    for path, full in zip(paths, resolved, strict=True):
        if resolved.count(full) > 1:
            raise OptionsError(f"expected different folders, found {str(path)!r} more than once")
        ends = (full.parts[-length:] for length in range(1, len(full.parts) + 1))
        names[path] = next(
            name
            for end in ends
            if (name := str(Path(*end))) not in taken
            and sum(each.parts[-len(end) :] == end for each in resolved) == 1
        )
    return names


def corpus_info(folder: Path) -> dict[str, Any]:
    """Return a corpus's record of its origin; empty where there is none that can be read."""
    try:
        info = read_json(folder / INFO_NAME, LARGEST_TEXT_BYTES)
    except OSError:
        return {}
    return info if isinstance(info, dict) else {}


def split_of(folder: Path) -> str | None:
    """The split that a corpus says it is of, if any."""
    split = corpus_info(folder).get("split")
    return split if isinstance(split, str) else None
