"""Modules that hold the same code, and how much of a corpus another one repeats.

A body counts where it is the module's own. Bodies of which the linker keeps one of all copies
(``linkonce_odr`` and its kind) and initialisers of variables come with headers: every C++ module
has those of the standard library that it uses, so they would make neighbours of all. So would
bodies of a few instructions, such as ``return 1``, and bodies that very many modules have. They
are left out of the similarity; what remains of the overlap is counted with them and without.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from mlgo_gym.curation._facts import ModuleFacts

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
