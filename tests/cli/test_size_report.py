"""``mlgo-gym size-report``: objects, programs and functions of two real builds."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.cc._builds import read_kept_log
from mlgo_gym.cli._main import main
from tests.cli.command import check_refused

SOURCES = {
    "a.c": "static int g(int x) { return x * x; } int f(int x) { return g(x) + g(x + 1); }\n",
    "b.c": "int f(int); int main(void) { return f(3); }\n",
}


@pytest.fixture
def builds(tmp_path: Path, clang22: str) -> tuple[Path, Path]:
    folders = tmp_path / "before", tmp_path / "after <&>"
    for folder, level in zip(folders, ("-O0", "-O2"), strict=True):
        (folder / "lib").mkdir(parents=True)
        for name, text in SOURCES.items():
            (folder / "lib" / name).write_text(text)
            target = folder / "lib" / f"{name[0]}.o"
            subprocess.run(
                [clang22, level, "-c", target.with_suffix(".c"), "-o", target], check=True
            )
        objects = [folder / "lib" / "a.o", folder / "lib" / "b.o"]
        subprocess.run([clang22, *objects, "-o", folder / "program"], check=True)
    (folders[1] / "new.o").write_bytes((folders[1] / "lib" / "a.o").read_bytes())
    return folders


def test_sizes(builds: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = builds
    page = after.parent / "page.html"
    assert main(["size-report", str(before), str(after), "--json", "--html", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)
    sizes = {each["name"]: each for each in result["objects"]}
    for name in ("lib/a.o", "lib/b.o"):
        for key, folder in (("before_bytes", before), ("after_bytes", after)):
            sections = code_sections((folder / name).read_bytes(), name)
            assert sizes[name][key] == sum(len(each.content) for each in sections)
    assert sizes["new.o"]["before_bytes"] is None
    assert [each["name"] for each in result["linked"]] == ["program"]
    assert result["total"]["objects"]["before_bytes"] == sum(
        each["before_bytes"] for each in sizes.values() if each["before_bytes"] is not None
    )
    functions = {each["name"]: each for each in result["functions"]}
    assert functions["lib/a.o: g"]["after_bytes"] is None  # it was inlined
    assert functions["lib/a.o: f"]["before_bytes"] > functions["lib/a.o: f"]["after_bytes"]
    text = page.read_text()
    assert "after &lt;&amp;&gt;" in text
    assert text.count("<table>") == 3
    differing = [each for each in result["objects"] if each["before_bytes"] != each["after_bytes"]]
    objects = text.split("</table>")[0]
    assert objects.count("linear-gradient") == len(differing) > 0


def test_a_table_and_single_files(
    builds: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (str(folder / "lib" / "a.o") for folder in builds)
    assert main(["size-report", before, after, "--functions", "1"]) == 0
    out = capsys.readouterr().out
    assert "a.o" in out
    assert "%" in out
    assert out.count("a.o: ") == 1


def test_names_of_cplusplus(
    tmp_path: Path, clang22: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the source has them where people read, as the linker does in JSON."""
    source = tmp_path / "a.cpp"
    source.write_text("namespace n { int twice(int x) { return x * 2 / 3; } }\n")
    for level in ("-O0", "-O2"):
        subprocess.run([clang22, level, "-c", source, "-o", tmp_path / f"{level}.o"], check=True)
    files = [str(tmp_path / f"{level}.o") for level in ("-O0", "-O2")]
    assert main(["size-report", *files]) == 0
    assert "n::twice(int)" in capsys.readouterr().out
    assert main(["size-report", *files, "--json"]) == 0
    (function,) = json.loads(capsys.readouterr().out)["functions"]
    assert function["name"].endswith(": _ZN1n5twiceEi")


