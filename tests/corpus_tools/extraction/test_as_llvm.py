"""What LLVM's tests of mlgo-utils ask of its tools, asked of ours with ``--as-llvm``, and of both.

The steps are those of ``llvm/utils/mlgo-utils/tests/corpus``. Where names in a manifest are sorted
here, LLVM's tools leave them in the order of the file system.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus_tools import combine, make
from corpus_tools.extraction import command
from tests.conftest import require
from tests.corpus_tools.extraction.conftest import EMBED, run
from tests.folders import tree

COMMANDS = {
    "extract_ir": command.main,
    "make_corpus": make.main,
    "combine_training_corpus": combine.main,
}
MANIFEST = "corpus_description.json"

Both = Callable[..., dict[str, bytes]]


def manifest_of(files: dict[str, bytes]) -> dict[str, Any]:
    description: dict[str, Any] = json.loads(files[MANIFEST])
    return description | {"modules": sorted(description["modules"])}


def llvm(tool: str, *arguments: str) -> None:
    extra = []
    if tool == "extract_ir":
        extra = ["--llvm_objcopy_path", require("llvm-objcopy-22", "llvm-22")]
    run(sys.executable, "-m", f"mlgo.corpus.{tool}", *arguments, *extra)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """Run our command and LLVM's tool; they leave the same files, which come back."""

    def compare(tool: str, *arguments: str | Path) -> dict[str, bytes]:
        given = [str(argument) for argument in arguments]
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        ours.mkdir()
        theirs.mkdir()
        assert COMMANDS[tool](["--as-llvm", *given, "--output_dir", str(ours)]) == 0
        llvm(tool, *given, "--output_dir", str(theirs))
        found, expected = tree(ours), tree(theirs)
        assert manifest_of(found) == manifest_of(expected)
        assert list(json.loads(found[MANIFEST])) == list(json.loads(expected[MANIFEST]))
        assert found | {MANIFEST: b""} == expected | {MANIFEST: b""}
        return found

    return compare


def combined(root: Path) -> dict[str, Any]:
    """Combine with our command and, over its manifest, with LLVM's tool."""
    assert combine.main(["--as-llvm", "--root_dir", str(root)]) == 0
    ours = manifest_of(tree(root))
    (root / MANIFEST).unlink()
    llvm("combine_training_corpus", "--root_dir", str(root))
    assert manifest_of(tree(root)) == ours
    return ours


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    folder.mkdir()
    return folder


def make_object(path: Path, clang: str, cmd: bytes = b"\xff", bitcode: bytes = b"\x55") -> None:
    """Assemble an object with these sections, which only LLVM's tests would call bitcode."""
    lines = [".byte 0x55"]
    for name, content in ((".llvmbc", bitcode), (".llvmcmd", cmd)):
        lines.append(f'.section {name},"",@progbits')
        lines += [f".byte {byte}" for byte in content]
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".s")
    source.write_text("\n".join(lines) + "\n")
    run(clang, "-c", source, "-o", path)
    source.unlink()


def test_extract_ir_script(build: Path, both: Both, clang: str) -> None:
    for name in ("test1.o", "test2.o"):
        make_object(build / name, clang)
    files = both("extract_ir", f"--input={build}", "--input_type=directory")
    assert manifest_of(files) == {"has_thinlto": False, "modules": ["test1.o", "test2.o"]}
    assert {name: content for name, content in files.items() if name != MANIFEST} == {
        "test1.o.bc": b"\x55",
        "test1.o.cmd": b"\xff",
        "test2.o.bc": b"\x55",
        "test2.o.cmd": b"\xff",
    }


def test_make_corpus_script(build: Path, both: Both) -> None:
    for name in ("test1.bc", "test2.bc"):
        (build / name).touch()
    files = both("make_corpus", f"--input_dir={build}", "--default_args=-test")
    assert manifest_of(files) == {
        "global_command_override": ["-test"],
        "has_thinlto": False,
        "modules": ["test1", "test2"],
    }
    assert set(files) == {MANIFEST, "test1.bc", "test2.bc"}


def describe(folder: Path, **description: object) -> None:
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps(description))


