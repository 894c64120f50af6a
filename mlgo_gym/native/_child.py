"""What a compiling process runs: one graph's IR in, one object out, then it ends.

Both are frames (`llvm.process._frames`), over standard input and standard output. Limits on time
and memory are set before LLVM is loaded, so a graph made to exhaust the compiler ends this process
and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys

from mlgo_gym.llvm.process._frames import FrameDecoder, encode_frame

_MEMORY_BYTES = 1 << 33
_GRACE_S = 5


def main() -> None:
    """Serve the one request that standard input holds."""
    output = os.dup(1)
    os.dup2(2, 1)  # nothing that LLVM prints can garble the answer
    decoder = FrameDecoder()
    decoder.feed(sys.stdin.buffer.read())
    request = decoder.next_frame()
    if request is None:
        sys.exit(1)
    message, text = request
    _limit(message["timeout_s"])
    answer = _compile(text.decode(), message["cpu"])
    with os.fdopen(output, "wb") as file:
        file.write(answer)


def _compile(text: str, cpu: str | None) -> bytes:
    from mlgo_gym.llvm.process import _binding as binding  # noqa: PLC0415 - under the limits

    try:
        result = binding.compile_native(text, cpu)
    except binding.BitcodeError as error:
        return encode_frame({"error": str(error)})
    details = {
        "cpu": result.cpu,
        "features": result.features,
        "triple": result.triple,
        "llvm_version": binding.llvm_version(),
    }
    return encode_frame(details, result.data)


def _limit(timeout_s: float) -> None:
    seconds = int(timeout_s) + _GRACE_S
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
            resource.setrlimit(limit, (value, value))
