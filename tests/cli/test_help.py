"""Help: every command has an example that it takes itself, and nothing is imported for nothing."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.cli import options as _options
from mlgo_gym.cli._main import CommandParser, parser, whole
from mlgo_gym.cli._values import duration
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm._target import ALL_LEVELS

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("gymnasium", "grpc", "keras", "lief", "llvmlite", "matplotlib", "pyarrow", "rich"),
    *("sklearn", "tensorflow", "unearth", "mlgo_gym.llvm._compiler"),
}
LOADED = """
import sys
sys.argv[0] = "/bin/mlgo-gym"  # as in the script that pip installs
from mlgo_gym.cli._main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print("\\n".join(sys.modules))
"""


def parsers(above: CommandParser) -> Iterator[CommandParser]:
    yield above
    for each in above.commands.values():
        yield from parsers(each)


COMMANDS = {each.prog: each for each in parsers(whole())}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_that_works(name: str) -> None:
    text = COMMANDS[name].format_help()
    *_, last = text.splitlines()  # in one line, to be copied
    assert last.startswith(f"example: {name}")
    program, *arguments = shlex.split(last.removeprefix("example: "))
    assert program == "mlgo-gym"
    options = parser().parse_args(arguments)
    module = importlib.import_module(options.run.__module__)
    assert module.EXAMPLE in text or name in {"mlgo-gym", "mlgo-gym corpus", "mlgo-gym dataset"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_narrow_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = COMMANDS[name].format_help()
    assert text.startswith(f"usage: {name} ")
    assert max(len(line) for line in text.splitlines()) <= 80


def documented() -> Iterator[str]:
    """The command lines of README.md and docs/, without what a shell would put into them."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^(?:\$ )?(mlgo-gym .*)$", text, re.MULTILINE):
            yield re.sub(r"(\$\(|>).*", "", line)


@pytest.mark.parametrize("line", sorted(set(documented())))
def test_documented_command_lines(line: str) -> None:
    parser().parse_args(shlex.split(line, comments=True)[1:])


def test_the_page_of_commands_has_all() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    rows = [
        re.findall(r"[\w-]+", row) for row in page.splitlines() if row.startswith("| `mlgo-gym")
    ]
    for name, command in COMMANDS.items():
        if not command.commands:
            words = set(name.split())
            assert any(words <= set(row) for row in rows), name


def test_the_page_of_clusters_has_the_commands_that_take_them() -> None:
    page = (ROOT / "docs" / "guides" / "scale.md").read_text()
    (said,) = re.findall(r"\n\n([^.]*) take `--ray`\.", page)
    found = {
        name.removeprefix("mlgo-gym ")
        for name, command in COMMANDS.items()
        if "--ray-workers" in command._option_string_actions
    }
    assert found == set(re.findall(r"`(.*?)`", said))


def test_commands_are_imported_when_they_are_used() -> None:
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines())
    assert "argparse" in loaded
    assert not loaded & {*HEAVY, "numpy", "mlgo_gym.llvm"}
    assert {each for each in loaded if each.startswith("mlgo_gym.cli.")} == {
        f"mlgo_gym.cli.{each}" for each in ("_main", "show", "show._output")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_imports_no_work(name: str) -> None:
    arguments = name.split()[1:]
    command = [sys.executable, "-c", LOADED, *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines())
    assert not loaded & HEAVY
    module = COMMANDS[name]._module
    commands = {f"mlgo_gym.cli.{each}" for each in ("_demo", "_rollout", "_size_report")}
    assert loaded & commands == {module} & commands


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_taken_by_default_can_be_asked_for(name: str) -> None:
    for action in COMMANDS[name]._actions:
        default, take = action.default, action.type
        if (
            callable(take)
            and isinstance(default, int | float | str)
            and default != argparse.SUPPRESS
        ):
            taken = take(default) if isinstance(default, str) else default
            assert take(str(default)) == taken, action.option_strings


TEXTS = {
    *("ADDRESS", "CPU", "FILE", "FILE:NAME", "FLAG", "ID", "NAME", "NAME=VALUE", "PATH", "PATTERN"),
    *("POLICY", "PROBLEM=POLICY", "REWARD", "TEXT", "TRIPLE", "URL", "VERSION", "WORD"),
}
"""The values of options that are any text; a value is parsed by what help calls it."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_value_that_is_not_parsed_is_a_text(name: str) -> None:
    actions = COMMANDS[name]._actions
    texts = {each.metavar for each in actions if each.type is str and each.choices is None}
    assert texts <= TEXTS


def test_a_parser_is_for_more_than_one_command_line() -> None:
    made = parser()
    for level in ("O1", "O2"):
        options = made.parse_args(["rollout", "--corpus", "x", "--opt-level", level])
        assert options.opt_level == level


def test_defaults_that_are_said_without_an_import() -> None:
    assert ALL_LEVELS[1:] == _options.OPT_LEVELS
    assert duration(_options.TIMEOUT) == DEFAULT_TIMEOUT_S
