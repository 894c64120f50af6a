"""LLVM bitcode, as far as it can be read without LLVM: where its modules end, and their target.

A bitstream is a sequence of 32-bit little-endian words: the magic ``BC 0xC0DE``, then blocks.
A block begins with its abbreviation id (2 bits at the top level, always 1), its block id (vbr8),
the width of abbreviation ids inside (vbr4), padding to a word, and its length in words. Linkers
that merge sections put one such stream behind the other (``llvm/docs/BitCodeFormat.rst``,
``llvm/include/llvm/Bitstream/BitstreamReader.h``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corpus_tools.errors import ExtractionError

MAGIC: Final = b"BC\xc0\xde"
_WRAPPER_MAGIC: Final = b"\xde\xc0\x17\x0b"
_WRAPPER_SIZE: Final = 20
_WORD: Final = 4
_WIDEST_VALUE: Final = 64
_ZEROS: Final = re.compile(rb"\0*")

# Abbreviation ids that every block has; 0 ends one.
_ENTER_BLOCK: Final = 1
_DEFINE_ABBREVIATION: Final = 2
_UNABBREVIATED: Final = 3
_MODULE_BLOCK: Final = 8
_NAMES_BLOCK: Final = 23
_HEADER: Final = 8  # of a block at the top level, in bytes: its id, a width, and its length
_TRIPLE_RECORD: Final = 2
# Encodings of an abbreviation's operands that have a value of their own: fixed and vbr.
_SIZED_ENCODINGS: Final = frozenset({1, 2})


def is_bitcode(data: bytes) -> bool:
    """Whether a file or section starts as bitcode does, Darwin's wrapper included."""
    return data[:4] in {MAGIC, _WRAPPER_MAGIC}


def split_modules(data: bytes) -> list[bytes]:
    """Cut bitcode at the borders of its modules.

    Args:
        data: one or more bitstreams, with zeros between them at most.

    Returns:
        One bitstream for each module, such that together they are ``data`` without the zeros.

    Raises:
        ExtractionError: it is something else, or ends too early.
    """
    modules = []
    position = 0
    while position < len(data):
        end = _end_of_stream(data, position)
        modules.append(data[position:end])
        position = _after_zeros(data, end)
    if not modules:
        raise ExtractionError("expected bitcode, found nothing")
    return modules


def main_module(stream: bytes) -> bytes:
    """The bitstream of the first of several modules, which share their names; others as they are.

    ``-fsplit-lto-unit`` makes two of one (``ThinLTOBitcodeWriter.cpp``): the code comes first, then
    what belongs to virtual tables.

    Args:
        stream: as `split_modules` returns it.
    """
    if stream.startswith(_WRAPPER_MAGIC):
        return stream
    blocks = list(_blocks(stream, 0))
    modules = [each for each in blocks if each.id == _MODULE_BLOCK]
    if len(modules) == 1:
        return stream
    names = (stream[each.start - _HEADER : each.end] for each in blocks if each.id == _NAMES_BLOCK)
    return stream[: modules[0].end] + b"".join(names)


