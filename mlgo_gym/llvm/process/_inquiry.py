"""Asking a worker something about a module other than to compile it."""

from __future__ import annotations

from time import monotonic
from typing import Any

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import ModuleError
from mlgo_gym.llvm.process._failures import crash_of, timeout_error
from mlgo_gym.llvm.process._worker import Worker, WorkerDiedError


def inquire(
    worker: Worker, module: Module, request: dict[str, Any], timeout_s: float
) -> tuple[dict[str, Any], bytes]:
    """Send a request about a module and wait for the answer.

    Args:
        worker: an idle one; it is killed where it does not answer.
        module: what is asked about.
        request: ``op`` names a function of `llvm.process._answers`; the rest is for it.
        timeout_s: how long the worker may take, in seconds.

    Raises:
        ModuleError: LLVM refused the module.
        CompilerCrashError: the worker died.
        CompilationTimeoutError: the worker took too long.
    """
    try:
        worker.send(request | {"is_text": module.is_text}, module.data)
        answer, payload = _answer(worker, module.name, timeout_s)
    except WorkerDiedError as error:
        raise crash_of(module.name, error) from error
    except BaseException:
        worker.kill()
        raise
    if "error" in answer:
        raise ModuleError(module.name, answer["error"])
    return answer, payload


def _answer(worker: Worker, module: str, timeout_s: float) -> tuple[dict[str, Any], bytes]:
    deadline = monotonic() + timeout_s
    while (frame := worker.take_frame()) is None:
        if monotonic() >= deadline:
            raise timeout_error(module, timeout_s, worker)
        worker.wait(deadline - monotonic())
    return frame
