"""Sections of functions and data, and the table of significant addresses, as LLVM's options.

llvmlite passes none of ``llvm::TargetOptions``, so the worker writes three of its bits. They are in
one word of ``TargetMachine::Options`` (``llvm/include/llvm/Target/TargetOptions.h``), whose other
bits show whether it is that word.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from mlgo_gym.base import EnvironmentSetupError

_WORD_OFFSET: Final = 772
"""Of the word from ``UseInitArray`` to ``BBAddrMap`` in a ``TargetMachine``."""
_FUNCTION_SECTIONS, _DATA_SECTIONS, _EMIT_ADDRSIG = 1 << 2, 1 << 3, 1 << 27
_SHAPE_MASK: Final = 0x7FF
_SHAPE: Final = 0x60
"""The word's first bits by default: ``XCOFFTracebackTable`` and ``UniqueSectionNames`` are set."""


def set_sections(machine: Any, *, functions: bool, data: bool, addrsig: bool) -> None:
    """Have a target machine that was just made emit sections for each function and each datum.

    Args:
        machine: llvmlite's ``TargetMachine``.
        functions: as ``-ffunction-sections``.
        data: as ``-fdata-sections``.
        addrsig: as ``-faddrsig``, which is left out where the word is not there: a linker then
            folds less, and the code is the same.

    Raises:
        EnvironmentSetupError: sections are asked for, and the word is not there.
    """
    bits = functions * _FUNCTION_SECTIONS | data * _DATA_SECTIONS | addrsig * _EMIT_ADDRSIG
    if not bits:
        return
    address = ctypes.cast(machine._ptr, ctypes.c_void_p).value or 0  # noqa: SLF001 - no other way
    word = ctypes.c_uint32.from_address(address + _WORD_OFFSET)
    if word.value & _SHAPE_MASK == _SHAPE:
        word.value |= bits
    elif functions or data:
        raise EnvironmentSetupError(
            "-ffunction-sections, -fdata-sections: not with this LLVM: expected its options at "
            f"byte {_WORD_OFFSET} of a target machine, found {word.value:#x}; install the llvmlite "
            "that mlgo_gym asks for"
        )
