"""The errors of compilations that LLVM did not finish."""

from __future__ import annotations

from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError
from mlgo_gym.llvm.worker import Worker, WorkerDiedError, describe_exit

__all__ = ["crash_error", "timeout_error"]


def crash_error(module: str, error: WorkerDiedError) -> CompilerCrashError:
    """A worker that died during a compilation, with its status and last words."""
    return CompilerCrashError(
        module,
        f"LLVM ended with {describe_exit(error.exit_status)}",
        exit_status=error.exit_status,
        stderr_tail=error.stderr_tail,
    )


def timeout_error(
    module: str, timeout_s: float, decisions: int, worker: Worker
) -> CompilationTimeoutError:
    """A worker that outran its deadline of so many seconds after so many decisions."""
    return CompilationTimeoutError(
        module,
        f"LLVM took more than its {timeout_s:g} s after {decisions} decisions",
        exit_status=None,
        stderr_tail=worker.stderr_tail(),
    )
