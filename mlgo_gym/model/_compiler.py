"""LLVM IR to an object file; what a graph that is not trusted does to LLVM, it does in a worker."""

from __future__ import annotations

from typing import Final

from mlgo_gym.base import CompilationError, CompilationTimeoutError, ModelError, ModuleError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import Compiler, NativeObject, NativeRequest, plain_options

DEFAULT_TIMEOUT_S: Final = 60.0
"""How long compiling a graph may take, in seconds."""

_MEMORY_BYTES: Final = 1 << 33


def compile_ir(
    text: str,
    *,
    source: str,
    cpu: str | None = None,
    target: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> NativeObject:
    """Compile IR at -O3; what is trusted, for this CPU, in this process. Errors name ``source``."""
    # LLVM ends its process over a CPU that it does not know.
    if trusted and cpu is None and target is None:
        from mlgo_gym.llvm import BitcodeError, compile_native  # noqa: PLC0415 - loads LLVM

        try:
            return compile_native(text, None)
        except BitcodeError as error:
            raise ModelError(source, str(error)) from error
    module = Module.from_ir(text, source)
    request = NativeRequest(cpu, target, plain_options())
    try:
        with Compiler(timeout_s=timeout_s, peak_memory_bytes=_MEMORY_BYTES) as compiler:
            answer, data = compiler.inquire(module, request)
    except ModuleError as error:
        raise ModelError(source, error.reason) from error
    except CompilationTimeoutError as error:
        raise ModelError(
            source, f"not compiled within {timeout_s:g} s; timeout_s lifts the limit"
        ) from error
    except CompilationError as error:
        words = "\n".join(error.stderr_tail)
        _check_cpu(words, cpu, source)
        raise ModelError(
            source, f"the compiler died with status {error.exit_status}: {words}"
        ) from error
    _check_cpu("\n".join(answer["stderr"]), cpu, source)
    return NativeObject(data, **answer["native"])


def _check_cpu(words: str, cpu: str | None, source: str) -> None:
    """See what LLVM says of a CPU that it does not know, whether or not it goes on."""
    if "not a recognized processor" in words:
        raise ModelError(source, f"expected a CPU that LLVM knows, found {cpu!r}")