def test_combine_training_corpus_script(tmp_path: Path) -> None:
    describe(tmp_path / "subcorpus1", has_thinlto=False, modules=["test1.o"])
    describe(tmp_path / "subcorpus2", has_thinlto=False, modules=["test2.o"])
    assert combined(tmp_path) == {
        "has_thinlto": False,
        "modules": ["subcorpus1/test1.o", "subcorpus2/test2.o"],
    }


@pytest.mark.parametrize("form", ["command", "arguments"])
def test_a_compilation_database(form: str, build: Path, both: Both, clang: str) -> None:
    make_object(build / "lib" / "bar.o", clang)
    make_object(build / "lib" / "other" / "baz.o", clang, bitcode=b"\x56")
    entries = []
    for name in ("lib/bar.o", "lib/other/baz.o", "lib/none.o"):
        text = f"-cc1 -c /some/path/lib/foo/bar.cc -o {name}"
        parts = text if form == "command" else text.split()
        entries.append({"directory": str(build), form: parts, "file": "/some/path/bar.cc"})
    entries += [{"directory": str(build), form: "-E x.c" if form == "command" else ["-E", "x.c"]}]
    database = build / "compile_commands.json"
    database.write_text(json.dumps(entries))
    files = both("extract_ir", "--input", database)
    assert json.loads(files[MANIFEST])["modules"] == ["lib/bar.o", "lib/other/baz.o"]
    assert files["lib/other/baz.o.bc"] == b"\x56"


@pytest.mark.parametrize("has_output", [True, False])
def test_lld_parameters(has_output: bool, build: Path, both: Both, clang: str) -> None:
    objects = ["lib/obj1.o", "somelib.a", "lib/dir/obj2.o"]
    for name in objects:
        make_object(build / name, clang)
    output = ["-o", "output/dir/exe"] if has_output else []
    parameters = build / "params"
    parameters.write_text("\n".join([*output, *objects, "-W,blah", "lib/obj1.o"]) + "\n")
    arguments = ["--input", parameters, "--input_type", "params", "--obj_base_dir", build]
    files = both("extract_ir", *arguments)
    taken = ["lib/obj1.o", "lib/dir/obj2.o"] if has_output else objects
    # Without -o, whatever is named is tried, an archive's name too.
    assert json.loads(files[MANIFEST])["modules"] == [*taken, "lib/obj1.o"]


def test_bazel_aquery_counts_the_last_link(build: Path, both: Both, clang: str) -> None:
    links = []
    for name in ("a.o", "b.o"):
        make_object(build / name, clang)
        links.append({"mnemonic": "CppLink", "arguments": ["ld", "-o", "x", name]})
    aquery = build / "aquery.json"
    aquery.write_text(json.dumps({"actions": [*links, {"mnemonic": "CppCompile"}]}))
    arguments = ["--input", aquery, "--input_type", "bazel_aquery", "--obj_base_dir", build]
    assert json.loads(both("extract_ir", *arguments)[MANIFEST])["modules"] == ["b.o"]


def test_what_has_nothing_to_take(build: Path, both: Both, clang: str) -> None:
    folder = build / "subdir"
    folder.mkdir()
    (folder / "test1.o").touch()
    (folder / "test2.o").write_text("no object")
    (folder / "folder.o").mkdir()
    (folder / "a.c").write_text("int f(int x) { return x + 1; }\n")
    run(clang, "-c", "a.c", "-o", "plain.o", cwd=folder)
    run(clang, "-c", "-flto", "a.c", "-o", "lto.o", cwd=folder)
    files = both("extract_ir", "--input", build, "--input_type", "directory")
    assert set(files) == {MANIFEST}
    assert json.loads(files[MANIFEST]) == {"has_thinlto": False, "modules": []}


def test_real_objects_of_all_kinds(build: Path, both: Both, clang: str) -> None:
    for name in "ab":
        (build / f"{name}.c").write_text(f"int {name}(int x) {{ return x + 1; }}\n")
        run(clang, "-c", *EMBED.split(), f"{name}.c", "-o", f"{name}.o", cwd=build)
    marker = EMBED.replace("all", "marker").split()
    run(clang, "-c", *marker, "a.c", "-o", "marker.o", cwd=build)
    macho = ("-target", "arm64-apple-macos14", *EMBED.split())
    run(clang, "-c", *macho, "a.c", "-o", "macho.o", cwd=build)
    run(require("ld.lld-22", "lld-22"), "-r", "a.o", "b.o", "-o", "merged.o", cwd=build)
    run(require("llvm-ar-22", "llvm-22"), "rcs", "both.a", "a.o", "b.o", cwd=build)
    files = both("extract_ir", "--input", build, "--input_type", "directory")
    modules = manifest_of(files)["modules"]
    assert modules == ["a.o", "b.o", "marker.o", "merged.o"]
    assert files["merged.o.bc"].startswith(files["a.o.bc"])
    assert files["marker.o.bc"] in {b"", b"\0"}


