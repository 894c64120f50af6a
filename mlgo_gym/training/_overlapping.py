"""Generations of ``group`` that begin before those before them are over, so that nobody waits.

The contexts of all generations are one stream of items. Those of a generation are handed out while
at most `staleness` updates are missing before it, and an update is made when as many trials have
come as a generation has contexts, whichever they are: one that takes long comes into a later
update. The clipped ratio holds there, too, since a trial says with which probabilities it was
drawn; but what was drawn by weights that more than `staleness` updates have changed is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._later import LATER, Later
from mlgo_gym.llvm._schedule import Done
from mlgo_gym.rollout._rollout import Failure, without_frames
from mlgo_gym.training._contexts import Sampler, Workshop
from mlgo_gym.training._network_code import NetworkCode
from mlgo_gym.training._trials import Trial, Trials, TrialSetting


@dataclass(frozen=True, slots=True, order=True)
class Drawn:
    """A context that is tried for a generation, with the network of after so many updates."""

    generation: int
    place: int
    index: int
    updates: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The trials of an update, with their contexts' indices, in the order of the generations.

    Attributes:
        stale: how many of them older weights have drawn than those that learn from them.
        dropped: how many there were besides, of weights that are older than is allowed.
    """

    trials: list[tuple[int, Trial]]
    stale: int = 0
    dropped: int = 0

    def scalars(self) -> dict[str, float]:
        """The counts, under names for curves."""
        return {"collect/stale": self.stale, "collect/dropped": self.dropped}


@dataclass(frozen=True, slots=True)
class AnyTrials:
    """`Trials` of any generation: its setting and the network that draws come with the context."""

    workshop: Workshop

    def __call__(self, compiler: Compiler, given: tuple[TrialSetting, NetworkCode, Any]) -> Trial:
        setting, network, numbered = given
        return Trials(self.workshop, network, setting)(compiler, numbered)


@dataclass(slots=True, kw_only=True)
class Overlapping:
    """How generations overlap.

    Attributes:
        drawn: the indices of a generation's contexts.
        setting: how they are tried.
        network: a copy of the network as it is now.
        staleness: how many updates behind may be what is learned from.
        warn: told of contexts that cannot be tried, which count as having come.
    """

    workshop: Workshop
    sampler: Sampler
    drawn: Callable[[int], list[int]]
    setting: Callable[[int], TrialSetting]
    network: Callable[[], NetworkCode]
    staleness: int
    warn: Callable[[Failure], None]
    _updates: int = 0
    _networks: dict[int, NetworkCode] = field(default_factory=dict)
    _under_way: Counter[int] = field(default_factory=Counter)

    def updates(self, generations: range) -> Generator[Arrived]:
        """What comes for each update, which is made before the next is asked for.

        When all have been, nothing is under way. What is when this is closed is given up.
        """
        self._updates = generations.start - 1
        items, work = self._items(generations), AnyTrials(self.workshop)
        try:
            with closing(self.workshop.each(items, work, self._given, in_order=False)) as found:
                for number in generations:
                    yield self._arrived(islice(found, len(self.drawn(number))))
                    self._updates = number
                    self._forget()
                for _ in found:  # there are none, and workers stay
                    pass
        finally:
            self._under_way.clear()
            self._forget()

    def _items(self, generations: range) -> Iterator[Drawn | Later]:
        for number in generations:
            while number - 1 - self._updates > self.staleness:
                yield LATER
            for place, index in enumerate(self.drawn(number)):
                if self._updates not in self._networks:
                    self._networks[self._updates] = self.network()
                self._under_way[self._updates] += 1
                yield Drawn(number, place, index, self._updates)

    def _given(self, drawn: Drawn) -> tuple[TrialSetting, NetworkCode, Any]:
        network = self._networks[drawn.updates]
        return self.setting(drawn.generation), network, self.sampler.numbered(drawn.index)

    def _arrived(self, found: Iterable[Done[Drawn, Trial]]) -> Arrived:
        """What there is to learn from."""
        trials: list[tuple[int, Trial]] = []
        stale = dropped = 0
        for done in sorted(found, key=lambda each: each.item):
            self._under_way[done.item.updates] -= 1
            behind = self._updates - done.item.updates
            if done.error:
                self.warn(Failure(without_frames(done.error)))
            elif behind > self.staleness:
                dropped += 1
            else:
                stale += behind > 0
                trials.append((done.item.index, done.value))
        return Arrived(trials, stale, dropped)

    def _forget(self) -> None:
        """Unload networks that nobody asks any more."""
        for updates in [each for each in self._networks if not self._under_way[each]]:
            with self._networks.pop(updates):
                pass
