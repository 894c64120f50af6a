"""Splitting corpora into one to train on and one to test on, which share no module's code.

Units, packages or modules, that hold near-duplicates of each other are kept together. A body counts
where it is the module's own. Bodies of which the linker keeps one of all copies (``linkonce_odr``
and its kind) and initialisers of variables come with headers: every C++ module has those of the
standard library that it uses, so they would make neighbours of all. So would bodies of a few
instructions, such as ``return 1``, and bodies that very many modules have.

The sets that result are dealt out in an order that depends on the seed and their names alone. Each
side is written whole or not at all::

    OUTPUT/train   OUTPUT/test      corpora in mlgo-utils' layout, with corpus_info.json
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any, Final

from corpus_tools.errors import OutputError
from corpus_tools.manifest import MANIFEST_NAME, Manifest, write_json
from corpus_tools.staging import INFO_NAME, check_output, staged_corpus
from mlgo_gym.base import CorpusError
from mlgo_gym.corpus import ModuleKey, Packages, check_not_final, split_of
from mlgo_gym.curation._facts import ModuleFacts, describe_modules
from mlgo_gym.curation._split_options import SplitOptions
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Jobs

MINIMUM_INSTRUCTIONS: Final = 10
"""Bodies below it say nothing of where they come from."""

MAXIMUM_HOLDERS: Final = 64
"""A body that more modules have, copies of one another counted once, comes with a header."""


@dataclass(frozen=True, slots=True, order=True)
class NearDuplicate:
    """Two modules, by name, and the share of the smaller one's own instructions that both have."""

    first: str
    second: str
    similarity: float


def near_duplicates(
    modules: Mapping[str, ModuleFacts], units: Mapping[str, str], threshold: float
) -> list[NearDuplicate]:
    """The pairs of modules that share at least this much, by name and in order.

    Pairs within a unit, which each module belongs to one of, are left out. Of several modules with
    the same bodies only the first is compared with others, and each of the rest with the first.
    """
    own = {name: _own_bodies(module) for name, module in sorted(modules.items())}
    originals, copies = _copies(own)
    holders = _holders(originals)
    sizes = {
        name: sum(size for body, size in bodies.items() if body in holders)
        for name, bodies in originals.items()
    }
    found = [NearDuplicate(*pair, 1.0) for pair in copies if units[pair[0]] != units[pair[1]]]
    for (first, second), shared in _shared(originals, holders, units).items():
        similarity = shared / min(sizes[first], sizes[second])
        if similarity >= threshold:
            found.append(NearDuplicate(first, second, similarity))
    return sorted(found)


def overlap(train: Iterable[ModuleFacts], test: Iterable[ModuleFacts], *, only_own: bool) -> float:
    """The share of the instructions of ``test`` whose bodies occur in ``train``, from 0 to 1.

    Bodies that come with headers do not count, or do.
    """
    seen = {body.fingerprint for module in train for body in module.bodies}
    total = repeated = 0
    for module in test:
        for body in module.bodies:
            if body.is_own or not only_own:
                total += body.instructions
                repeated += body.instructions if body.fingerprint in seen else 0
    return repeated / total if total else 0.0


