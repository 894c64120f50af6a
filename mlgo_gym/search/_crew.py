"""A few branches that go on at once, all under one policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from mlgo_gym.errors import CompilationError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm._waiting import wait_for_any
from mlgo_gym.problems._policy import Answer

_Tag = TypeVar("_Tag")


class Crew(Generic[_Tag]):
    """Compilations that are brought to their ends, ``jobs`` at once.

    Args:
        policy: what answers what they ask.
        jobs: how many may be under way when `drain` begins to wait.
    """

    def __init__(self, policy: Answer, jobs: int) -> None:
        self._policy = policy
        self._jobs = jobs
        self._live: list[tuple[Compilation, _Tag]] = []

    def add(self, compilation: Compilation, tag: _Tag) -> None:
        """Take over a compilation; it comes back from `drain` by its tag."""
        self._live.append((compilation, tag))

    def drain(self, *, is_last: bool = False) -> Iterator[tuple[_Tag, CompilationResult | None]]:
        """Serve until there is room for another compilation, or until all have ended.

        Yields:
            Each that has ended: its tag and result, ``None`` where LLVM crashed or hung.
        """
        while len(self._live) >= (1 if is_last else self._jobs):
            ready = wait_for_any([compilation for compilation, _ in self._live])
            for entry in [each for each in self._live if each[0] in ready]:
                compilation, tag = entry
                try:
                    if not self._has_ended(compilation):
                        continue
                    result = compilation.result
                except CompilationError:
                    result = None
                self._live.remove(entry)
                compilation.close()
                yield tag, result

    def _has_ended(self, compilation: Compilation) -> bool:
        if not compilation.is_ready():
            return False
        observation = compilation.next_observation()
        if observation is not None:
            compilation.answer(self._policy(observation))
        return observation is None

    def close(self) -> None:
        """Close what has not ended."""
        while self._live:
            self._live.pop()[0].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
