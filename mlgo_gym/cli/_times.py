"""``mlgo-gym evaluate --time``: how long modules take to compile under each policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.cli._extensions import Addition
from mlgo_gym.cli.show._grid import Grid, Row, change, percent
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.corpus import Packages
    from mlgo_gym.evaluation import ModuleTimes, Setting, TimeChange
    from mlgo_gym.problems import PolicyLike

REPEATS: Final = 5


class Times(Addition):
    """Seconds under each policy and under LLVM's default, beside the tables of an evaluation."""

    def __init__(self, packages: Packages) -> None:
        self._packages = packages
        self._policies: tuple[str, ...] = ()
        self._times: list[ModuleTimes] = []

    def measure(self, policies: dict[str, PolicyLike], setting: Setting, output: Output) -> None:
        """Compile every module several times under each policy, one at a time."""
        from mlgo_gym.evaluation import measure_times

        self._policies = tuple(policies)
        times = measure_times(self._packages, policies, setting, repeats=REPEATS)
        self._times += output.track(times, "timing", len(self._packages))

    def tables(self, seed: int) -> Iterator[Grid | str]:
        """Total and median of the modules, by policy."""
        yield time_table(self._changes(seed))
        yield "Time to compile against LLVM's default, the two alternating in one worker."

    def record(self, seed: int) -> dict[str, Any]:
        """Changes by policy, and the seconds of each module."""
        return {
            "time": {
                "policies": {
                    name: {"seconds": each.seconds, "median_change": each.median}
                    | each.total.to_json()
                    for name, each in self._changes(seed).items()
                },
                "modules": [
                    asdict(each) | {"error": str(each.error) if each.error else None}
                    for each in self._times
                ],
            }
        }

    def failures(self) -> Iterable[object]:
        """Why modules could not be timed."""
        return (each.error for each in self._times if each.error)

    def _changes(self, seed: int) -> dict[str, TimeChange]:
        from mlgo_gym.evaluation import time_changes

        return {name: time_changes(self._times, name, seed) for name in self._policies}


def time_table(changes: Mapping[str, TimeChange]) -> Grid:
    """How long compiling takes under each policy."""
    rows: list[Row] = [
        [
            name,
            f"{each.seconds:,.1f}",
            change(each.total.value, each.total.interval),
            "none" if each.median is None else percent(each.median),
        ]
        for name, each in changes.items()
    ]
    return Grid(("time of", "seconds", "in total", "median of modules"), rows, folds=True)
