"""``mlgo-gym evaluate --linked``: what a linker keeps of each package under each policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlgo_gym.cli._extensions import Addition
from mlgo_gym.cli.show._grid import Grid, Row, amount, change, ratio
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.corpus import Packages
    from mlgo_gym.evaluation import PackageLink, RelativeChange, Setting
    from mlgo_gym.problems import PolicyLike


class Links(Addition):
    """Packages as a linker leaves them, beside the tables of an evaluation."""

    def __init__(self, packages: Packages) -> None:
        self._packages = packages
        self._links: list[PackageLink] = []

    def measure(self, policies: dict[str, PolicyLike], setting: Setting, output: Output) -> None:
        """Compile the packages with sections and link them."""
        from mlgo_gym.evaluation import link_packages, objects_of_packages

        reports = objects_of_packages(self._packages, policies, setting)
        self._links += link_packages(output.track(reports, "linking", len(self._packages)))

    def tables(self, seed: int) -> Iterator[Grid | str]:
        """LLVM's bytes, the changes of policies, and of packages one by one."""
        from mlgo_gym.evaluation import WAYS
        from mlgo_gym.rollout import BASELINE

        if not (policies := self._policies()):
            return
        known = [each for each in self._links if each.sizes]
        totals = {way: sum(getattr(each.sizes[BASELINE], way) for each in known) for way in WAYS}
        rows: list[Row] = []
        for name, found in self._changes(seed).items():
            for way, title in WAYS.items():
                shown = change(found[way].value, found[way].interval)
                rows.append([name if way == "text" else "", title, amount(totals[way]), shown])
        yield Grid(("after linking", "size", "LLVM", "change"), rows, folds=True)
        if len(known) > 1:
            packages: list[Row] = [
                [
                    each.package,
                    amount(each.sizes[BASELINE].icf),
                    *(ratio(each.sizes[name].icf, each.sizes[BASELINE].icf) for name in policies),
                ]
                for each in known
            ]
            yield Grid(("package: icf", BASELINE, *policies), packages)
        yield (
            "Packages compiled with sections and linked as shared libraries: with one copy of each "
            "COMDAT group, after --gc-sections, after --icf=safe. Geometric means of packages."
        )

    def record(self, seed: int) -> dict[str, Any]:
        """Changes of policies, and the sizes of packages in bytes."""
        changes = {
            name: {way: _shown(each) for way, each in found.items()}
            for name, found in self._changes(seed).items()
        }
        sizes = {
            each.package: {name: asdict(size) for name, size in each.sizes.items()}
            for each in self._links
        }
        return {"linked": {"policies": changes, "packages": sizes}}

    def failures(self) -> Iterable[object]:
        """Why packages or modules are not linked."""
        return (failure for each in self._links for failure in each.errors)

    def _changes(self, seed: int) -> dict[str, dict[str, RelativeChange]]:
        from mlgo_gym.evaluation import WAYS, link_change

        return {
            name: {way: link_change(self._links, name, way, seed) for way in WAYS}
            for name in self._policies()
        }

    def _policies(self) -> list[str]:
        from mlgo_gym.rollout import BASELINE

        names = dict.fromkeys(name for each in self._links for name in each.sizes)
        return [name for name in names if name != BASELINE]


def _shown(change: RelativeChange) -> dict[str, Any]:
    found = change.to_json()
    return {"value": found["change"], "interval": found["interval"]}