def test_sections_of_mach_o(build: Path, both: Both, clang: str) -> None:
    (build / "a.c").write_text("int f(int x) { return x + 1; }\n")
    macho = ("-target", "arm64-apple-macos14", *EMBED.split())
    run(clang, "-c", *macho, "a.c", "-o", "a.o", cwd=build)
    names = ["--cmd_section_name", "__LLVM,__cmdline", "--bitcode_section_name", "__LLVM,__bitcode"]
    files = both("extract_ir", "--input", build, "--input_type", "directory", *names)
    assert files["a.o.cmd"].startswith(b"-cc1\0")


@pytest.mark.parametrize(
    ("pattern", "modules"), [(".*", ["x.o"]), ("^-Oz$", ["x.o"]), ("^-O3$", [])]
)
def test_filters(pattern: str, modules: list[str], build: Path, both: Both, clang: str) -> None:
    cmd = b"-cc1\0x/y/foobar.cpp\0-Oz\0-Ifoo\0-o\0bin/out.o"
    make_object(build / "x.o", clang, cmd)
    arguments = ["--input", build, "--input_type", "directory", "--cmd_filter", pattern]
    assert json.loads(both("extract_ir", *arguments)[MANIFEST])["modules"] == modules


def test_the_index_of_a_distributed_build(build: Path, both: Both, clang: str) -> None:
    cmd = b"-cc1\0x/y/foobar.cpp\0-Oz\0-o\0bin/out.o\0-fthinlto-index=foo/bar.thinlto.bc"
    make_object(build / "x.o", clang, cmd)
    (build / "foo").mkdir()
    (build / "foo" / "bar.thinlto.bc").write_bytes(b"index")
    arguments = ["--input", build, "--input_type", "directory", "--thinlto_build", "distributed"]
    files = both("extract_ir", *arguments)
    assert manifest_of(files) == {"has_thinlto": True, "modules": ["x.o"]}
    assert files["x.o.thinlto.bc"] == b"index"


@pytest.mark.parametrize("nest", ["", "nest/"])
def test_local_thinlto(nest: str, build: Path, both: Both) -> None:
    (build / nest).mkdir(exist_ok=True)
    for number in "123":
        (build / f"{nest}{number}.3.import.bc").touch()
        (build / f"{nest}{number}.thinlto.bc").touch()
    (build / f"{nest}4.3.import.bc").touch()
    files = both("extract_ir", "--thinlto_build=local", "--obj_base_dir", build)
    assert manifest_of(files) == {
        "global_command_override": ["<UNSPECIFIED>"],
        "has_thinlto": True,
        "modules": [f"{nest}{number}" for number in "123"],
    }
    suffixes = (".bc", ".thinlto.bc")
    names = {f"{nest}{number}{suffix}" for number in "123" for suffix in suffixes}
    assert set(files) == {MANIFEST, *names}


def test_make_below_folders(build: Path, both: Both) -> None:
    (build / "nested").mkdir()
    (build / "nested" / "test1.bc").write_bytes(b"one")
    (build / "nested" / "test2.bc").write_text("no bitcode")
    files = both("make_corpus", "--input_dir", build, "--default_args", "-O3 -c")
    assert manifest_of(files) == {
        "global_command_override": ["-O3", "-c"],
        "has_thinlto": False,
        "modules": ["nested/test1", "nested/test2"],
    }
    assert files["nested/test2.bc"] == b"no bitcode"


def test_make_of_nothing(build: Path, both: Both) -> None:
    assert set(both("make_corpus", "--input_dir", build)) == {MANIFEST}


