"""What is said where TensorFlow ends the process, as it may without memory or descriptors.

Nothing of Python runs any more then. The handlers of the signals are machine code, made by the
embedded LLVM while there is memory: each writes a line, and ends the process with the status of any
other error. What is temporary goes with the next start, as after a kill.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_ENDED: Final = (
    "mlgo-gym: error: {command}: expected TensorFlow to go on, found an end by {signal}, as "
    "without memory or descriptors; the same command goes on from what is written\n"
)
_DECLARED: Final = """
declare i64 @write(i32, ptr, i64)
declare void @_exit(i32)
"""
_HANDLER: Final = """
@text_{number} = internal constant [{size} x i8] c"{text}"
define void @on_{number}(i32 %signal) {{
  %written = call i64 @write(i32 2, ptr @text_{number}, i64 {size})
  call void @_exit(i32 1)
  unreachable
}}
"""
_REFERENCE: Final = "declare void @on_{number}(i32)\n"


@contextmanager
def told_of_ends(options: argparse.Namespace) -> Iterator[None]:
    """As long as a command that uses TensorFlow runs, an end by a signal is an error of it.

    Where Python itself is to say where it ended (``-X faulthandler``), that is left alone.
    """
    command = getattr(options, "uses_tensorflow", None)
    if command is None or faulthandler.is_enabled():
        yield
        return
    from mlgo_gym.llvm.process import _binding as binding

    texts = {each: _ENDED.format(command=command, signal=each.name).encode() for each in _SIGNALS}
    handlers = "".join(_handler(number, text) for number, text in texts.items())
    references = "".join(_REFERENCE.format(number=int(each)) for each in _SIGNALS)
    data = binding.compile_native(_DECLARED + handlers, None).data
    code = binding.LoadedCode(data, references)
    before = {each: _handle(each, code.address(f"on_{int(each)}")) for each in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            _handle(number, handler)
        code.close()


def _handler(number: int, text: bytes) -> str:
    escaped = "".join(f"\\{byte:02x}" for byte in text)
    return _HANDLER.format(number=int(number), size=len(text), text=escaped)


def _handle(number: int, handler: int | None) -> int | None:
    """Have a function handle a signal; what did so before."""
    install = ctypes.CDLL(None).signal
    install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    before: int | None = install(number, handler)
    return before
