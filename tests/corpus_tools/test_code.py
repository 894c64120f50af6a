"""The code in objects of every format, and what is said of two that differ."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import lief
import pytest

from corpus_tools import Clang
from corpus_tools.code import CodeSection, code_sections, difference
from corpus_tools.errors import ExtractionError

SOURCE = """
int external(int);
extern int data;
int first(int a) { return external(a) + data; }
__attribute__((section("OTHER"))) int second(int a) { return external(a + 1); }
static int initialised = 7;
int *pointer(void) { return &initialised; }
"""
TARGETS = {
    "x86_64-linux-gnu": (".other", [".text", ".other"]),
    "aarch64-linux-gnu": (".other", [".text", ".other"]),
    "x86_64-apple-macosx11": (
        "__TEXT,__other,regular,pure_instructions",
        ["__text", "__other"],
    ),
    "x86_64-pc-windows-msvc": (".other", [".text", ".other"]),
}


def compiled(clang: Clang, folder: Path, target: str, text: str, *flags: str) -> bytes:
    (folder / "a.c").write_text(text.replace("OTHER", TARGETS[target][0]))
    command = [str(clang.path), f"--target={target}", "-O1", "-c", "a.c", "-o", "a.o", *flags]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "a.o").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_sections_that_hold_code(clang22: Clang, tmp_path: Path, target: str) -> None:
    found = code_sections(compiled(clang22, tmp_path, target, SOURCE), "a.o")
    assert [each.name for each in found] == TARGETS[target][1]
    assert all(each.content and each.relocations for each in found)
    assert any("external" in each for each in found[1].relocations)


@pytest.mark.parametrize("target", TARGETS)
def test_a_call_of_another_function_is_a_difference(
    clang22: Clang, tmp_path: Path, target: str
) -> None:
    one = code_sections(compiled(clang22, tmp_path, target, SOURCE), "a.o")
    other_text = SOURCE.replace("external", "outside!"[:8].replace("!", "e"))
    other = code_sections(compiled(clang22, tmp_path, target, other_text), "a.o")
    assert difference(one, one) is None
    assert difference(one, other) == f"{one[0].name}: the same bytes with other relocations"


def section(name: str, content: bytes, *relocations: str) -> CodeSection:
    return CodeSection(name, content, relocations)


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        ([], [], None),
        ([section("a", b"1")], [section("a", b"1")], None),
        ([section("a", b"1")], [], "a: expected 1 bytes, found none"),
        ([], [section("a", b"12")], "a: expected none, found 2 bytes"),
        ([section("a", b"1")], [section("b", b"1")], "expected a next, found b"),
        ([section("a", b"123")], [section("a", b"12")], "a: expected 3 bytes, found 2"),
        ([section("a", b"123")], [section("a", b"143")], "a: other bytes from offset 1 of 3"),
        (
            [section("a", b"1", "f")],
            [section("a", b"1", "g")],
            "a: the same bytes with other relocations",
        ),
    ],
)
def test_differences_in_words(
    expected: list[CodeSection], found: list[CodeSection], message: str | None
) -> None:
    assert difference(expected, found) == message


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "found an empty file"),
        (b"junk", "found one that starts with b'junk'"),
        (b"\x7fELF", "found another kind (ELF type 0)"),
        (b"BC\xc0\xde" * 40, "found one that starts with b'BC\\xc0\\xde'"),
    ],
)
def test_what_is_no_object(data: bytes, problem: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        code_sections(data, "m")
    assert str(caught.value) == f"object m: expected an object file, {problem}"


def test_an_object_that_was_cut_short(clang22: Clang, tmp_path: Path) -> None:
    """Nothing but the package's own error, wherever the end is."""
    data = compiled(clang22, tmp_path, "x86_64-linux-gnu", SOURCE)
    for end in range(0, len(data), 37):
        try:
            code_sections(data[:end], "m")
        except ExtractionError as error:
            assert str(error).startswith("object m: ")


@pytest.mark.parametrize("name", [b"strict", b"text"], ids=["symbol", "section"])
@pytest.mark.parametrize("target", TARGETS)
def test_names_that_are_no_text(target: str, name: bytes, clang22: Clang, tmp_path: Path) -> None:
    """Either they do not matter, or the package's own error says so."""
    source = "int strict(int); int f(int x) { return strict(x) + 1; }\n"
    data = compiled(clang22, tmp_path, target, source).replace(name, b"\xff" + name[1:])
    try:
        assert code_sections(data, "m")
    except ExtractionError as error:
        assert str(error).startswith("object m: ")


def test_names_of_private_labels_do_not_count(clang22: Clang, tmp_path: Path) -> None:
    """They are LLVM's, and depend on what it met before."""

    def assembled(label: str, text: str) -> tuple[CodeSection, ...]:
        source = tmp_path / f"{label}.s"
        strings = f'.section .rodata.str1.1,"aMS",@progbits,1\n.L{label}: .asciz "{text}"\n'
        source.write_text(f".text\nleaq .L{label}(%rip), %rdi\n{strings}")
        output = tmp_path / f"{label}.o"
        subprocess.run([clang22.path, "-c", source, "-o", output], check=True)
        return code_sections(output.read_bytes(), label)

    assert difference(assembled("one", "text"), assembled("two", "text")) is None


def test_a_relocation_of_no_symbol(clang22: Clang, tmp_path: Path) -> None:
    """One whose symbol's number is beyond the table: its type and addend are what is compared."""
    source = "void external(void); void first(void) { external(); }\n"
    data = bytearray(compiled(clang22, tmp_path, "x86_64-linux-gnu", source, "-fno-plt"))
    parsed = lief.ELF.parse(list(data))
    assert parsed is not None
    table = parsed.get_section(".rela.text")
    assert table is not None
    struct.pack_into("<I", data, table.offset + 12, 9999)
    (found,) = code_sections(bytes(data), "a.o")
    (relocation,) = found.relocations
    assert relocation.split()[0].startswith("TYPE.X86_64_")
    assert relocation.split()[1:] == ["-4"]


INTERRUPTED = """
import signal, sys
from corpus_tools.command_line import Interruption

def interrupt(frame, *_):
    if "lief" in sys.modules and frame.f_code.co_filename.endswith("enum.py"):
        sys.setprofile(None)
        signal.raise_signal(signal.{})

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever our parent ignores
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with Interruption():
    sys.setprofile(interrupt)
    try:
        import corpus_tools.code
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_waits_until_lief_is_loaded(name: str) -> None:
    """LIEF's extension module ends the process where an exception comes while it loads."""
    command = [sys.executable, "-c", INTERRUPTED.format(name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
