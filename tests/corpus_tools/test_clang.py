"""Finding clang and running it, with the real one and with programs that are none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus_tools import Clang, find_clang
from corpus_tools.clang import SourceFile, link_image
from corpus_tools.errors import CompileError, ToolchainError
from mlgo_gym.corpus import read_elf

Disassemble = Callable[[bytes], str]

_HINT = "on Debian or Ubuntu: apt-get install clang-22"
_LOOKED_FOR = "clang, clang-22, clang-21, clang-20, clang-19"


def _program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def _printing(path: Path, line: str) -> Path:
    return _program(path, f"print({line!r})")


def test_the_named_clang_is_asked_for_its_version(clang22: Clang) -> None:
    banner = subprocess.run(
        [clang22.path, "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    assert clang22.path.is_absolute()
    assert clang22.banner == banner
    assert clang22.version[0] == 22


def test_the_first_candidate_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _printing(tmp_path / "clang", "Debian clang version 14.0.6")
    _printing(tmp_path / "clang-21", "clang version 21.1.0 (vendor)")
    _printing(tmp_path / "clang-20", "clang version 20.1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_clang()
    assert (found.path, found.version) == (tmp_path / "clang-21", (21, 1, 0))


def test_no_clang_at_all_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        find_clang()
    assert str(caught.value) == f"no clang >= 19 found (looked for {_LOOKED_FOR}); {_HINT}"


def test_candidates_that_are_too_old_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = _printing(tmp_path / "clang", "clang version 14.0.6")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        find_clang()
    note = f"{clang}: expected clang >= 19, found 14.0.6"
    assert str(caught.value) == (
        f"no clang >= 19 found (looked for {_LOOKED_FOR}; found {note}); {_HINT}"
    )


def test_a_named_clang_that_is_too_old_is_refused(tmp_path: Path) -> None:
    path = _printing(tmp_path / "clang", "clang version 18.1.8")
    with pytest.raises(ToolchainError) as caught:
        find_clang(path)
    assert str(caught.value) == f"{path}: expected clang >= 19, found 18.1.8"


def test_a_named_clang_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clang"
    with pytest.raises(ToolchainError) as caught:
        find_clang(path)
    assert str(caught.value) == f"no clang >= 19 found (looked for {path}); {_HINT}"


def test_a_program_that_is_no_clang_is_refused(tmp_path: Path) -> None:
    path = _printing(tmp_path / "clang", "gcc 12")
    with pytest.raises(ToolchainError) as caught:
        find_clang(path)
    found = "found --version says 'gcc 12'"
    assert str(caught.value) == f"no clang >= 19 found (looked for {path}; {found}); {_HINT}"


def test_a_file_that_does_not_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clang"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"does not run: .*Exec format error"):
        find_clang(path)


def test_a_source_that_does_not_compile_is_named_with_clang_s_words(
    clang22: Clang, tmp_path: Path
) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return missing; }\n")
    with pytest.raises(CompileError) as caught:
        SourceFile(clang22, "a.c", tmp_path).compile(tmp_path / "a.bc")
    error = caught.value
    assert (error.source, error.exit_status) == ("a.c", 1)
    first_line = "a.c:1:22: error: use of undeclared identifier 'missing'"
    assert str(error).splitlines()[:2] == ["a.c: clang exited with 1", first_line]


def test_only_the_last_lines_of_stderr_are_kept(clang22: Clang, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "".join(f"int f{i}(void) {{ return m{i}; }}\n" for i in range(15))
    )
    with pytest.raises(CompileError) as caught:
        SourceFile(clang22, "a.c", tmp_path).compile(tmp_path / "a.bc")
    assert len(caught.value.stderr_tail.splitlines()) == 20
    assert caught.value.stderr_tail.endswith(" errors generated.")


def test_a_clang_that_is_killed_is_reported_with_its_signal(tmp_path: Path) -> None:
    path = _program(tmp_path / "clang", "import os\nos.kill(os.getpid(), 9)")
    killed = Clang(path, (22, 0, 0), "clang version 22.0.0")
    with pytest.raises(CompileError) as caught:
        SourceFile(killed, "a.c", tmp_path).compile(tmp_path / "a.bc")
    assert str(caught.value) == "a.c: clang was killed by signal 9"
    assert caught.value.exit_status == -9


def test_a_clang_past_its_deadline_is_killed(tmp_path: Path) -> None:
    path = _program(tmp_path / "clang", "import time\ntime.sleep(600)")
    slow = Clang(path, (22, 0, 0), "clang version 22.0.0")
    with pytest.raises(CompileError) as caught:
        SourceFile(slow, "a.c", tmp_path).compile(tmp_path / "a.bc", deadline_s=0.2)
    assert str(caught.value) == "a.c: clang ran past its deadline of 0.2 s"


def test_a_clang_that_has_gone_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "clang"
    gone = Clang(path, (22, 0, 0), "clang version 22.0.0")
    with pytest.raises(CompileError) as caught:
        SourceFile(gone, "a.c", tmp_path).corpus_command()
    assert str(caught.value) == f"a.c: {path} does not run: No such file or directory"


def test_a_file_that_is_only_linked_has_no_command(clang22: Clang, tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(b"")
    with pytest.raises(CompileError) as caught:
        SourceFile(clang22, "a.o", tmp_path).corpus_command()
    assert str(caught.value) == "a.o: expected one -cc1 command, found 0"


def test_a_path_that_must_be_kept_is_an_error(clang22: Clang, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    flags = ("-Xclang", "-fprofile-list=/tmp/functions")
    with pytest.raises(CompileError) as caught:
        SourceFile(clang22, "a.c", tmp_path, flags).corpus_command()
    found = "'-fprofile-list=/tmp/functions'"
    assert str(caught.value) == f"a.c: expected a command without paths, found {found}"


def _bitcode(clang: Clang, root: Path, text: str, flags: tuple[str, ...] = ()) -> bytes:
    root.mkdir()
    (root / "a.c").write_text(text)
    SourceFile(clang, "a.c", root, flags).compile(root / "a.bc")
    return (root / "a.bc").read_bytes()


def test_neither_folder_nor_clock_reach_the_bitcode(
    clang22: Clang, tmp_path: Path, disassemble: Disassemble
) -> None:
    text = "const char *f(void) { return __FILE__ __DATE__ __TIME__; }\n"
    first = _bitcode(clang22, tmp_path / "first", text, ("-g",))
    second = _bitcode(clang22, tmp_path / "the second", text, ("-g",))
    assert first == second
    listing = disassemble(first)
    assert "a.cJan  1 198000:00:00" in listing
    assert str(tmp_path) not in listing


def test_variables_of_the_caller_do_not_reach_clang(
    clang22: Clang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "mine.h").write_text("")
    monkeypatch.setenv("CPATH", str(tmp_path / "include"))
    with pytest.raises(CompileError, match=r"'mine\.h' file not found"):
        _bitcode(clang22, tmp_path / "src", "#include <mine.h>\n")


def test_the_bitcode_is_not_optimised_yet(
    clang22: Clang, tmp_path: Path, disassemble: Disassemble
) -> None:
    text = "static int g(int x) { return x * 3; }\nint f(int x) { return g(x); }\n"
    listing = disassemble(_bitcode(clang22, tmp_path / "src", text))
    assert "call i32 @g(" in listing
    assert "minsize" in listing
    assert "optnone" not in listing


def test_an_image_is_linked_for_its_addresses(clang22: Clang, tmp_path: Path) -> None:
    source, made = tmp_path / "f.c", tmp_path / "f.o"
    source.write_text("int g(int); int f(int x) { return g(x) + 1; }\n")
    subprocess.run([clang22.path, "-O1", "-c", str(source), "-o", str(made)], check=True)
    output, at = tmp_path / "image", 0x10000000
    how: dict[str, Any] = {"entry": "f", "address": at}
    link_image(clang22, made, output, **how, symbols={"g": at + 0x1234})
    elf = read_elf(output.read_bytes())
    assert elf is not None
    assert elf.entrypoint == at
    code = bytes(elf.get_content_from_virtual_address(at, 16))
    call = code.index(0xE8)
    target = at + call + 5 + int.from_bytes(code[call + 1 : call + 5], "little", signed=True)
    assert target == at + 0x1234
    with pytest.raises(CompileError, match=r"(?s)exited with 1\n.*undefined reference to `g'"):
        link_image(clang22, made, output, **how, symbols={})