def target_triple(module: bytes) -> str | None:
    """The target that a module was made for, such as ``x86_64-pc-linux-gnu``.

    Args:
        module: one bitstream.

    Returns:
        The triple, or None where the module names none.

    Raises:
        ExtractionError: the module is broken.
    """
    start = _WRAPPER_SIZE if module.startswith(_WRAPPER_MAGIC) else 0
    block = next(each for each in _blocks(module, start) if each.id == _MODULE_BLOCK)
    return _triple_in(_Bits(module, block.start * 8), block)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block at the top level: its id, width of abbreviation ids, and bytes it lies between."""

    id: int
    width: int
    start: int
    end: int


class _Bits:
    """A position in a bitstream, counted in bits."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def fixed(self, width: int) -> int:
        start, end = self.position, self.position + width
        if end > len(self._data) * 8:
            raise ExtractionError(f"ends inside a value at byte {start // 8} of {len(self._data)}")
        self.position = end
        word = int.from_bytes(self._data[start // 8 : (end + 7) // 8], "little")
        return (word >> (start % 8)) & ((1 << width) - 1)

    def vbr(self, width: int) -> int:
        value, shift, more = 0, 0, 1 << (width - 1)
        while True:
            piece = self.fixed(width)
            value |= (piece & (more - 1)) << shift
            if not piece & more:
                return value
            shift += width - 1
            if shift > _WIDEST_VALUE:
                raise ExtractionError(f"value of more than 64 bits at byte {self.position // 8}")

    def block_header(self) -> tuple[int, int, int]:
        """The numbers behind the id that enters a block: its id, width of ids, length in bytes."""
        block_id, width = self.vbr(8), self.vbr(4)
        self.position = -(-self.position // 32) * 32
        return block_id, width, self.fixed(32) * _WORD


def _end_of_stream(data: bytes, start: int) -> int:
    if data[start : start + 4] == _WRAPPER_MAGIC:
        header = data[start : start + _WRAPPER_SIZE]
        end = start + sum(int.from_bytes(header[at : at + 4], "little") for at in (8, 12))
        if len(header) < _WRAPPER_SIZE or end > len(data):
            raise ExtractionError(f"wrapper at byte {start} leads to byte {end} of {len(data)}")
        # Padded to a whole number of 16 bytes (``BitcodeWriter.cpp``).
        return min(start + -(-(end - start) // 16) * 16, len(data))
    end = start
    for block in _blocks(data, start):
        end = block.end
    return end


def _blocks(data: bytes, start: int) -> Iterator[_Block]:
    """The blocks of the one stream that starts there, up to the next stream or the end."""
    magic = data[start : start + 4]
    if magic != MAGIC:
        raise ExtractionError(
            f"expected bitcode at byte {start}, found {magic.hex(' ') or 'the end'}"
        )
    position = start + len(MAGIC)
    has_module = False
    while position < len(data) and not (has_module and _is_border(data, position)):
        block = _block(data, position)
        has_module = has_module or block.id == _MODULE_BLOCK
        yield block
        position = block.end
    if not has_module:
        raise ExtractionError(f"expected a module in the bitcode at byte {start}, found none")


def _is_border(data: bytes, position: int) -> bool:
    """Whether a stream with a module ends here: padding or another stream follows."""
    return data[position : position + 4] in {MAGIC, _WRAPPER_MAGIC, b"\0\0\0\0"}


def _block(data: bytes, position: int) -> _Block:
    bits = _Bits(data, position * 8)
    if bits.fixed(2) != _ENTER_BLOCK:
        raise ExtractionError(f"expected a block at byte {position}, found something else")
    block_id, width, length = bits.block_header()
    start = bits.position // 8
    if start + length > len(data):
        raise ExtractionError(
            f"block at byte {position} ends at byte {start + length} of {len(data)}"
        )
    return _Block(block_id, width, start, start + length)


def _after_zeros(data: bytes, position: int) -> int:
    zeros = _ZEROS.match(data, position)
    return zeros.end() if zeros else position


def _triple_in(bits: _Bits, block: _Block) -> str | None:
    while bits.position < block.end * 8:
        abbreviation = bits.fixed(block.width)
        if abbreviation == _ENTER_BLOCK:
            *_, length = bits.block_header()
            bits.position += length * 8
        elif abbreviation == _DEFINE_ABBREVIATION:
            _skip_abbreviation(bits)
        elif abbreviation == _UNABBREVIATED:
            code, operands = _record(bits)
            if code == _TRIPLE_RECORD:
                return bytes(operand & 0xFF for operand in operands).decode("utf-8", "replace")
        else:  # the end, or an abbreviated record: those come behind the triple
            return None
    return None


def _skip_abbreviation(bits: _Bits) -> None:
    for _ in range(bits.vbr(5)):
        if bits.fixed(1):
            bits.vbr(8)
        elif bits.fixed(3) in _SIZED_ENCODINGS:
            bits.vbr(5)


def _record(bits: _Bits) -> tuple[int, list[int]]:
    code, count = bits.vbr(6), bits.vbr(6)
    return code, [bits.vbr(6) for _ in range(count)]
