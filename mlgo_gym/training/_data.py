"""What trainers train on and choose on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import MlgoGymError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Data:
    """What is trained and chosen on.

    Attributes:
        packages: corpora to train on, by the names of their packages.
        validation: corpora to choose on.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        warn: called with what failed; the other modules go on.
    """

    packages: Mapping[str, Corpus]
    validation: Mapping[str, Corpus]
    jobs: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    warn: Callable[[str], None] = lambda _: None


def describe(packages: Mapping[str, Corpus]) -> dict[str, Any]:
    """For a card: how many modules of each package, and the hash of them all.

    The hash is SHA-256 over the modules' own, in the corpora's order; modules that cannot be read
    have none.
    """
    digest = hashlib.sha256()
    for corpus in packages.values():
        for name in corpus:
            try:
                digest.update(bytes.fromhex(corpus[name].sha256))
            except MlgoGymError:
                continue
    counts = {name: len(corpus) for name, corpus in packages.items()}
    return {"modules": counts, "sha256": digest.hexdigest()}