def test_make_twice_into_a_folder_below(build: Path) -> None:
    (build / "a.bc").touch()
    for output in ("ours", "theirs"):
        (build / output).mkdir()
        arguments = ["--input_dir", str(build), "--output_dir", str(build / output)]
        for _ in range(2):
            if output == "ours":
                assert make.main(["--as-llvm", *arguments]) == 0
            else:
                llvm("make_corpus", *arguments)
    assert set(tree(build / "ours")) == {MANIFEST, "a.bc", "ours/a.bc"}
    assert set(tree(build / "theirs")) >= {MANIFEST, "a.bc", "theirs/a.bc"}


def test_combine_ignores_what_is_no_corpus(tmp_path: Path) -> None:
    describe(tmp_path / "subcorpus1", modules=["test1.o", "test2.o", "test2.o", "../x", "/y"])
    describe(tmp_path / ".hidden", modules=["test3.o"])
    (tmp_path / "empty_dir").mkdir()
    (tmp_path / "empty.log").touch()
    names = ["/y", *(f"subcorpus1/{name}" for name in ("../x", "test1.o", "test2.o", "test2.o"))]
    assert combined(tmp_path) == {"modules": names}


def test_combine_keeps_other_keys(tmp_path: Path) -> None:
    for name in ("one", "two"):
        describe(tmp_path / name, x={"y": [1]}, has_thinlto=False, modules=[name])
    assert combined(tmp_path) == {
        "x": {"y": [1]},
        "has_thinlto": False,
        "modules": ["one/one", "two/two"],
    }


def test_combine_nothing(tmp_path: Path) -> None:
    assert combined(tmp_path) == {"modules": []}


def test_corpora_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(tmp_path / "subcorpus1", has_thinlto=False, modules=["test1.o"])
    describe(tmp_path / "subcorpus2", has_thinlto=True, modules=["test2.o"])
    assert combine.main(["--as-llvm", "--root_dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"mlgo-combine-corpus: error: {tmp_path / 'subcorpus2'}: expected the same 'has_thinlto' "
        f"as in {tmp_path / 'subcorpus1'}, found another\n"
    )
    with pytest.raises(AssertionError, match=r"ValueError: Input corpora differ"):
        llvm("combine_training_corpus", "--root_dir", str(tmp_path))
    assert not (tmp_path / MANIFEST).exists()


def test_nothing_is_written_outside_the_corpus(
    build: Path, tmp_path: Path, clang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_object(tmp_path / "outside.o", clang)
    make_object(build / "inside.o", clang)
    entries = [
        {"directory": str(build), "command": f"cc -o {name}"}
        for name in ("../outside.o", str(build / "inside.o"))
    ]
    database = tmp_path / "database.json"
    database.write_text(json.dumps(entries))
    arguments = ["--as-llvm", "--input", str(database), "--output_dir", str(tmp_path / "corpus")]
    assert command.main(arguments) == 0
    assert capsys.readouterr().err == (
        f"mlgo-extract-corpus: ../outside.o: lies outside {build}; "
        "name a folder above it with --obj_base_dir\n"
    )
    assert set(tree(tmp_path / "corpus")) == {MANIFEST, "inside.o.bc", "inside.o.cmd"}
    assert sorted(path.name for path in build.iterdir()) == ["inside.o"]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (3, "expected a JSON object, found 3"),
        ({"directory": "/"}, "expected 'command', found none"),
        (
            {"directory": "/", "command": "cc -o"},
            "module '': expected a name, found an empty string",
        ),
    ],
)
def test_entries_that_end_llvms_tool(
    entry: object, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "database.json"
    database.write_text(json.dumps([entry]))
    arguments = ["--as-llvm", "--input", str(database), "--output_dir", str(tmp_path / "corpus")]
    assert command.main(arguments) == 0
    assert capsys.readouterr().err.endswith(f": {reason}\n")
    assert tree(tmp_path / "corpus").keys() == {MANIFEST}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--default_args=-cc1"], "--default_args"),
        (
            ["--thinlto_build", "local", "--input_type", "params"],
            "--input of a local ThinLTO build",
        ),
    ],
)
def test_options_that_llvms_tool_lacks(
    arguments: list[str], given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--as-llvm", "--input", "x", "--output_dir", "y", *arguments])
    assert caught.value.code == 2
    message = f"mlgo-extract-corpus: error: --as_llvm: LLVM's tool has no {given}\n"
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize("tool", COMMANDS)
def test_the_option_is_documented(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        COMMANDS[tool](["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"--as_llvm, --as-llvm do exactly as LLVM's {tool}: copy what is there" in text