def joined(units: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Sets of units, none of which has a pair with another; all in alphabetical order."""
    sets = {unit: [unit] for unit in sorted(units)}
    for first, second in pairs:
        kept, other = sets[first], sets[second]
        if kept is not other:
            kept += other
            sets |= dict.fromkeys(other, kept)
    return [sorted(each) for each in {id(each): each for each in sets.values()}.values()]


def _own_bodies(module: ModuleFacts) -> dict[str, int]:
    """Instructions by fingerprint, of each different body once."""
    return {
        body.fingerprint: body.instructions
        for body in module.bodies
        if body.is_own and body.instructions >= MINIMUM_INSTRUCTIONS
    }


def _copies(
    own: Mapping[str, Mapping[str, int]],
) -> tuple[dict[str, Mapping[str, int]], list[tuple[str, str]]]:
    """The first module of each different set of bodies; and the others, each with the first."""
    firsts: dict[frozenset[str], str] = {}
    copies = []
    for name, bodies in own.items():
        first = firsts.setdefault(frozenset(bodies), name)
        if first != name and bodies:
            copies.append((first, name))
    return {name: own[name] for name in firsts.values()}, copies


def _holders(own: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """The modules that have a body, for each body that is not a header's to all appearances."""
    holders = defaultdict(list)
    for name, bodies in own.items():
        for fingerprint in bodies:
            holders[fingerprint].append(name)
    return {body: names for body, names in holders.items() if len(names) <= MAXIMUM_HOLDERS}


def _shared(
    own: Mapping[str, Mapping[str, int]],
    holders: Mapping[str, list[str]],
    units: Mapping[str, str],
) -> Counter[tuple[str, str]]:
    """How many instructions two modules of different units share, where they share any."""
    shared: Counter[tuple[str, str]] = Counter()
    for fingerprint, names in holders.items():
        for first, second in combinations(names, 2):
            if units[first] != units[second]:
                shared[first, second] += own[first][fingerprint]
    return shared


_SIDES: Final = ("train", "test")
_SUFFIXES: Final = (".bc", ".cmd", ".thinlto.bc")


@dataclass(frozen=True, slots=True)
class Group:
    """Units that stay on one side, and the sides that they are recorded for."""

    units: tuple[str, ...]
    modules: tuple[str, ...]
    packages: frozenset[str]
    bitcode_bytes: int
    recorded_sides: frozenset[str]


@dataclass(frozen=True, slots=True)
class Split:
    """The sides of a split, and the near-duplicates that keep units together.

    Overlaps are the share of the test side's instructions whose bodies are in ``train`` too, the
    own one without bodies that come with headers. Hashes, in hexadecimal digits, are by module.
    """

    sides: Mapping[str, tuple[Group, ...]]
    near_duplicates: tuple[NearDuplicate, ...]
    own_overlap: float
    overlap: float
    hashes: Mapping[str, str]
    failures: Mapping[str, str]

    @property
    def merged_groups(self) -> tuple[Group, ...]:
        return tuple(
            group for groups in self.sides.values() for group in groups if len(group.units) > 1
        )

    @property
    def conflicts(self) -> tuple[Group, ...]:
        """The groups whose units are recorded for both sides; they go to ``test``."""
        return tuple(group for group in self.merged_groups if len(group.recorded_sides) > 1)

    def modules(self, side: str) -> tuple[str, ...]:
        """The names of a side's modules, in order."""
        return tuple(sorted(name for group in self.sides[side] for name in group.modules))


def split_corpora(
    corpora: Packages,
    options: SplitOptions,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[], None] = lambda: None,
) -> Split:
    """Decide which module goes to which side. A module that LLVM cannot read is left out.

    Raises:
        CorpusError: a corpus is of the split ``final``, or there is nothing for a side.
    """
    check_not_final(corpora, "to split")
    facts: dict[str, ModuleFacts] = {}
    failures: dict[str, str] = {}
    with closing(describe_modules(corpora, jobs=jobs, timeout_s=timeout_s)) as found:
        for name, done in zip(corpora.names, found, strict=True):
            if done.error:
                failures[name] = str(done.error)
            else:
                facts[name] = done.value
            progress()
    return _decide(corpora, facts, failures, options)


def _decide(
    corpora: Packages,
    facts: Mapping[str, ModuleFacts],
    failures: Mapping[str, str],
    options: SplitOptions,
) -> Split:
    by_package = options.by == "package"
    units = {name: _package(corpora.key(name)) if by_package else name for name in facts}
    pairs = near_duplicates(facts, units, options.similarity)
    groups = _groups(corpora, units, pairs)
    sides = _deal(groups, options)
    train, test = (
        [facts[name] for group in sides[side] for name in group.modules] for side in _SIDES
    )
    return Split(
        sides,
        tuple(pairs),
        overlap(train, test, only_own=True),
        overlap(train, test, only_own=False),
        {name: each.sha256 for name, each in facts.items()},
        failures,
    )


def _groups(
    corpora: Packages, units: Mapping[str, str], pairs: Iterable[NearDuplicate]
) -> list[Group]:
    names_of: defaultdict[str, list[str]] = defaultdict(list)
    for name, unit in units.items():
        names_of[unit].append(name)
    folders = dict.fromkeys(corpus.folder for corpus in corpora.corpora.values())
    recorded = {folder: split_of(folder) for folder in folders}
    groups = []
    for members in joined(names_of, ((units[each.first], units[each.second]) for each in pairs)):
        names = tuple(sorted(name for unit in members for name in names_of[unit]))
        keys = [corpora.key(name) for name in names]
        groups.append(
            Group(
                tuple(members),
                names,
                frozenset(map(_package, keys)),
                sum(map(corpora.size_bytes, keys)),
                frozenset(_SIDES) & {recorded[corpora.corpora[key].folder] for key in keys},
            )
        )
    return groups


