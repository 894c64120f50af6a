"""LLVM IR to an object file, for this CPU or a named one.

A graph that is not trusted is compiled in a child process with a deadline: what it does to LLVM
stays there.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from mlgo_gym.errors import EnvironmentSetupError, ModelError
from mlgo_gym.llvm.process._frames import FrameDecoder, encode_frame
from mlgo_gym.llvm.process._launch import child_command, child_environment

DEFAULT_TIMEOUT_S: Final = 60.0
"""How long compiling a graph may take, in seconds."""

_STDERR_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class NativeObject:
    """An object file.

    Attributes:
        data: its bytes.
        cpu: LLVM's name of the CPU that it was compiled for.
        features: LLVM's list of that CPU's features; empty where the name says it all.
        triple: LLVM's name of the target.
        llvm_version: the LLVM that made it.
    """

    data: bytes
    cpu: str
    features: str
    triple: str
    llvm_version: str


def compile_ir(
    text: str,
    *,
    source: str,
    cpu: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> NativeObject:
    """Compile IR at -O3.

    Args:
        text: the module.
        source: what errors call it.
        cpu: LLVM's name of a CPU of this machine's architecture; ``None`` is this CPU.
        trusted: compile in this process, which saves starting another; only for this CPU.
        timeout_s: what the child process may take, in seconds.

    Raises:
        ModelError: LLVM refuses the module or does not know the CPU, dies, or takes too long.
        EnvironmentSetupError: the child process cannot be started.
    """
    if trusted and cpu is None:  # LLVM ends its process over a CPU that it does not know
        return _compile_here(text, source)
    request = encode_frame({"cpu": cpu, "timeout_s": timeout_s}, text.encode())
    status, output, words = _run_child(request, source, timeout_s)
    if "not a recognized processor" in words:
        raise ModelError(source, f"expected a CPU that LLVM knows, found {cpu!r}")
    if status:
        raise ModelError(source, f"the compiler died with status {status}: {words}")
    return _decode(output, source)


def _run_child(request: bytes, source: str, timeout_s: float) -> tuple[int, bytes, str]:
    """The child's exit status, its answer, and the end of what it said."""
    try:
        process = subprocess.Popen(
            child_command("mlgo_gym.native._child"),
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
            importlib.import_module("mlgo_gym.llvm.process._binding")
            output, words = process.communicate(request, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ModelError(source, f"not compiled within {timeout_s:g} s") from error
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


def _compile_here(text: str, source: str) -> NativeObject:
    from mlgo_gym.llvm.process import _binding as binding  # noqa: PLC0415 - a parent of children does not need LLVM

    try:
        result = binding.compile_native(text, None)
    except binding.BitcodeError as error:
        raise ModelError(source, str(error)) from error
    return NativeObject(
        result.data, result.cpu, result.features, result.triple, binding.llvm_version()
    )
