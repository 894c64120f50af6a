"""Child processes, whose exit statuses the kernel keeps from a process that ignores SIGCHLD.

`subprocess` then returns 0 whatever happened, and `os.wait4` raises.
"""

from __future__ import annotations

import signal

from corpus_tools.errors import ToolchainError

__all__ = ["check_statuses", "receive_statuses"]


def receive_statuses() -> None:
    """No longer ignore SIGCHLD: for commands, which may have been started by one that does."""
    if _are_withheld():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def check_statuses() -> None:
    """For functions, whose process is somebody else's.

    Raises:
        ToolchainError: this process ignores SIGCHLD, so that no program is known to have failed.
    """
    if _are_withheld():
        raise ToolchainError(
            "SIGCHLD: expected a process that does not ignore it, or no exit status of clang's "
            "is known; signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
        )


def _are_withheld() -> bool:
    return signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
