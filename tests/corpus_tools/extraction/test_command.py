"""The command line: LLVM's options in both spellings, its report, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corpus_tools.extraction.command import main


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("mlgo-extract-corpus: error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --output_dir/--output-dir"),
        (["--output_dir", "x"], "--input or --thinlto_build=local is needed"),
        (
            ["--output_dir", "x", "--input", "y", "--thinlto_build", "local"],
            "with --thinlto_build=local, --input is the link's parameters: add --input_type=params",
        ),
        (
            ["--output_dir", "x", "--input", "y", "--num_workers", "0"],
            "argument --num_workers/--num-workers: expected a whole number of at least 1, "
            "found '0'",
        ),
        (
            ["--output_dir", "x", "--input", "y", "--cmd_filter", "("],
            "argument --cmd_filter/--cmd-filter: expected a regular expression, found '(': "
            "missing ), unterminated subpattern at position 0",
        ),
    ],
)
def test_wrong_command_lines(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage_error(capsys, *arguments) == message


@pytest.mark.smoke
@pytest.mark.e2e
def test_every_option_in_both_spellings(make_build: Path, tmp_path: Path) -> None:
    options = {
        "input": str(make_build / "compile_commands.json"),
        "input_type": "json",
        "num_workers": "2",
        "llvm_objcopy_path": "/usr/bin/llvm-objcopy",
        "obj_base_dir": str(make_build),
        "cmd_filter": "^json_read",
        "cmd_section_name": ".llvmcmd",
        "bitcode_section_name": ".llvmbc",
    }
    for separator in "_-":
        output = tmp_path / separator
        arguments = [f"--{name.replace('_', separator)}={value}" for name, value in options.items()]
        assert main([*arguments, f"--output{separator}dir={output}"]) == 0
        assert (output / "obj" / "json_read.o.bc").is_file()


@pytest.mark.e2e
def test_values_that_scripts_leave_out(make_build: Path, tmp_path: Path) -> None:
    arguments = ["--input", str(make_build / "compile_commands.json"), "--num_workers"]
    arguments += ["--cmd_filter", "--thinlto_build", "--input_type", "--cmd_section_name"]
    assert main([*arguments, "--output_dir", str(tmp_path / "corpus")]) == 0


def test_report(make_build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / "good.o").write_bytes((make_build / "obj" / "json_read.o").read_bytes())
    (folder / "bad.o").write_text("no object")
    (folder / "empty.o").touch()
    output = tmp_path / "corpus"
    arguments = ["--input", str(folder), "--input_type", "directory", "--output_dir", str(output)]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"{output}: 1 modules"
    assert [line.split()[1:-1] for line in shown.out.splitlines()[4:7]] == [
        ["1", "│", "extracted", "│"],
        ["1", "│", "failed", "│", "see", "below"],
        ["1", "│", "skipped", "│", "empty", "file"],
    ]
    reason = "expected an object file, found one that starts with b'no o'"
    assert shown.err == f"mlgo-extract-corpus: bad.o: {reason}\n"
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "output": str(output),
        "modules": 1,
        "extracted": 1,
        "skipped": 1,
        "failed": 1,
        "warnings": [],
        "inputs": [
            {"input": "bad.o", "outcome": "failed", "modules": [], "reason": reason},
            {"input": "empty.o", "outcome": "skipped", "modules": [], "reason": "empty file"},
            {"input": "good.o", "outcome": "extracted", "modules": ["good.o"], "reason": ""},
        ],
    }


def test_nothing_extracted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "build").mkdir()
    arguments = ["--input", str(tmp_path / "build"), "--input_type", "directory"]
    assert main([*arguments, "--output_dir", str(tmp_path / "corpus")]) == 1
    message = "no objects are named there; is --input_type right?"
    assert capsys.readouterr().err == f"mlgo-extract-corpus: error: {message}\n"


def test_only_errors_have_a_colour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal shows numbers and names as they are."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "build").mkdir()
    arguments = ["--input", str(tmp_path / "build"), "--input_type", "directory"]
    assert main([*arguments, "--output_dir", str(tmp_path / "[b]corpus")]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"{tmp_path}/[b]corpus: 0 modules"
    assert "\x1b[31mmlgo-extract-corpus: error: no objects are named there" in shown.err


def test_neither_llvm_nor_mlgo_gym_is_needed(make_build: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from corpus_tools.extraction.command import main; status = main(); "
        "bad = [m for m in ('llvmlite', 'mlgo_gym', 'numpy') if m in sys.modules]; "
        "sys.exit(f'imported {bad}' if bad else status)"
    )
    arguments = ["--input", str(make_build), "--input_type", "directory"]
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--output_dir", str(tmp_path / "corpus")],
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
