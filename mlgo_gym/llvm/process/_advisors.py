"""The channels of one compilation: one for each problem that LLVM asks for."""

from __future__ import annotations

from collections.abc import Collection

from mlgo_gym.llvm.process._worker import Worker
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream._channel import Channel
from mlgo_gym.stream._events import Observation


class Channels:
    """What a worker asks over, watched together with it.

    Args:
        worker: what LLVM runs in.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._channels: dict[Problem, Channel] = {}

    def open(self, problem: Problem, channel: Channel | None = None) -> None:
        """Add a problem's channel: one that is there already, or a new one.

        Raises:
            EnvironmentSetupError: no channel can be made.
        """
        self._channels[problem] = channel or Channel(problem.check_header)
        self._worker.watch(self._channels[problem].fileno())

    def __getitem__(self, problem: Problem) -> Channel:
        return self._channels[problem]

    def advisor_options(self) -> list[str]:
        """LLVM's options that make it ask over them."""
        return [
            option
            for problem, channel in self._channels.items()
            for option in problem.advisor_options(channel.base)
        ]

    def next_question(self) -> tuple[Problem, Observation] | None:
        """The next whole observation of what has been taken in, and whose it is.

        Raises:
            TrainingLogError: LLVM broke the format.
        """
        for problem, channel in self._channels.items():
            if (observation := channel.next_observation()) is not None:
                return problem, observation
        return None

    def receive(self, readable: Collection[int]) -> None:
        """Take in what LLVM has sent to these descriptors."""
        for channel in self._channels.values():
            if channel.fileno() in readable and not channel.receive():
                self._worker.unwatch(channel.fileno())

    def close(self) -> None:
        """Close them all; safe to call twice."""
        for channel in self._channels.values():
            self._worker.unwatch(channel.fileno())
            channel.close()
        self._channels.clear()
