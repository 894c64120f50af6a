"""Borders and targets of bitcode, on bitcode that clang wrote, whole and broken."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from corpus_tools.bitcode import MAGIC, is_bitcode, split_modules, target_triple
from corpus_tools.errors import ExtractionError
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from tests.conftest import require
from tests.corpus_tools.extraction.conftest import run

MODULES = sorted(SAMPLE_CORPUS.glob("*.bc"))
ONE = (SAMPLE_CORPUS / "frame_stream.c.bc").read_bytes()
TWO = (SAMPLE_CORPUS / "graph.cpp.bc").read_bytes()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_one_module(path: Path) -> None:
    data = path.read_bytes()
    assert is_bitcode(data)
    assert split_modules(data) == [data]


@pytest.mark.parametrize("padding", [b"", b"\0" * 4, b"\0" * 12])
def test_merged_modules_are_split(padding: bytes) -> None:
    merged = ONE + padding + TWO + padding + ONE + padding
    assert split_modules(merged) == [ONE, TWO, ONE]


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx13.0.0", "x86_64-pc-windows-msvc"]
)
def test_target(triple: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(int x) { return x + 1; }")
    clang = require("clang-22", "clang-22")
    flags = [f"--target={triple}", "-emit-llvm", "-c"]
    run(clang, *flags, tmp_path / "a.c", "-o", tmp_path / "a.bc")
    data = (tmp_path / "a.bc").read_bytes()
    assert is_bitcode(data)
    # Clang puts the version of its Microsoft compatibility behind msvc.
    found = target_triple(split_modules(data)[0])
    assert found is not None
    assert found.startswith(triple)


def test_wrapped_bitcode_is_split() -> None:
    header = struct.pack("<5I", 0x0B17C0DE, 0, 20, len(ONE), 7)
    wrapped = header + ONE
    wrapped += b"\0" * (-len(wrapped) % 16)
    assert split_modules(wrapped + wrapped) == [wrapped, wrapped]


LENGTH = len(ONE)
FIRST_END = 4 + 8 + 4 * struct.unpack_from("<I", ONE, 8)[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected bitcode, found nothing"),
        (b"\x7fELF", "expected bitcode at byte 0, found 7f 45 4c 46"),
        (ONE + b"text", f"expected a block at byte {LENGTH}, found something else"),
        (ONE + b"\0\0\0\0text", f"expected bitcode at byte {LENGTH + 4}, found 74 65 78 74"),
        (MAGIC, "expected a module in the bitcode at byte 0, found none"),
        (ONE[:5], "ends inside a value at byte 4 of 5"),
        (ONE[:FIRST_END], "expected a module in the bitcode at byte 0, found none"),
        (ONE[:40], f"block at byte {FIRST_END} ends at byte"),
        (ONE[:-4], f"of {LENGTH - 4}"),
        (MAGIC + b"\xfd" + b"\xff" * 19, "value of more than 64 bits at byte 14"),
        (
            struct.pack("<5I", 0x0B17C0DE, 0, 20, 999, 7),
            "wrapper at byte 0 leads to byte 1019 of 20",
        ),
    ],
)
def test_broken_bitcode(data: bytes, message: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        split_modules(data)
    assert message in str(caught.value)


def test_every_truncation_is_an_error() -> None:
    for end in range(4, LENGTH - 1, 7):
        with pytest.raises(ExtractionError):
            split_modules(ONE[:end])


class Stream:
    """Writes a bitstream, value by value."""

    def __init__(self) -> None:
        self.bits = ""

    def fixed(self, value: int, width: int) -> Stream:
        self.bits += f"{value:0{width}b}"[::-1]
        return self

    def vbr(self, value: int, width: int) -> Stream:
        more = 1 << (width - 1)
        while value >= more:
            self.fixed(value % more + more, width)
            value //= more
        return self.fixed(value, width)

    def record(self, code: int, operands: bytes) -> Stream:
        self.fixed(3, 3).vbr(code, 6).vbr(len(operands), 6)
        for each in operands:
            self.vbr(each, 6)
        return self

    def block(self, block_id: int, content: Stream, width: int = 3) -> Stream:
        data = content.words()
        self.vbr(block_id, 8).vbr(width, 4).pad().fixed(len(data) // 4, 32)
        self.bits += content.pad().bits
        return self

    def pad(self) -> Stream:
        self.bits += "0" * (-len(self.bits) % 32)
        return self

    def words(self) -> bytes:
        self.pad()
        return bytes(int(self.bits[at : at + 8][::-1], 2) for at in range(0, len(self.bits), 8))


def module_of(content: Stream) -> bytes:
    return MAGIC + Stream().fixed(1, 2).block(8, content).words()


def test_a_target_behind_abbreviations_and_blocks() -> None:
    """All that may stand before it is skipped, each by its own length."""
    triple = b"riscv64-unknown-linux-gnu"
    content = Stream().fixed(2, 3).vbr(5, 5)  # an abbreviation of five operands
    content.fixed(1, 1).vbr(300, 8)  # a literal
    content.fixed(0, 1).fixed(1, 3).vbr(40, 5)  # fixed, of a width
    content.fixed(0, 1).fixed(2, 3).vbr(6, 5)  # vbr, of a width
    content.fixed(0, 1).fixed(3, 3)  # array
    content.fixed(0, 1).fixed(4, 3)  # of 6-bit characters
    content.fixed(1, 3).block(17, Stream().record(2, b"another's"))
    content.record(1, b"\1").record(2, triple).record(2, b"second")
    module = module_of(content)
    assert split_modules(module + module) == [module, module]
    assert target_triple(module) == triple.decode()
    wrapped = struct.pack("<5I", 0x0B17C0DE, 0, 20, len(module), 7) + module
    assert target_triple(wrapped) == triple.decode()


@pytest.mark.parametrize(
    "content",
    [
        Stream(),
        Stream().record(1, b"\1").fixed(0, 3),
        Stream().fixed(5, 3).record(2, b"behind an abbreviated record"),
        Stream().fixed(1, 3).block(17, Stream().record(2, b"another's")).fixed(0, 3),
    ],
)
def test_a_module_without_a_target(content: Stream) -> None:
    assert target_triple(module_of(content)) is None


def test_the_target_of_what_is_no_module() -> None:
    with pytest.raises(ExtractionError, match="^expected a module in the bitcode at byte 0, found"):
        target_triple(MAGIC + Stream().fixed(1, 2).block(17, Stream()).words())
