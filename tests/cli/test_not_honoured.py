"""What the embedded compiler leaves out of modules' command lines, as users see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus_tools import Manifest, encode_command
from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run

LOOPS = "-falign-loops=: loops are aligned as LLVM does by itself"
UNKNOWN = "-fno-such-thing: not known to mlgo_gym"


@pytest.fixture
def folder(small: Corpus, tmp_path: Path) -> Path:
    """Three modules: one option for all of them, another for one."""
    for number, name in enumerate(small):
        module = small[name]
        (tmp_path / f"{name}.bc").write_bytes(module.data)
        more = ["-falign-loops=32", *["-fno-such-thing"] * (number == 1)]
        (tmp_path / f"{name}.cmd").write_bytes(encode_command([*(module.command or ()), *more]))
    Manifest(small.names).write(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [["corpus", "stats"], ["rollout"]])
def test_one_line_for_each_option(folder: Path, command: list[str]) -> None:
    done = run(*command, "--corpus", folder, cwd=folder)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"mlgo-gym: not honoured in 3 modules: {LOOPS}",
        f"mlgo-gym: not honoured in 1 module: {UNKNOWN}",
    ]


@pytest.mark.e2e
def test_in_json(folder: Path, small: Corpus) -> None:
    stats = json.loads(run("corpus", "stats", "--corpus", folder, "--json", cwd=folder).stdout)
    assert stats["not_honoured"] == {LOOPS: 3, UNKNOWN: 1}
    rollout = json.loads(run("rollout", "--corpus", folder, "--json", cwd=folder).stdout)
    settings = [each["baseline"]["settings"]["not_honoured"] for each in rollout["modules"]]
    assert settings == [[LOOPS], [LOOPS, UNKNOWN], [LOOPS]]
    assert [each["module"] for each in rollout["modules"]] == list(small)