@pytest.mark.parametrize(
    "folder",
    [
        "CMakeFiles/3.25.1/CompilerIdC",
        "sub/CMakeFiles/CMakeTmp",
        "CMakeFiles/CMakeScratch/TryCompile-x",
        "meson-private",
    ],
)
def test_probes_of_build_systems_are_no_code_of_the_build(
    builds: tuple[Path, Path], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = builds
    for build in builds:
        (build / folder).mkdir(parents=True)
        for name in ("a.out", "probe.o"):
            (build / folder / name).write_bytes((build / "lib" / "a.o").read_bytes())
        (build / "CMakeFiles" / "program.dir").mkdir(parents=True)
        own = build / "CMakeFiles" / "program.dir" / "x.o"
        own.write_bytes((build / "lib" / "a.o").read_bytes())
    assert main(["size-report", str(before), str(after), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    names = {each["name"] for kind in ("objects", "linked") for each in result[kind]}
    assert names == {"lib/a.o", "lib/b.o", "new.o", "program", "CMakeFiles/program.dir/x.o"}


def test_what_one_build_lacks(builds: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    """The total says how much it is of, and what has code that is not counted is named."""
    before, after = builds
    (after / "lib" / "b.o").write_bytes((before / "lib" / "b.o").read_bytes()[:400])
    (after / "lib" / "c.a").write_bytes(b"!<arch>\n")
    (before / "bitcode.o").write_bytes(b"BC\xc0\xde" + b"\0" * 40)
    assert main(["size-report", str(before), str(after)]) == 1
    out, err = capfd.readouterr()
    assert "total, 1 of 3 files" in out
    assert "Not counted: static libraries (0 before, 1 after), bitcode files (1 before, 0" in out
    assert err == f"mlgo-gym: {after}/lib/b.o: left out: an ELF file that cannot be read\n"
    assert main(["size-report", str(before), str(after), "--json"]) == 1
    result = json.loads(capfd.readouterr().out)
    total = result["total"]["objects"]
    assert (total["files"], total["in_one_build"]) == (1, 2)  # new.o is in one alone
    assert result["left_out"] == {
        "before": {"bitcode.o": "bitcode files"},
        "after": {"lib/b.o": "ELF files that cannot be read", "lib/c.a": "static libraries"},
    }


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            "before/lib",
            "after <&>/lib",
            "builds 'before/lib' and 'after <&>/lib': expected files of the same names, found none "
            "among 2 and 2",
        ),
        (
            "before",
            "before/program",
            "builds 'before' and 'before/program': expected files of the same names, found none "
            "among 3 and 1",
        ),
        (
            "before/lib/a.o",
            "before/program",
            "'program': expected an object in both builds or a linked file in both, found one of "
            "each",
        ),
    ],
)
def test_builds_that_are_not_to_be_compared(
    one: str, other: str, message: str, builds: tuple[Path, Path]
) -> None:
    for name in ("a.o", "b.o"):
        (builds[1] / "lib" / name).rename(builds[1] / "lib" / f"other-{name}")
    check_refused(message, "size-report", one, other, cwd=builds[0].parent)


def test_what_was_kept(
    builds: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "kept.tsv"
    rows = ["LLVM\t9\t9\ta.o", "m\t7\t9\ta.o", "m\t5\t10\tb\tc.o", "LLVM\t4\t4\td.o"]
    log.write_text("\n".join(rows) + "\n")
    arguments = ["size-report", *map(str, builds), "--kept", str(log)]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == [
        {"kept": "LLVM", "objects": 1, "clang_bytes": 4, "kept_bytes": 4},
        {"kept": "m", "objects": 2, "clang_bytes": 19, "kept_bytes": 12},
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "-36.8 %" in out
    assert ".text sections" in out
    log.write_text("LLVM\t9\tnine\ta.o\n")
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        f"mlgo-gym: error: log of what was kept '{log}': line 1: expected what was kept, two sizes "
        "in bytes and a path, with tabs between them, found 'LLVM\\t9\\tnine\\ta.o'\n"
    )
    log.unlink()
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        f"mlgo-gym: error: log of what was kept '{log}': cannot be read: No such file or "
        "directory\n"
    )


def test_a_log_of_many_models(tmp_path: Path) -> None:
    """In time that grows with its length."""
    log = tmp_path / "kept.tsv"
    log.write_text("".join(f"m{each}\t1\t2\t{each}.o\n" for each in range(100_000)))
    start_s = time.process_time()
    assert len(read_kept_log(log)) == 100_000
    assert time.process_time() - start_s < 20


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "build 'none': cannot be read: No such file or directory"),
        ("empty", "build 'empty': expected ELF objects or programs, found none"),
        ("text", "build 'text': expected ELF objects or programs, found none"),
    ],
)
def test_errors(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no code")
    check_refused(message, "size-report", name, name, cwd=tmp_path)
