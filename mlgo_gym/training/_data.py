"""What trainers train on and choose on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import MlgoGymError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm._schedule import Done, Jobs

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Data:
    """What is trained and chosen on; `warn` is told what failed, and the other modules go on."""

    packages: Packages
    validation: Packages
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    warn: Callable[[str], None] = lambda _: None


def successes(
    found: Generator[Done[_K, _T]], warn: Callable[[str], None]
) -> Iterator[tuple[_K, _T]]:
    """Items with what became of them; those that failed are warned of and left out."""
    with closing(found):
        for done in found:
            if done.error:
                warn(str(done.error))
            else:
                yield done.item, done.value


def describe(packages: Packages) -> dict[str, Any]:
    """For a card: how many modules of each package, and a hash of those that can be read."""
    digest = hashlib.sha256()
    for key in packages:
        with suppress(MlgoGymError):
            digest.update(bytes.fromhex(packages[key].sha256))
    counts = {package: len(keys) for package, keys in packages.by_package.items()}
    return {"modules": counts, "sha256": digest.hexdigest()}
