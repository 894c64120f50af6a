"""Sections of objects of the three formats, as clang writes them, whole and broken."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from corpus_tools.bitcode import split_modules
from corpus_tools.errors import ExtractionError
from corpus_tools.object_file import LARGEST_BYTES, ObjectFile, read_bounded
from tests.conftest import require
from tests.corpus_tools.extraction.conftest import run

TARGETS = {
    "ELF": ("x86_64-pc-linux-gnu", ".llvmbc", ".llvmcmd"),
    "Mach-O": ("arm64-apple-macosx13", "__LLVM,__bitcode", "__LLVM,__cmdline"),
    "COFF": ("x86_64-pc-windows-msvc", ".llvmbc", ".llvmcmd"),
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("objects")
    (folder / "a.c").write_text("int f(int x) { return x + 1; }")
    clang = require("clang-22", "clang-22")
    for name, (triple, _, _) in TARGETS.items():
        flags = [f"--target={triple}", "-O2", "-Xclang", "-fembed-bitcode=all", "-c", "a.c"]
        run(clang, *flags, "-o", f"{name}.o", cwd=folder)
    return {name: (folder / f"{name}.o").read_bytes() for name in TARGETS}


@pytest.mark.parametrize("format_name", TARGETS)
def test_sections(format_name: str, objects: dict[str, bytes]) -> None:
    file = ObjectFile.parse(objects[format_name])
    _, bitcode, command = TARGETS[format_name]
    assert file.format == format_name
    assert len(split_modules(file.contents(bitcode) or b"")) == 1
    assert (file.contents(command) or b"").startswith(b"-cc1\0-triple\0")
    assert file.contents(".nothing") is None


def test_elf_sections_are_those_that_llvm_sees(objects: dict[str, bytes], tmp_path: Path) -> None:
    objcopy = require("llvm-objcopy-22", "llvm-22")
    (tmp_path / "a.o").write_bytes(objects["ELF"])
    for name in (".llvmbc", ".llvmcmd", ".text"):
        dumped = tmp_path / "dumped"
        run(objcopy, f"--dump-section={name}={dumped}", tmp_path / "a.o", os.devnull)
        assert ObjectFile.parse(objects["ELF"]).contents(name) == dumped.read_bytes()


def test_many_sections_of_the_same_bytes() -> None:
    """So many headers would make a few kilobytes a thousand times as many."""
    count, names = 1000, b"\0.llvmbc\0"
    size = 64 * count + 64 + len(names)
    header = struct.pack(
        "<16s2H5I6H", b"\x7fELF\1\1\1", 1, 3, 1, 0, 0, 52, 0, 52, 0, 0, 40, count, 0
    )
    table = struct.pack("<10I", 1, 3, 0, 0, 52 + 40 * count, len(names), 0, 0, 1, 0)
    table += struct.pack("<10I", 1, 1, 0, 0, 0, size // 2, 0, 0, 1, 0) * (count - 1)
    file = ObjectFile.parse((header + table + names).ljust(size, b"\0"))
    with pytest.raises(ExtractionError) as caught:
        file.contents(".llvmbc")
    expected = f"expected at most {size} bytes, found {(count - 1) * (size // 2) + len(names)}"
    assert str(caught.value) == f"sections '.llvmbc': {expected}"


def test_compiler(objects: dict[str, bytes], tmp_path: Path) -> None:
    assert "clang version 22" in (ObjectFile.parse(objects["ELF"]).compiler() or "")
    (tmp_path / "a.c").write_text("int f(int x) { return x + 1; }")
    run(require("gcc", "gcc"), "-c", "a.c", "-o", "a.o", cwd=tmp_path)
    file = ObjectFile.parse((tmp_path / "a.o").read_bytes())
    assert (file.compiler() or "").startswith("GCC: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an object file, found an empty file"),
        (b"int main;", "expected an object file, found one that starts with b'int '"),
        (b"\x7fELF", "expected an object file, found another kind (ELF type 0)"),
        (
            b"\x7fELF" + bytes(12) + b"\1\0",
            "truncated: expected 0 sections, found 0",
        ),
        (b"\xcf\xfa\xed\xfe", "expected an object file, found one that LIEF cannot read"),
        (b"\x64\x86\xff\xff", "expected an object file, found one that LIEF cannot read"),
    ],
)
def test_no_objects(data: bytes, message: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        ObjectFile.parse(data)
    assert str(caught.value) == message


def test_a_linked_program_is_no_object() -> None:
    program = Path(require("clang-22", "clang-22")).resolve().read_bytes()
    with pytest.raises(ExtractionError, match=r"found another kind \(ELF type [23]\)"):
        ObjectFile.parse(program)


@pytest.mark.parametrize("end", [0.3, 0.6, 0.9, 0.99])
def test_truncated_objects(end: float, objects: dict[str, bytes]) -> None:
    data = objects["ELF"]
    with pytest.raises(ExtractionError, match=r"^truncated: "):
        ObjectFile.parse(data[: int(len(data) * end)])


def test_a_section_outside_the_file(objects: dict[str, bytes]) -> None:
    file = ObjectFile.parse(objects["ELF"])
    cut = ObjectFile("ELF", file.data, ((".llvmbc", 100, len(file.data)),))
    with pytest.raises(ExtractionError) as caught:
        cut.contents(".llvmbc")
    size = len(file.data)
    message = f"truncated: section '.llvmbc' ends at byte {size + 100} of {size}"
    assert str(caught.value) == message


@pytest.mark.parametrize("format_name", TARGETS)
def test_any_damage_is_an_error_or_harmless(format_name: str, objects: dict[str, bytes]) -> None:
    draw = random.Random(format_name)  # noqa: S311 - no cryptography
    names = [name for target in TARGETS.values() for name in target[1:]]
    outcomes: set[object] = set()
    for _ in range(400):
        data = bytearray(objects[format_name])
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(min(len(data), 600))] = draw.randrange(256)
        try:
            file = ObjectFile.parse(bytes(data))
            outcomes.add(bool([file.contents(name) for name in names]))
        except ExtractionError as error:
            outcomes.add(type(error).__name__)
    assert outcomes == {True, "ExtractionError"}


def test_unreadable_files(tmp_path: Path) -> None:
    huge = tmp_path / "huge.o"
    with huge.open("wb") as stream:
        stream.truncate(LARGEST_BYTES + 1)
    os.mkfifo(tmp_path / "fifo.o")
    rows = {
        huge: f"cannot be read: expected at most {LARGEST_BYTES} bytes, found {LARGEST_BYTES + 1}",
        tmp_path / "fifo.o": "cannot be read: expected a regular file, found a FIFO",
        tmp_path: "cannot be read: Is a directory",
        tmp_path / "none.o": "cannot be read: No such file or directory",
    }
    for path, message in rows.items():
        with pytest.raises(ExtractionError) as caught:
            read_bounded(path)
        assert str(caught.value) == message


def test_an_object_of_two_architectures(objects: dict[str, bytes]) -> None:
    """Darwin's fat files: a table of where each architecture's object is, in big endian."""
    data = objects["Mach-O"]
    arm, intel, align = 0x0100000C, 0x01000007, 12
    size = -(-len(data) // 4096) * 4096
    fat = struct.pack(">2I", 0xCAFEBABE, 2)
    for index, (cpu, subtype) in enumerate(((arm, 0), (intel, 3))):
        fat += struct.pack(">5I", cpu, subtype, 4096 + index * size, len(data), align)
    fat = fat.ljust(4096, b"\0") + data.ljust(size, b"\0") * 2
    with pytest.raises(ExtractionError) as caught:
        ObjectFile.parse(fat)
    assert str(caught.value) == "expected one architecture, found 2 in one Mach-O file"
