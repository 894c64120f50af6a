"""Packages: keys, what is read, what is held out, and what cannot be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import ModuleKey, Packages, corpus_folders, final_corpora
from mlgo_gym.errors import CorpusError, ModuleError, OptionsError

SIX = tuple("abcdef")


@pytest.fixture
def packages(sample: Corpus) -> Packages:
    """Modules of one name in two packages, and a package of one module."""
    pair = sample.only(("digest.c", "bignum.c"))
    return Packages.of({"one": pair, "two": pair, "single": sample.only(("scene.cpp",))})


def lettered(**packages: int) -> Packages:
    """Packages of so many modules, which nobody reads."""
    return Packages.of({name: Corpus(Path(), SIX[:count]) for name, count in packages.items()})


def keys(packages: Packages) -> list[str]:
    return list(map(str, packages))


def test_modules_are_found_by_package_and_name(packages: Packages, sample: Corpus) -> None:
    assert keys(packages) == [
        "one/digest.c", "one/bignum.c", "two/digest.c", "two/bignum.c", "single/scene.cpp"
    ]  # fmt: skip
    assert len(packages) == 5
    key = ModuleKey("two", "digest.c")
    assert (key in packages, ("two", "digest.c") in packages) == (True, True)
    assert (ModuleKey("single", "digest.c") in packages, "digest.c" in packages) == (False, False)
    assert packages[key] == sample["digest.c"]
    assert packages.size_bytes(key) == len(packages[key].data)
    assert list(packages.by_package) == ["one", "two", "single"]
    assert packages.by_package["two"] == (key, ModuleKey("two", "bignum.c"))


def test_what_packages_are_made_of(sample: Corpus, packages: Packages) -> None:
    assert Packages.of(packages) is packages
    alone = Packages.of(sample)
    assert [key.name for key in alone] == list(sample)
    assert {key.package for key in alone} == {""}
    assert keys(alone) == list(sample)


def test_some_of_them(packages: Packages, sample: Corpus) -> None:
    chosen = [ModuleKey("single", "scene.cpp"), ModuleKey("one", "bignum.c")]
    assert list(packages.only(chosen)) == chosen
    assert sample.only(["scene.cpp", "digest.c", "scene.cpp"]).names == ("scene.cpp", "digest.c")
    some = lettered(big=6, small=1).some_modules(3, seed=1)
    assert [len(each) for each in some.by_package.values()] == [3, 1]
    assert keys(some) == sorted(keys(some))
    assert keys(some) == keys(lettered(big=6, small=1).some_modules(3, seed=1))
    drawn = {tuple(lettered(big=6).some_modules(3, seed=seed)) for seed in range(9)}
    assert len(drawn) > 1


def test_two_modules_of_one_label(tmp_path: Path) -> None:
    """``a`` with ``b/digest.c`` and ``a/b`` with ``digest.c``: one of them would be lost."""
    (tmp_path / "b").mkdir()
    for folder in (tmp_path, tmp_path / "b"):
        shutil.copy(SAMPLE_CORPUS / "digest.c.bc", folder)
    outer, inner = Corpus(tmp_path, ("b/digest.c",)), Corpus(tmp_path / "b", ("digest.c",))
    with pytest.raises(CorpusError) as caught:
        Packages.of({"a": outer, "a/b": inner})
    assert str(caught.value) == (
        "packages 'a' and 'a/b': expected one module 'a/b/digest.c', found one in each; give one "
        "of their folders another name"
    )


def test_every_fourth_module_is_held_out() -> None:
    kept, held = lettered(a=6, b=3, c=1).hold_out()
    assert keys(held) == ["a/d", "b/c"]
    assert keys(kept) == ["a/a", "a/b", "a/c", "a/e", "a/f", "b/a", "b/b", "c/a"]


def test_packages_are_held_out_by_name() -> None:
    kept, held = lettered(a=1, b=1, c=2).hold_out(["c", "a", "c"])
    assert (keys(kept), keys(held)) == (["b/a"], ["c/a", "c/b", "a/a"])


def test_folders_are_packages_by_the_ends_that_tell_them_apart(tmp_path: Path) -> None:
    for place in ("x/corpus", "y/corpus", "y/other"):
        shutil.copytree(SAMPLE_CORPUS, tmp_path / place)
    for place, split in (("x/corpus", "train"), ("y/corpus", "test")):
        (tmp_path / place / "corpus_info.json").write_text(json.dumps({"split": split}))
    folders = [tmp_path / "x", tmp_path / "y"]
    found = Packages.load([*folders, SAMPLE_CORPUS])
    assert list(found.by_package) == ["x/corpus", "y/corpus", "other", "sample"]
    assert list(Packages.load(folders, "train").by_package) == ["corpus", "other"]
    assert corpus_folders(folders, "test") == [tmp_path / "y/corpus", tmp_path / "y/other"]


def test_the_last_split_is_looked_at_only_where_it_is_asked_for(tmp_path: Path) -> None:
    for name, split in (("a", "train"), ("b", "final"), ("c", "test"), ("d", None)):
        shutil.copytree(SAMPLE_CORPUS, tmp_path / name)
        (tmp_path / name / "corpus_info.json").write_text(json.dumps({"split": split}))
    assert [each.name for each in corpus_folders([tmp_path])] == ["a", "c", "d"]
    assert [each.name for each in corpus_folders([tmp_path], "final")] == ["b", "d"]
    assert corpus_folders([tmp_path / "b"]) == [tmp_path / "b"]
    assert final_corpora(Packages.load([tmp_path])) == []
    assert final_corpora(Packages.load([tmp_path, tmp_path / "b"])) == [tmp_path / "b"]


def unknown_module(sample: Corpus, _: Path) -> object:
    return Packages.of({"a": sample})[ModuleKey("b", "digest.c")]


def unknown_choice(sample: Corpus, _: Path) -> object:
    return Packages.of({"a": sample}).only([ModuleKey("a", "digest")])


def unknown_name(sample: Corpus, _: Path) -> object:
    return sample.only(["digest"])


def missing_module(sample: Corpus, _: Path) -> object:
    corpus = replace(sample, names=("gone.c",))
    return Packages.of({"a": corpus})[ModuleKey("a", "gone.c")]


def unknown_package(_: Corpus, __: Path) -> object:
    return lettered(a=3, b=3).hold_out(["a", "c"])


def nothing_kept(_: Corpus, __: Path) -> object:
    return lettered(a=3).hold_out(["a"])


def nothing_held(_: Corpus, __: Path) -> object:
    return lettered(a=1).hold_out()


def no_corpus(_: Corpus, folder: Path) -> object:
    return Packages.load([folder])


def other_split(_: Corpus, folder: Path) -> object:
    shutil.copytree(SAMPLE_CORPUS, folder / "corpus")
    (folder / "corpus/corpus_info.json").write_text('{"split": "test"}')
    return Packages.load([folder], "train")


def final_alone(_: Corpus, folder: Path) -> object:
    return Packages.load([last(folder).parent])


def final_held_out(_: Corpus, folder: Path) -> object:
    return Packages.load([SAMPLE_CORPUS, last(folder)]).hold_out(["sample"])


def last(folder: Path) -> Path:
    shutil.copytree(SAMPLE_CORPUS, folder / "last")
    (folder / "last/corpus_info.json").write_text('{"split": "final"}')
    return folder / "last"


def twice(_: Corpus, folder: Path) -> object:
    (folder / "again").symlink_to(SAMPLE_CORPUS)
    return Packages.load([SAMPLE_CORPUS, folder / "again"])


@pytest.mark.parametrize(
    ("attempt", "kind", "message"),
    [
        (
            unknown_module,
            CorpusError,
            "packages: expected one of their 22 modules, found 'b/digest.c'",
        ),
        (
            unknown_choice,
            CorpusError,
            "packages: expected one of their 22 modules, found 'a/digest'",
        ),
        (
            unknown_name,
            CorpusError,
            f"corpus {str(SAMPLE_CORPUS)!r}: expected one of its 22 modules, found 'digest'; did "
            "you mean 'digest.c'?",
        ),
        (
            missing_module,
            ModuleError,
            f"module 'gone.c': cannot read {str(SAMPLE_CORPUS / 'gone.c.bc')!r}: No such file or "
            "directory",
        ),
        (unknown_package, OptionsError, "hold-out: expected packages out of a, b, found 'c'"),
        (
            nothing_kept,
            OptionsError,
            "hold-out: expected modules to train on and modules to choose on, found 0 and 3",
        ),
        (
            nothing_held,
            OptionsError,
            "hold-out: expected modules to train on and modules to choose on, found 1 and 0",
        ),
        (
            no_corpus,
            CorpusError,
            "corpus '{folder}': expected corpus_description.json in it or in folders in it, found "
            "none; 'mlgo-gym corpus build' makes a corpus",
        ),
        (other_split, CorpusError, "corpora: expected some of the split 'train', found none"),
        (
            final_alone,
            CorpusError,
            "corpora: expected some of a split other than 'final', found none",
        ),
        (
            final_held_out,
            CorpusError,
            "corpus '{folder}/last': expected one of the split 'train' or 'test' to train and to "
            "choose on, found 'final', which is only evaluated on",
        ),
        (
            twice,
            OptionsError,
            f"expected different folders, found {str(SAMPLE_CORPUS)!r} more than once",
        ),
    ],
)
def test_what_cannot_be(
    sample: Corpus,
    tmp_path: Path,
    attempt: Callable[[Corpus, Path], object],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind) as caught:
        attempt(sample, tmp_path)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))