def _package(key: ModuleKey) -> str:
    """A module's package; where it has none, the first part of its name, or else ``.``."""
    return key.package or (PurePosixPath(key.name).parts[0] if "/" in key.name else ".")


def _deal(groups: Sequence[Group], options: SplitOptions) -> dict[str, tuple[Group, ...]]:
    """Recorded groups first, then each to the test side as long as that brings it nearer."""
    target = options.test_fraction * sum(group.bitcode_bytes for group in groups)
    recorded = {group: _recorded_side(group, options) for group in groups}
    free = sorted((g for g in groups if not recorded[g]), key=lambda g: _order(g, options.seed))
    test = [group for group in groups if recorded[group] == "test"]
    size = sum(group.bitcode_bytes for group in test)
    for group in free:
        if abs(size + group.bitcode_bytes - target) < abs(size - target):
            test.append(group)
            size += group.bitcode_bytes
    if free and len(test) in {0, len(groups)}:  # each side has something, as far as it is free
        smallest = min(free, key=lambda group: group.bitcode_bytes)
        test = [group for group in groups if (group in test) != (group is smallest)]
    train = [group for group in groups if group not in test]
    _check_sides(train, test, groups, options)
    return {"train": tuple(train), "test": tuple(group for group in groups if group in test)}


def _recorded_side(group: Group, options: SplitOptions) -> str | None:
    # One of the two recorded for both: what must not be trained on is what must hold.
    sides = group.recorded_sides if options.honour_recorded else frozenset[str]()
    return "test" if "test" in sides else next(iter(sides), None)


def _order(group: Group, seed: int) -> bytes:
    return hashlib.sha256("\0".join([str(seed), *group.modules]).encode()).digest()


def _check_sides(
    train: Sequence[Group], test: Sequence[Group], groups: Sequence[Group], options: SplitOptions
) -> None:
    if len(groups) < 2:
        hint = "; split it by module" if options.by == "package" else ""
        raise CorpusError(
            f"corpora: expected at least two {options.by}s that are no near-duplicates, "
            f"found {len(groups)}{hint}"
        )
    for name, side in (("train", train), ("test", test)):
        if not side:
            raise CorpusError(
                f"corpora: expected modules for both sides, found none for {name!r}: the "
                "recipes keep all for the other; --ignore-recorded deals them out"
            )


def check_split_output(output: Path, inputs: Sequence[Path]) -> None:
    """See that a split may be written to a folder: apart from the inputs, and no corpus or file."""
    target = output.resolve()
    for each in inputs:
        source = each.resolve()
        if target.is_relative_to(source) or source.is_relative_to(target):
            raise OutputError(output, f"expected a folder apart from the inputs, found {each}")
    if output.exists() and not output.is_dir():
        raise OutputError(output, "expected a folder or nothing, found a file")
    if (output / MANIFEST_NAME).exists():
        raise OutputError(output, "expected a folder for two corpora, found a corpus")
    for side in _SIDES:
        check_output(output / side)


def write_split(
    corpora: Packages, split: Split, options: SplitOptions, output: Path
) -> dict[str, Path]:
    """Write both sides; files are hard links where the file system allows, otherwise copies."""
    folders = {side: output / side for side in _SIDES}
    with ExitStack() as stack:
        for side, folder in folders.items():
            staged = stack.enter_context(staged_corpus(folder))
            _write_side(corpora, split, options, side, staged)
    return folders


def _write_side(
    corpora: Packages, split: Split, options: SplitOptions, side: str, folder: Path
) -> None:
    names = split.modules(side)
    for name in names:
        key = corpora.key(name)
        for suffix in _SUFFIXES:
            source = corpora.corpora[key].folder / f"{key.name}{suffix}"
            if source.is_file():
                _link(source, folder / f"{name}{suffix}")
    first = next(iter(corpora.corpora.values()))  # which are alike
    Manifest(names, first.has_thinlto, first.global_command).write(folder)
    write_json(folder / INFO_NAME, _info(corpora, split, options, side))


def _info(corpora: Packages, split: Split, options: SplitOptions, side: str) -> dict[str, Any]:
    return {
        "split": side,
        "split_options": asdict(options),
        "sources": {
            name: {
                "corpus": corpora.corpora[key].folder.resolve().name,
                "module": key.name,
                "package": _package(key),
                "sha256": split.hashes[name],
            }
            for name in split.modules(side)
            for key in (corpora.key(name),)
        },
    }


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
