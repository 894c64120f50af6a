"""The data that trainers train on and choose on."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mlgo_gym.base import MlgoGymError, TrainingError
from mlgo_gym.corpus import Packages
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Done, Jobs
from mlgo_gym.rollout import Failure, Rewards, without_frames

_PASSING: Final = (
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ENOSPC,
    errno.EDQUOT,
)
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Data:
    """The data to train and choose on; `warn` gets each failure, and the others go on.

    With `rewards` code is worth what these say, otherwise what the problem's own measure does;
    models with more than `most_text` times the text of LLVM's own are chosen last.
    """

    packages: Packages
    validation: Packages
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    warn: Callable[[Failure], None] = lambda _: None
    rewards: Rewards | None = None
    most_text: float | None = None


def successes(
    found: Generator[Done[_K, _T]], warn: Callable[[Failure], None]
) -> Iterator[tuple[_K, _T]]:
    """Items with what became of them; those that failed are warned of and left out."""
    with closing(found):
        for done in found:
            if done.error:
                warn(Failure(without_frames(done.error)))
            else:
                yield done.item, done.value


def rewards_of(
    reward: str,
    packages: Packages,
    held_out: Packages,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Rewards:
    """The reward of each package, of which some can be trained on and some be chosen on.

    Args:
        reward: its name.
        packages: what is trained on.
        held_out: what is chosen on.
        jobs: how many modules of a package are compiled at once.
        timeout_s: how long LLVM may take for one, in seconds.

    Raises:
        WorkloadError: programs are to run, and none are there for one of the two.
    """
    for part in (packages, held_out):
        Rewards(reward, part, None, timeout_s)
    both = Packages({**packages.corpora, **held_out.corpora})
    return Rewards(reward, both, None, timeout_s, jobs=jobs)


def describe(packages: Packages) -> dict[str, Any]:
    """For a card: how many modules of each package, and a hash of those that can be read.

    Raises:
        ModuleError: one cannot be read now that could be another time, with another hash.
    """
    digest = hashlib.sha256()
    for key in packages:
        try:
            digest.update(bytes.fromhex(packages[key].sha256))
        except MlgoGymError as error:
            if error.errno in _PASSING:
                raise
    counts = {package: len(keys) for package, keys in packages.by_package.items()}
    return {"modules": counts, "sha256": digest.hexdigest()}


def check_lasting(failure: Failure) -> None:
    """Check that a module that is left out would be left out another time.

    Raises:
        TrainingError: the failure comes of the system's state, such as a full disk.
    """
    if failure.error.errno in _PASSING:
        raise TrainingError(f"{failure}; this may pass, start again") from failure.error
