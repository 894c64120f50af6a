"""The error of compilations that LLVM did not finish in time."""

from __future__ import annotations

from mlgo_gym.errors import CompilationTimeoutError
from mlgo_gym.llvm.worker import Worker

__all__ = ["timeout_error"]


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
