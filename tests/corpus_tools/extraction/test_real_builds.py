"""Corpora out of real builds: equal to LLVM's own, and compiling back to the build's objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_tools.extraction.command import main
from tests.corpus_tools.extraction.conftest import THIN_SOURCES, Texts, texts
from tests.folders import tree

pytestmark = pytest.mark.e2e

Extract = Callable[..., Path]
CompileBack = Callable[[Path, str, Path], Texts]


def modules_of(corpus: Path) -> list[str]:
    return list(json.loads((corpus / "corpus_description.json").read_bytes())["modules"])


def report_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, str]]:
    main([*map(str, arguments), "--json"])
    inputs: list[dict[str, str]] = json.loads(capsys.readouterr().out)["inputs"]
    return inputs


def test_cmake_and_ninja(
    cmake_build: Path,
    tmp_path: Path,
    llvm_extract: Extract,
    compile_back: CompileBack,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = cmake_build / "compile_commands.json"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    inputs = report_of(capsys, "--input", database, "--output_dir", ours)
    assert [each["reason"] for each in inputs if each["outcome"] != "extracted"] == [
        "assembly, which has no bitcode"
    ]
    modules = modules_of(ours)
    assert len(modules) == 7
    for module in modules:
        assert compile_back(ours, module, tmp_path) == texts(cmake_build / module)
    llvm_extract(theirs, "--input", database)
    assert tree(ours) == tree(theirs)


@pytest.mark.parametrize("input_type", ["json", "directory", "params"])
def test_makefile(
    input_type: str,
    make_build: Path,
    tmp_path: Path,
    llvm_extract: Extract,
    compile_back: CompileBack,
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    parameters = tmp_path / "link.params"
    objects = sorted((make_build / "obj").glob("*.o"))
    names = [path.relative_to(make_build).as_posix() for path in objects]
    parameters.write_text("\n".join(["-pie", "-o", "prog.o", *names, "-lm"]) + "\n")
    given = {
        "json": ["--input", make_build / "compile_commands.json"],
        "directory": ["--input", make_build],
        "params": ["--input", parameters, "--obj_base_dir", make_build],
    }
    arguments = [*given[input_type], "--input_type", input_type]
    assert main([*map(str, arguments), "--output-dir", str(ours)]) == 0
    llvm_extract(theirs, *arguments)
    assert sorted(modules_of(ours)) == sorted(modules_of(theirs))
    if input_type != "directory":  # which LLVM's tool lists in no particular order
        assert tree(ours) == tree(theirs)
    expected, found = tree(theirs), tree(ours)
    assert set(found) == set(expected)
    assert [name for name in found if name.endswith(".bc") and found[name] != expected[name]] == []
    if input_type == "json":
        assert len(modules_of(ours)) == len(objects)
        for module in modules_of(ours):
            assert compile_back(ours, module, tmp_path) == texts(make_build / module)


def test_a_filter_takes_the_same_modules_as_llvm(
    make_build: Path, tmp_path: Path, llvm_extract: Extract
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    arguments = ["--input", make_build / "compile_commands.json", "--cmd_filter", r"^(lisp|json)_"]
    assert main([*map(str, arguments), "--output_dir", str(ours)]) == 0
    llvm_extract(theirs, *arguments)
    assert tree(ours) == tree(theirs)
    assert modules_of(ours) == ["obj/json_read.o", "obj/json_write.o", "obj/lisp_cells.o"]


def test_local_thinlto(
    local_thinlto: Path,
    tmp_path: Path,
    llvm_extract: Extract,
    compile_back: CompileBack,
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    arguments = ["--thinlto_build", "local", "--obj_base_dir", str(local_thinlto)]
    link = ["--input", str(local_thinlto / "link.txt"), "--input_type", "params"]
    assert main([*arguments, *link, "--output_dir", str(ours)]) == 0
    natives = [texts(path) for path in sorted((local_thinlto / "native").iterdir())]
    for module in modules_of(ours):
        back = compile_back(ours, module, tmp_path)
        assert back in natives, module
    llvm_extract(theirs, *arguments)
    expected, found = tree(theirs), tree(ours)
    assert json.loads(expected.pop("corpus_description.json"))["global_command_override"] == [
        "<UNSPECIFIED>"
    ]
    override = json.loads(found.pop("corpus_description.json"))["global_command_override"]
    assert override[:2] == ["-cc1", "-triple"]
    assert found == expected
    assert len(found) == 2 * len(THIN_SOURCES)


def test_distributed_thinlto(
    distributed_thinlto: Path,
    tmp_path: Path,
    llvm_extract: Extract,
    compile_back: CompileBack,
) -> None:
    parameters = tmp_path / "params"
    parameters.write_text("".join(f"native.{name}.o\n" for name in THIN_SOURCES))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    arguments: list[str | Path] = ["--input", parameters, "--input_type", "params"]
    arguments += ["--obj_base_dir", distributed_thinlto, "--thinlto_build", "distributed"]
    assert main([*map(str, arguments), "--output_dir", str(ours)]) == 0
    llvm_extract(theirs, *arguments)
    assert tree(ours) == tree(theirs)
    for module in modules_of(ours):
        assert compile_back(ours, module, tmp_path) == texts(distributed_thinlto / module)


def test_a_second_run_changes_nothing(make_build: Path, tmp_path: Path) -> None:
    arguments = ["--input", str(make_build / "compile_commands.json")]
    arguments += ["--output_dir", str(tmp_path / "corpus")]
    states = []
    for _ in range(2):
        assert main(arguments) == 0
        files = sorted((tmp_path / "corpus").rglob("*"))
        states.append([(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files])
    assert states[0] == states[1]
