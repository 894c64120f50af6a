"""Splits of any corpora: what is true of all of them, beside a plain count of what is shared."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages, join_corpora
from mlgo_gym.curation._facts import ModuleFacts
from mlgo_gym.curation._split import Split, _decide, write_split
from mlgo_gym.curation._split_options import SplitOptions
from mlgo_gym.errors import CorpusError
from mlgo_gym.llvm.text._fingerprint import Body
from mlgo_gym.llvm.text._profile import Profile
from tests.curation.make import make_corpus
from tests.generated import examples

SIDES = ("train", "test")
# Bodies by fingerprint: instructions, and whether they are the module's own.
BODIES = {"a": (40, True), "b": (25, True), "c": (10, True), "d": (9, True), "e": (30, False)}


@dataclass(frozen=True)
class Source:
    """A module: where it is, and what is in it."""

    folder: int
    name: str
    bodies: frozenset[str]
    size_bytes: int

    @property
    def own(self) -> set[str]:
        """What counts: its own bodies of ten instructions or more."""
        return {each for each in self.bodies if each not in "de"}

    def is_near(self, other: Source, threshold: float) -> bool:
        shared, smaller = size(self.own & other.own), min(size(self.own), size(other.own))
        return bool(smaller) and shared / smaller >= threshold


@dataclass(frozen=True)
class Folder:
    """What a corpus records of itself."""

    package: str | None
    side: str | None


@dataclass(frozen=True)
class Given:
    """What is split, and how."""

    folders: tuple[Folder, ...]
    sources: tuple[Source, ...]
    options: SplitOptions

    def package(self, source: Source) -> str:
        recorded = self.folders[source.folder].package
        if recorded or len(self.folders) > 1:
            return recorded or f"f{source.folder}"
        return source.name.rpartition("/")[0] or "."

    def label(self, source: Source) -> str:
        return source.name if len(self.folders) == 1 else f"{self.package(source)}/{source.name}"

    def groups(self) -> list[set[Source]]:
        """What has to stay together: by package, and as long as anything is near to anything."""
        groups = [{each} for each in self.sources]
        while touching := next(
            (pair for pair in combinations(groups, 2) if any(map(self._belong, *_all(*pair)))), None
        ):
            groups = [each for each in groups if each not in touching] + [touching[0] | touching[1]]
        return groups

    def _belong(self, one: Source, other: Source) -> bool:
        by_package = self.options.by == "package"
        return one.is_near(other, self.options.similarity) or (
            by_package and self.package(one) == self.package(other)
        )

    def recorded_side(self, group: set[Source]) -> str | None:
        sides = {self.folders[each.folder].side for each in group} - {None}
        if not self.options.honour_recorded:
            return None
        return "test" if "test" in sides else "train" if sides else None


def _all(one: set[Source], other: set[Source]) -> tuple[list[Source], list[Source]]:
    pairs = list(product(one, other))
    return [first for first, _ in pairs], [second for _, second in pairs]


def size(bodies: set[str]) -> int:
    return sum(BODIES[each][0] for each in bodies)


@st.composite
def given_splits(draw: st.DrawFn) -> Given:
    side = st.sampled_from([None, None, *SIDES])
    folder = st.builds(Folder, st.sampled_from([None, None, "p", "q"]), side)
    folders = tuple(draw(st.lists(folder, min_size=1, max_size=5)))
    sources = tuple(
        Source(number, f"{draw(st.sampled_from(['', 'x/', 'y/']))}m{number}{index}", bodies, length)
        for number in range(len(folders))
        for index, (bodies, length) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.frozensets(st.sampled_from("abcde")), st.integers(1, 90)),
                    min_size=1,
                    max_size=4,
                )
            )
        )
    )
    options = SplitOptions(
        test_fraction=draw(st.floats(0.05, 0.95)),
        seed=draw(st.integers(0, 9)),
        by=draw(st.sampled_from(["package", "module"])),
        similarity=draw(st.sampled_from([0.2, 0.5, 0.625, 1.0])),
        honour_recorded=draw(st.booleans()),
    )
    return Given(folders, sources, options)


def made(given: Given, parent: Path, order: Sequence[int]) -> Packages:
    """The corpora on disk, joined in an order of the folders."""
    folders = []
    for number, folder in enumerate(given.folders):
        inside = {
            each.name: b"B" * each.size_bytes for each in given.sources if each.folder == number
        }
        known = {"package": folder.package, "split": folder.side}
        info = {key: value for key, value in known.items() if value}
        if order[0]:
            inside = dict(reversed(inside.items()))
        folders.append(make_corpus(parent / f"f{number}", inside, info=info))
    return join_corpora([folders[number] for number in order])


def decided(given: Given, corpora: Packages, *, backwards: bool = False) -> Split:
    facts = {
        given.label(each): ModuleFacts(
            given.label(each),
            f"{number:064x}",
            tuple(Body(each, each, *BODIES[each]) for each in sorted(each.bodies)),
            Profile(None, 0, 0, 0),
            None,
        )
        for number, each in enumerate(given.sources)
    }
    facts = dict(reversed(facts.items())) if backwards else facts
    return _decide(corpora, facts, {}, given.options)


def overlap(given: Given, split: Split, *, only_own: bool) -> float:
    bodies = {
        side: [each for source in given.sources if given.label(source) in split.modules(side)
               for each in source.bodies if BODIES[each][1] or not only_own]
        for side in SIDES
    }  # fmt: skip
    everything = {body for source in given.sources if given.label(source) in split.modules("train")
                  for body in source.bodies}  # fmt: skip
    total = sum(BODIES[each][0] for each in bodies["test"])
    seen = sum(BODIES[each][0] for each in bodies["test"] if each in everything)
    return seen / total if total else 0.0


@examples(40, is_dear=True)
@given(given_splits(), st.data())
def test_any_split(given: Given, data: st.DataObject) -> None:
    numbers = range(len(given.folders))
    with tempfile.TemporaryDirectory() as folder:
        corpora = made(given, Path(folder) / "one", numbers)
        groups = given.groups()
        sides = [given.recorded_side(each) for each in groups]
        if len(groups) < 2 or all(side == "train" for side in sides) or set(sides) == {"test"}:
            with pytest.raises(CorpusError):
                decided(given, corpora)
            return
        split = decided(given, corpora)
        check_groups(given, split)
        check_sizes(given, split)
        order = data.draw(st.permutations(numbers))
        other = made(given, Path(folder) / "other", order)
        assert decided(given, other, backwards=True) == split
        for only_own, found in ((True, split.own_overlap), (False, split.overlap)):
            assert found == pytest.approx(overlap(given, split, only_own=only_own))
        written = write_split(corpora, split, given.options, Path(folder) / "out")
        lengths = {given.label(each): each.size_bytes for each in given.sources}
        for side, path in written.items():
            corpus = Corpus(path, split.modules(side), None)
            assert {name: corpus.size_bytes(name) for name in corpus} == {
                name: lengths.pop(name) for name in split.modules(side)
            }
        assert not lengths


def check_groups(given: Given, split: Split) -> None:
    """Each module is on one side, with all that it belongs to, on the side that is recorded."""
    found = {group.modules: side for side in SIDES for group in split.sides[side]}
    expected = {
        tuple(sorted(map(given.label, group))): given.recorded_side(group)
        for group in given.groups()
    }
    assert found.keys() == expected.keys()
    assert all(side is None or found[names] == side for names, side in expected.items())


def check_sizes(given: Given, split: Split) -> None:
    """Neither side is empty; beyond that, what is free brings the test side nearer to its share."""
    target = given.options.test_fraction * sum(each.size_bytes for each in given.sources)
    recorded = [group for group in given.groups() if given.recorded_side(group) == "test"]
    before = sum(each.size_bytes for group in recorded for each in group)
    after = sum(group.bitcode_bytes for group in split.sides["test"])
    assert split.modules("train")
    assert split.modules("test")
    is_forced = 1 in {len(split.sides[side]) for side in SIDES}
    assert is_forced or abs(after - target) <= abs(before - target)
