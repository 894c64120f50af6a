"""What a worker is told when its process is to be cloned.

A request is one message on the control socket: for each descriptor that the clone gets, the
number that it takes the place of, an ``int32``; the descriptors themselves are attached
(``SCM_RIGHTS``). Then comes `FORK_SIGNAL`. The answer comes from the clone, over the control socket
that it has been given: its process id, an ``int32``. The end of that socket instead says that there
is no clone, whatever became of the worker. All in native byte order.
"""

from __future__ import annotations

import platform
import signal
import sys
from typing import Final

from mlgo_gym.errors import InternalError

FORK_SIGNAL: Final = signal.SIGUSR2
MAX_DESCRIPTORS: Final = 16
"""How many descriptors a request may carry."""

_CLONE_NUMBERS: Final = {"x86_64": 56, "aarch64": 220}
"""``__NR_clone`` of Linux; with a new stack of null, its other arguments have one order."""


def is_supported() -> bool:
    """Whether compilations can be forked on this platform: Linux on x86-64 and AArch64."""
    return sys.platform == "linux" and platform.machine() in _CLONE_NUMBERS


def clone_number() -> int:
    """The number of the system call on this platform, one that `is_supported`.

    Raises:
        InternalError: it is not.
    """
    if not is_supported():
        raise InternalError(f"fork: {sys.platform} on {platform.machine()} is not supported")
    return _CLONE_NUMBERS[platform.machine()]
