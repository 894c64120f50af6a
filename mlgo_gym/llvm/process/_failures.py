"""The errors of workers that did not answer."""

from __future__ import annotations

import signal

from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError


class WorkerDiedError(Exception):
    """The child process is gone.

    Attributes:
        exit_status: its exit status; negative is the signal that ended it.
        stderr_tail: the last lines that it wrote to its standard error.
    """

    def __init__(self, exit_status: int, stderr_tail: tuple[str, ...]) -> None:
        super().__init__(f"worker died with {describe_exit(exit_status)}")
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail


def describe_exit(status: int) -> str:
    """An exit status in words.

    >>> describe_exit(1), describe_exit(-6)
    ('exit status 1', 'signal 6 (SIGABRT)')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


def crash_of(module: str, error: WorkerDiedError) -> CompilerCrashError:
    """The public error for a worker that died over a module."""
    return CompilerCrashError(
        module,
        f"LLVM ended with {describe_exit(error.exit_status)}",
        exit_status=error.exit_status,
        stderr_tail=error.stderr_tail,
    )


def timeout_of(
    module: str, timeout_s: float, decisions: int | None, stderr_tail: tuple[str, ...]
) -> CompilationTimeoutError:
    """The public error for a worker that outran its deadline over a module.

    Args:
        module: its name.
        timeout_s: how long LLVM had, in seconds.
        decisions: how many LLVM had asked for; ``None`` where it was to ask for none.
        stderr_tail: the last lines that it wrote to its standard error.
    """
    asked = "" if decisions is None else f" after {decisions} decisions"
    return CompilationTimeoutError(
        module,
        f"LLVM took more than its {timeout_s:g} s{asked}",
        exit_status=None,
        stderr_tail=stderr_tail,
    )
