"""LLVM IR to an object file; what a graph that is not trusted does to LLVM, it does in a child."""

from __future__ import annotations

import importlib
import os
import resource
import subprocess
import sys
from dataclasses import asdict
from typing import Final

from corpus_tools.sandbox import confine
from mlgo_gym.base import EnvironmentSetupError, ModelError
from mlgo_gym.llvm import (
    FrameDecoder,
    NativeObject,
    child_command,
    child_environment,
    encode_frame,
    lower,
)

DEFAULT_TIMEOUT_S: Final = 60.0
"""How long compiling a graph may take, in seconds."""

_STDERR_CHARACTERS: Final = 2000
_MEMORY_BYTES: Final = 1 << 33
_GRACE_S: Final = 5


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
        from mlgo_gym.llvm import BitcodeError, compile_native  # noqa: PLC0415 - children have their own

        try:
            return compile_native(text, None)
        except BitcodeError as error:
            raise ModelError(source, str(error)) from error
    request = encode_frame({"cpu": cpu, "target": target, "timeout_s": timeout_s}, text.encode())
    status, output, words = _run_child(request, source, timeout_s)
    if "not a recognized processor" in words:
        raise ModelError(source, f"expected a CPU that LLVM knows, found {cpu!r}")
    if status:
        death = subprocess.CalledProcessError(status, sys.executable)
        raise ModelError(source, f"the compiler died with status {status}: {words}") from death
    return _decode(output, source)


def _run_child(request: bytes, source: str, timeout_s: float) -> tuple[int, bytes, str]:
    """The child's exit status, its answer, and the end of what it said."""
    try:
        process = subprocess.Popen(
            child_command("mlgo_gym.model._compiler"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
        )
    except OSError as error:
        raise EnvironmentSetupError(f"cannot start {sys.executable}: {error}") from error
    with process:
        try:
            # While the child starts: what loads the object needs LLVM in this process, too.
            importlib.import_module("mlgo_gym.llvm.worker._binding")
            output, words = process.communicate(request, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                source, f"not compiled within {timeout_s:g} s; timeout_s lifts the limit"
            ) from error
        finally:
            process.kill()
    text = words.decode("utf-8", "replace").strip()
    return process.returncode, output, text[-_STDERR_CHARACTERS:]


def _decode(data: bytes, source: str) -> NativeObject:
    decoder = FrameDecoder()
    decoder.feed(data)
    message, payload = decoder.next_frame() or ({"error": "the compiler did not answer"}, b"")
    if "error" in message:
        raise ModelError(source, str(message["error"]))
    return NativeObject(payload, **message)


def main() -> None:
    """Serve the request in standard input, under limits that are set before LLVM is loaded."""
    output = os.dup(1)
    os.dup2(2, 1)  # nothing that LLVM prints can garble the answer
    decoder = FrameDecoder()
    decoder.feed(sys.stdin.buffer.read())
    request = decoder.next_frame()
    if request is None:
        sys.exit(1)
    message, text = request
    _limit(message["timeout_s"])
    answer = _answer(text.decode(), message["cpu"], message["target"])
    with os.fdopen(output, "wb") as file:
        file.write(answer)


def _answer(text: str, cpu: str | None, target: str | None) -> bytes:
    from mlgo_gym.llvm import BitcodeError, compile_native, host_cpu  # noqa: PLC0415 - under the limits

    host_cpu()
    confine()
    try:
        details = asdict(compile_native(text, cpu, target))
    except BitcodeError as error:
        return encode_frame({"error": str(error)})
    data = details.pop("data")
    return encode_frame(details, data)


def _limit(timeout_s: float) -> None:
    lower(resource.RLIMIT_CPU, timeout_s + _GRACE_S)
    lower(resource.RLIMIT_AS, _MEMORY_BYTES)
    lower(resource.RLIMIT_CORE, 0)
