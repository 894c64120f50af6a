"""Splits: what goes where, what stays together, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_tools.errors import OutputError
from corpus_tools.manifest import Manifest
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import join_corpora
from mlgo_gym.curation._facts import ModuleFacts
from mlgo_gym.curation._split import (
    Split,
    check_split_output,
    joined,
    near_duplicates,
    split_corpora,
    write_split,
)
from mlgo_gym.curation._split_options import SplitOptions
from mlgo_gym.errors import CorpusError, OptionsError
from mlgo_gym.llvm.text._fingerprint import Body
from mlgo_gym.llvm.text._profile import Profile
from tests.curation.make import make_corpus, program

BY_MODULE = SplitOptions(by="module")
NO_PROFILE = Profile(None, 0, 0, 0)
LETTERS = "abcdefghij"


def names(split: Split) -> dict[str, tuple[str, ...]]:
    return {side: split.modules(side) for side in ("train", "test")}


def split_modules(folder: Path, options: SplitOptions = BY_MODULE) -> Split:
    return split_corpora(join_corpora([folder]), options)


def packages(folder: Path, **modules: bytes) -> list[Path]:
    return [make_corpus(folder / name, {"m": data}) for name, data in modules.items()]


def test_the_fraction_is_of_the_bytes(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "in", {letter: program(letter) for letter in LETTERS})
    for fraction, count in ((0.01, 1), (0.2, 2), (0.5, 5), (0.9, 9)):
        split = split_modules(folder, replace(BY_MODULE, test_fraction=fraction))
        assert len(split.modules("test")) == count
        assert sorted(split.modules("train") + split.modules("test")) == list(LETTERS)
        assert (split.own_overlap, split.overlap) == (0, 0)


@pytest.mark.parametrize("side", [None, "test"])
def test_what_is_free_is_not_all_tested_on(tmp_path: Path, side: str | None) -> None:
    """Although that is nearer to the fraction, in whatever order they come."""
    folders = [
        make_corpus(tmp_path / "a", {"m": program(*LETTERS)}, info={"split": side or "none"}),
        make_corpus(tmp_path / "b", {"m": program("z")}),
    ]
    for seed in range(5):
        options = SplitOptions(test_fraction=0.99, seed=seed)
        split = split_corpora(join_corpora(folders), options)
        assert names(split) == {"train": ("b/m",), "test": ("a/m",)}


@pytest.mark.e2e
def test_the_seed_decides_and_the_order_of_the_input_does_not(tmp_path: Path) -> None:
    data = {letter: program(letter) for letter in LETTERS}
    one = make_corpus(tmp_path / "one", data)
    other = make_corpus(tmp_path / "other", dict(reversed(data.items())))
    found = set()
    for seed in range(5):
        options = replace(BY_MODULE, seed=seed)
        assert names(split_modules(one, options)) == names(split_modules(other, options))
        found.add(split_modules(one, options).modules("test"))
    assert len(found) > 1


def test_folders_may_come_in_any_order(tmp_path: Path) -> None:
    folders = packages(tmp_path, a=program("a"), b=program("b"), c=program("c"))
    forth = split_corpora(join_corpora(folders), SplitOptions())
    back = split_corpora(join_corpora(folders[::-1]), SplitOptions(), jobs=2)
    assert names(forth) == names(back)


def test_near_duplicates_stay_together(tmp_path: Path) -> None:
    """``b`` has half of ``a``'s code and half of ``c``'s: all three are one group."""
    data = {"a": ("x",), "b": ("x", "y"), "c": ("y",), "d": ("z",), "e": ("w",)}
    folder = make_corpus(tmp_path / "in", {name: program(*tags) for name, tags in data.items()})
    for seed in range(4):
        split = split_modules(folder, replace(BY_MODULE, seed=seed))
        (group,) = split.merged_groups
        assert group.units == ("a", "b", "c")
        assert [(each.first, each.second) for each in split.near_duplicates] == [
            ("a", "b"),
            ("b", "c"),
        ]
        assert {each.similarity for each in split.near_duplicates} == {1.0}
        assert split.own_overlap == 0


@pytest.mark.parametrize(("threshold", "pairs"), [(0.5, 1), (0.51, 0), (1.0, 0)])
def test_the_threshold_is_a_share_of_the_smaller_module(
    tmp_path: Path, threshold: float, pairs: int
) -> None:
    data = {"a": program("x", "y"), "b": program("x", "z", "w"), "c": program("v")}
    folder = make_corpus(tmp_path / "in", data)
    split = split_modules(folder, replace(BY_MODULE, similarity=threshold, test_fraction=0.5))
    assert len(split.near_duplicates) == pairs


def test_what_comes_with_headers_joins_nothing(tmp_path: Path) -> None:
    data = {letter: program(letter, header=6) for letter in LETTERS}
    split = split_modules(make_corpus(tmp_path / "in", data))
    assert not split.near_duplicates
    # Six of eight functions of each module are the headers'.
    assert (split.own_overlap, split.overlap) == (0, 0.75)


@pytest.mark.parametrize(("count", "groups"), [(64, 1), (65, 65)])
def test_what_very_many_modules_have_joins_nothing(count: int, groups: int) -> None:
    """Each has a body of its own, and three that all have."""
    common = [Body("c", f"common {n}", 20, is_own=True) for n in range(3)]
    facts = {
        str(n): ModuleFacts(
            str(n), "", (*common, Body("o", f"own {n}", 20, is_own=True)), NO_PROFILE, None
        )
        for n in range(count)
    }
    pairs = near_duplicates(facts, {name: name for name in facts}, 0.4)
    assert len(joined(facts, ((pair.first, pair.second) for pair in pairs))) == groups


def test_any_number_of_copies_stay_together() -> None:
    body = Body("f", "same", 20, is_own=True)
    facts = {str(n): ModuleFacts(str(n), "", (body,), NO_PROFILE, None) for n in range(200)}
    pairs = near_duplicates(facts, {name: name for name in facts}, 0.4)
    assert {(pair.first, pair.similarity) for pair in pairs} == {("0", 1.0)}
    assert len(pairs) == 199


def test_the_overlap_that_remains_is_reported(tmp_path: Path) -> None:
    data = {letter: program(letter, letter * 2 + "x", shared=1) for letter in LETTERS}
    split = split_modules(make_corpus(tmp_path / "in", data))
    assert not split.merged_groups
    assert split.own_overlap == split.overlap == pytest.approx(1 / 5)


def test_packages_stay_whole(tmp_path: Path) -> None:
    folders = [
        make_corpus(tmp_path / name, {f"src/{n}": program(f"{name}{n}") for n in range(3)})
        for name in LETTERS
    ]
    split = split_corpora(join_corpora(folders), SplitOptions(test_fraction=0.3))
    tested = {name.partition("/")[0] for name in split.modules("test")}
    trained = {name.partition("/")[0] for name in split.modules("train")}
    assert (len(tested), len(trained)) == (3, 7)
    assert not tested & trained


def test_packages_inside_one_corpus(tmp_path: Path) -> None:
    named = {"p/x": "a", "p/y": "b", "q/x": "c", "r/s/x": "d", "top": "e"}
    data = {name: program(tag) for name, tag in named.items()}
    joined = join_corpora([make_corpus(tmp_path / "in", data)])
    assert set(joined.names) == set(data)
    split = split_corpora(joined, SplitOptions())
    packages = [each.packages for groups in split.sides.values() for each in groups]
    assert frozenset().union(*packages) == {"p", "q", "r", "."}


def test_a_recipe_names_its_package(tmp_path: Path) -> None:
    one = make_corpus(tmp_path / "x", {"m": program("a")}, info={"package": "lupa"})
    other = make_corpus(tmp_path / "y", {"m": program("b")}, info={"package": "../y"})
    assert list(join_corpora([one, other]).names) == ["lupa/m", "y/m"]


@pytest.mark.e2e
def test_recorded_sides_are_honoured(tmp_path: Path) -> None:
    folders = [
        make_corpus(tmp_path / name, {"m": program(name)}, info={"split": side})
        for name, side in (("a", "test"), ("b", "train"), ("c", "test"), ("d", "unknown"))
    ]
    for seed in range(5):
        split = split_corpora(join_corpora(folders), SplitOptions(seed=seed))
        assert split.modules("test") == ("a/m", "c/m")
    ignoring = SplitOptions(honour_recorded=False)
    assert len(split_corpora(join_corpora(folders), ignoring).modules("test")) == 1


def test_duplicates_that_are_recorded_for_both_sides_are_tested_on(tmp_path: Path) -> None:
    folders = [
        make_corpus(tmp_path / name, {"m": program(tag)}, info={"split": side})
        for name, tag, side in (("a", "x", "test"), ("b", "x", "train"), ("c", "y", "train"))
    ]
    split = split_corpora(join_corpora(folders), SplitOptions())
    assert names(split) == {"train": ("c/m",), "test": ("a/m", "b/m")}
    assert [group.units for group in split.conflicts] == [("a", "b")]


def test_what_is_written(tmp_path: Path) -> None:
    folders = packages(tmp_path, a=program("a"), b=program("b"), c=program("c"))
    joined = join_corpora(folders)
    options = SplitOptions(seed=3)
    split = split_corpora(joined, options)
    written = write_split(joined, split, options, tmp_path / "out")
    for side, folder in written.items():
        corpus = Corpus.load(folder)
        assert corpus.names == split.modules(side)
        info = json.loads((folder / "corpus_info.json").read_text())
        assert (info["split"], info["split_options"]["seed"]) == (side, 3)
        for name in corpus:
            source = joined.key(name)
            assert corpus[name].data == joined[source].data
            assert corpus[name].command == ("-cc1", "-O2")
            assert info["sources"][name] == {
                "corpus": source.package,
                "module": "m",
                "package": source.package,
                "sha256": corpus[name].sha256,
            }
    again = write_split(joined, split, options, tmp_path / "out")  # replaces what is there
    assert Corpus.load(again["test"]).names == split.modules("test")


def test_thinlto_and_a_global_command_are_kept(tmp_path: Path) -> None:
    data = {letter: program(letter) for letter in LETTERS}
    folder = make_corpus(
        tmp_path / "in", data, has_thinlto=True, global_command_override=["-cc1", "-O3"]
    )
    for letter in LETTERS:
        (folder / f"{letter}.thinlto.bc").write_bytes(b"index")
    joined = join_corpora([folder])
    split = split_corpora(joined, BY_MODULE)
    for side in write_split(joined, split, BY_MODULE, tmp_path / "out").values():
        manifest = Manifest.read(side)
        assert manifest.has_thinlto
        assert manifest.global_command_override == ("-cc1", "-O3")
        for name in manifest.modules:
            assert (side / f"{name}.thinlto.bc").read_bytes() == b"index"


def test_modules_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    data = {letter: program(letter) for letter in "abc"} | {"bad": b"BC\xc0\xde"}
    split = split_modules(make_corpus(tmp_path / "in", data))
    assert split.failures == {
        "bad": "module 'bad': LLVM bitcode parsing error\nExpected a single module"
    }
    assert sorted(split.modules("train") + split.modules("test")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("test_fraction", 0.0, "test_fraction: expected a number above 0 and below 1, found 0.0"),
        ("test_fraction", 1.0, "test_fraction: expected a number above 0 and below 1, found 1.0"),
        (
            "test_fraction",
            float("nan"),
            "test_fraction: expected a number above 0 and below 1, found nan",
        ),
        ("similarity", 0.0, "similarity: expected a number above 0 and at most 1, found 0.0"),
        ("similarity", 1.5, "similarity: expected a number above 0 and at most 1, found 1.5"),
        ("by", "file", "by: expected one of package, module, found 'file'"),
    ],
)
def test_options_that_cannot_be(field: str, value: object, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SplitOptions(**{field: value})  # type: ignore[arg-type]
    assert str(caught.value) == message


def one_package(folder: Path) -> None:
    make_corpus(folder / "a", {"x": program("x"), "y": program("y")}, info={"package": "p"})
    split_corpora(join_corpora([folder / "a"]), SplitOptions())


def only_duplicates(folder: Path) -> None:
    split_modules(make_corpus(folder / "a", {"x": program("x"), "y": program("x")}))


def all_recorded(folder: Path) -> None:
    make_corpus(folder / "a", {"x": program("x"), "y": program("y")}, info={"split": "test"})
    split_modules(folder / "a")


def nothing(folder: Path) -> None:
    join_corpora([folder][1:])


def no_corpus(folder: Path) -> None:
    join_corpora([folder / "a"])


def empty_corpus(folder: Path) -> None:
    (folder / "a").mkdir()
    join_corpora([make_corpus(folder / "a", {})])


def thinlto_mix(folder: Path) -> None:
    one = make_corpus(folder / "a", {"x": program("x")})
    join_corpora([one, make_corpus(folder / "b", {"x": program("y")}, has_thinlto=True)])


def command_mix(folder: Path) -> None:
    one = make_corpus(folder / "a", {"x": program("x")}, global_command_override=["-cc1"])
    join_corpora([one, make_corpus(folder / "b", {"x": program("y")})])


def same_name(folder: Path) -> None:
    info = {"package": "p"}
    one = make_corpus(folder / "a", {"x": program("x")}, info=info)
    join_corpora([one, make_corpus(folder / "b", {"x": program("y")}, info=info)])


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            one_package,
            "corpora: expected at least two packages that are no near-duplicates, found 1; "
            "split it by module",
        ),
        (
            only_duplicates,
            "corpora: expected at least two modules that are no near-duplicates, found 1",
        ),
        (
            all_recorded,
            "corpora: expected modules for both sides, found none for 'train': the recipes keep "
            "all for the other; --ignore-recorded deals them out",
        ),
        (nothing, "corpora: expected at least one folder, found none"),
        (
            no_corpus,
            "{folder}/a/corpus_description.json: cannot be read: No such file or directory",
        ),
        (empty_corpus, "corpus '{folder}/a': expected at least one module, found none"),
        (
            thinlto_mix,
            "corpus '{folder}/b': expected has_thinlto as in '{folder}/a' (false), found true "
            "in corpus_description.json",
        ),
        (
            command_mix,
            "corpus '{folder}/b': expected global_command_override as in '{folder}/a' "
            '(["-cc1"]), found null in corpus_description.json',
        ),
        (
            same_name,
            "module 'p/x': expected in one corpus, found in '{folder}/a' and '{folder}/b'",
        ),
    ],
)
def test_corpora_that_cannot_be_split(
    tmp_path: Path, attempt: Callable[[Path], None], message: str
) -> None:
    with pytest.raises(CorpusError) as caught:
        attempt(tmp_path)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("in/new", "expected a folder apart from the inputs, found {folder}/in"),
        ("in", "expected a folder apart from the inputs, found {folder}/in"),
        (".", "expected a folder apart from the inputs, found {folder}/in"),
        ("file", "expected a folder or nothing, found a file"),
        ("other", "expected a folder for two corpora, found a corpus"),
    ],
)
def test_outputs_that_cannot_be(tmp_path: Path, output: str, message: str) -> None:
    make_corpus(tmp_path / "in", {"m": program("m")})
    make_corpus(tmp_path / "other", {"m": program("m")})
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        check_split_output(tmp_path / output, [tmp_path / "in"])
    expected = f"output {tmp_path / output}: {message}"
    assert str(caught.value) == expected.replace("{folder}", str(tmp_path))


def test_a_side_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "out/test").mkdir(parents=True)
    (tmp_path / "out/test/notes.txt").write_text("mine")
    with pytest.raises(OutputError) as caught:
        check_split_output(tmp_path / "out", [])
    assert str(caught.value) == (
        f"output {tmp_path}/out/test: expected a corpus, found a folder without "
        "corpus_description.json"
    )
