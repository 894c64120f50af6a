"""Packages as a linker leaves them, under each policy: compiled with sections, linked, folded.

Modules are compiled with ``-ffunction-sections -fdata-sections -faddrsig``, since a linker drops
and folds sections, not functions. The sizes are those of `mlgo_gym.rollout.linked_sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from mlgo_gym.base import InputError
from mlgo_gym.corpus import PackagesLike
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._summary import LEVEL, RelativeChange, draw
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.problems import PolicyLike
from mlgo_gym.rollout import (
    BASELINE,
    Failure,
    KeptText,
    LinkedSizes,
    ModuleReport,
    SectionsUnit,
    Unit,
    linked_sizes,
    without_frames,
)

WAYS: Final[Mapping[str, str]] = {"text": "linked", "gc": "gc", "icf": "icf"}
"""The sizes of `LinkedSizes`, and what tables call them."""


class _Objects(KeptText):
    unit: type[Unit] = SectionsUnit


@dataclass(frozen=True, slots=True)
class PackageLink:
    """A package as a linker leaves it.

    Attributes:
        package: its name.
        sizes: bytes of code by policy, `BASELINE` among them; empty where it could not be linked.
        errors: why modules are left out under every policy, or why there are no sizes.
    """

    package: str
    sizes: Mapping[str, LinkedSizes]
    errors: tuple[Failure, ...] = ()


def objects_of_packages(
    corpora: PackagesLike, policies: Mapping[str, PolicyLike], setting: Setting
) -> Generator[ModuleReport]:
    """Compile every module with sections, plainly and under each policy, package by package."""
    kept = setting.keep_smaller
    return setting.rollout(corpora, policies, measure=_Objects(), keep_smaller=kept)


def link_packages(reports: Iterable[ModuleReport]) -> Generator[PackageLink]:
    """Link each package as soon as all of its modules are there; one is in memory at a time."""
    for package, given in groupby(reports, lambda each: each.package):
        known = list(given)
        errors = tuple(error for each in known for error in each.failures)
        try:
            sizes = _linked([each for each in known if each.is_complete])
        except InputError as error:
            sizes, errors = {}, (*errors, Failure(without_frames(error), f"package {package}"))
        yield PackageLink(package, sizes, errors)


def _linked(reports: Sequence[ModuleReport]) -> dict[str, LinkedSizes]:
    objects: dict[str, list[bytes]] = {}
    for each in reports:
        for name, result in each.results.items():
            if isinstance(result, CompilationResult):
                objects.setdefault(name, []).append(result.object_bytes or b"")
    return {name: linked_sizes(files) for name, files in objects.items()}


def link_change(
    links: Sequence[PackageLink], policy: str, way: str, seed: int = 0
) -> RelativeChange:
    """The geometric mean of packages' ratios to LLVM's own, less 1, and its bootstrap interval.

    Packages are drawn with replacement; of one package alone there is no interval. Where none could
    be linked, the change is not a number.
    """
    pairs = [
        (getattr(each.sizes[policy], way), getattr(each.sizes[BASELINE], way))
        for each in links
        if policy in each.sizes
    ]
    logs = np.array([math.log(after / before) for after, before in pairs if after and before])
    if not len(logs):
        return RelativeChange(math.nan, None)
    value = math.expm1(float(logs.mean()))
    if len(logs) == 1:
        return RelativeChange(value, None)
    low, high = np.percentile(draw(range(len(logs)), seed) @ logs / len(logs), LEVEL)
    return RelativeChange(value, (math.expm1(low), math.expm1(high)))
