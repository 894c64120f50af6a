"""Packages: the corpora that commands are given, by name, and which of them are held out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from corpus_tools.manifest import MANIFEST_NAME
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.staging import INFO_NAME
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import CorpusError, OptionsError
from mlgo_gym.files import read_json

SPLITS: Final = ("train", "test")
"""What recipes say of themselves: whether policies may be trained on them."""

_EVERY: Final = 4
_SAMPLE: Final = "sample"


def corpus_folders(folders: Sequence[Path], split: str | None = None) -> list[Path]:
    """Corpora, where a folder without a manifest stands for the corpora in it.

    Args:
        folders: corpora and folders of corpora.
        split: leave out those that ``corpus_info.json`` says are of the other split.

    Raises:
        CorpusError: a folder is no corpus and has none in it, or nothing is left.
    """
    found: list[Path] = []
    for folder in folders:
        if (folder / MANIFEST_NAME).exists():
            inside = [folder]
        else:
            inside = sorted(each.parent for each in folder.glob(f"*/{MANIFEST_NAME}"))
        if not inside:
            raise CorpusError(
                f"corpus {str(folder)!r}: expected {MANIFEST_NAME} in it or in folders in it, "
                "found none; 'mlgo-gym corpus build' makes a corpus"
            )
        found += inside
    chosen = [each for each in found if split is None or _split_of(each) in {None, split}]
    if not chosen:
        raise CorpusError(f"corpora: expected some of the split {split!r}, found none")
    return chosen


def load_packages(folders: Sequence[Path], *, allow_thinlto: bool = False) -> dict[str, Corpus]:
    """Corpora by the names of their packages, which are the shortest ends that tell them apart.

    Args:
        folders: each is the corpus of one package.
        allow_thinlto: take those that were made for ThinLTO too.

    Raises:
        CorpusError: a folder is no corpus.
        OptionsError: a folder is given twice.
    """
    names = shortest_names(folders)
    if SAMPLE_CORPUS in names:
        names[SAMPLE_CORPUS] = _SAMPLE
    return {names[each]: Corpus.load(each, allow_thinlto=allow_thinlto) for each in folders}


def packages_at(corpora: Sequence[Path | str] | Mapping[str, Corpus]) -> dict[str, Corpus]:
    """Corpora by the names of their packages, from their folders or from folders of them.

    Raises:
        CorpusError: a folder is no corpus and has none in it.
        OptionsError: one is given twice.

    >>> list(packages_at([SAMPLE_CORPUS]))
    ['sample']
    """
    if isinstance(corpora, Mapping):
        return dict(corpora)
    return load_packages(corpus_folders([Path(each) for each in corpora]))


def shortest_names(paths: Sequence[Path], taken: Collection[str] = ()) -> dict[Path, str]:
    """The shortest ends of paths that tell them apart.

    Args:
        paths: of files or folders.
        taken: names that none of them gets.

    Raises:
        OptionsError: one is there twice.

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


def hold_out(
    packages: Mapping[str, Corpus], names: Sequence[str]
) -> tuple[dict[str, Corpus], dict[str, Corpus]]:
    """Packages to train on, and packages to choose on.

    Args:
        packages: corpora by the names of their packages.
        names: which packages are held out; none holds out every fourth module of each package,
            the last where there are fewer.

    Returns:
        The packages to train on, and those held out.

    Raises:
        OptionsError: there is no such package, or nothing is left on a side.

    >>> kept, held_out = hold_out({"sample": Corpus.load(SAMPLE_CORPUS)}, [])
    >>> len(kept["sample"]), len(held_out["sample"])
    (17, 5)
    """
    if unknown := [name for name in names if name not in packages]:
        raise OptionsError(
            f"hold-out: expected packages out of {', '.join(packages)}, found {unknown[0]!r}"
        )
    if names:
        kept = {name: each for name, each in packages.items() if name not in names}
        held = {name: packages[name] for name in dict.fromkeys(names)}
    else:
        kept, held = {}, {}
        for name, corpus in packages.items():
            modules = corpus.names[_EVERY - 1 :: _EVERY] or corpus.names[1:][-1:]
            rest = tuple(each for each in corpus.names if each not in modules)
            if modules:
                held[name] = replace(corpus, names=modules)
            kept[name] = replace(corpus, names=rest)
    if not kept or not held:
        raise OptionsError(
            f"hold-out: expected modules to train on and modules to choose on, found "
            f"{sum(map(len, kept.values()))} and {sum(map(len, held.values()))}"
        )
    return kept, held


def _split_of(folder: Path) -> str | None:
    try:
        info = read_json(folder / INFO_NAME, LARGEST_TEXT_BYTES)
    except OSError:
        return None
    split = info.get("split") if isinstance(info, dict) else None
    return split if isinstance(split, str) else None
