"""The errors of workers that did not answer."""

from __future__ import annotations

from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError
from mlgo_gym.llvm.process._worker import Worker, WorkerDiedError, describe_exit


def crash_of(module: str, error: WorkerDiedError) -> CompilerCrashError:
    """The public error for a worker that died over a module."""
    return CompilerCrashError(
        module,
        f"LLVM ended with {describe_exit(error.exit_status)}",
        exit_status=error.exit_status,
        stderr_tail=error.stderr_tail,
    )


def timeout_error(
    module: str, timeout_s: float, worker: Worker, decisions: int | None = None
) -> CompilationTimeoutError:
    """The public error for a worker that outran its deadline over a module.

    Args:
        module: its name.
        timeout_s: how long LLVM had, in seconds.
        worker: the worker.
        decisions: how many LLVM had asked for; ``None`` where it was to ask for none.
    """
    asked = "" if decisions is None else f" after {decisions} decisions"
    return CompilationTimeoutError(
        module,
        f"LLVM took more than its {timeout_s:g} s{asked}",
        exit_status=None,
        stderr_tail=worker.stderr_tail(),
    )
