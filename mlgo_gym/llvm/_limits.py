"""Limits of a child that compiles: memory, processor time, files and system calls.

The child holds itself to it, before it sees what it is not to trust, by limits and a sandbox that
it cannot lift again. What its last words then mean, the host tells.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
from dataclasses import dataclass
from typing import Final

from corpus_tools.sandbox import Held, confine
from mlgo_gym.base import OptionsError

DEFAULT_PEAK_BYTES: Final = 1 << 31
PEAK_VARIABLE: Final = "MLGO_MEMORY"
_GRACE_S: Final = 10
_MIB: Final = 1 << 20
_CODE_BYTES: Final = 64 * _MIB
"""The resident size of the files of Python and LLVM, which count but are not data."""
_LEAST_BYTES: Final = 128 * _MIB
_MOST: Final = 1 << 62
_MOST_S: Final = 1 << 30
_WORDS: Final = re.compile(r"out of memory|bad_alloc|MemoryError|[Cc]annot allocate|failed to map")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker: bytes of memory at once, and processor seconds for a request."""

    peak_bytes: float = DEFAULT_PEAK_BYTES
    cpu_s: float = float(_MOST)

    def hold(self) -> Held:
        """Hold this process to them; no file can be opened any more."""
        lower(resource.RLIMIT_DATA, self.peak_bytes - _CODE_BYTES)
        lower(resource.RLIMIT_CORE, 0)  # whoever crashes LLVM fills no disk with its memory
        return confine()

    def allow_cpu(self) -> None:
        """Allow the CPU for one request more: twice its deadline, since LLVM may run unwatched."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = usage.ru_utime + usage.ru_stime + 2 * self.cpu_s + _GRACE_S
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        with contextlib.suppress(ValueError, OSError):  # the user's own is lower
            resource.setrlimit(resource.RLIMIT_CPU, (int(min(seconds, _MOST_S)), hard))


def lower(limit: int, value: float) -> None:
    """Lower a limit of this process for good, unless a lower one holds already."""
    most = int(min(value, _MOST))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(limit, (most, most))


def peak_bytes(chosen: float | None) -> float:
    """How much memory a worker may take: what was chosen, else the variable's, else the default.

    Raises:
        OptionsError: it is not a number, or less than a worker takes that has nothing to do.
    """
    if chosen is not None:
        if not isinstance(chosen, int | float) or not chosen >= _LEAST_BYTES:
            expected = f"a number of bytes from {_LEAST_BYTES} on"
            raise OptionsError(f"peak_memory_bytes: expected {expected}, found {chosen!r}")
        return chosen
    text = os.environ.get(PEAK_VARIABLE, "")
    try:
        value = float(text or DEFAULT_PEAK_BYTES // _MIB) * _MIB
    except ValueError:
        value = math.nan
    if not value >= _LEAST_BYTES:
        expected = f"a number of MiB from {_LEAST_BYTES // _MIB} on"
        raise OptionsError(f"{PEAK_VARIABLE}: expected {expected}, found {text!r}")
    return value


def lack_of_memory(last_words: str, limits: Limits) -> str | None:
    """Return the limit of memory that a child's last words name, and what lifts it."""
    if not _WORDS.search(last_words):
        return None
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < limits.peak_bytes:
        return (
            f"expected to need at most {allowed // _MIB} MiB of address space, found a need for "
            "more; ulimit -v lifts the limit"
        )
    return (
        f"expected to need at most {limits.peak_bytes / _MIB:.0f} MiB of memory, found a need for "
        f"more; peak_memory_bytes or {PEAK_VARIABLE} (in MiB) lifts the limit"
    )
