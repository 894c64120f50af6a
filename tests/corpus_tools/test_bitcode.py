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
