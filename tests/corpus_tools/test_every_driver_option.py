"""Every option of clang's driver, in several forms, through extraction: what it makes clang do."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_tools.allowed.driver import allowed_of_driver
from corpus_tools.clang import dry_run
from corpus_tools.errors import CompileError, ExtractionError
from tests.corpus_tools.conftest import Traced

# Of the fast tier is one in 200.
SHARES = [(200, 0), *(pytest.param(20, each, marks=pytest.mark.stress) for each in range(20))]
TOOLS = ("amdgpu-arch", "nvptx-arch", "offload-arch", "clang-22", "ld", "ld.lld", "as", "x")
VALUES = ("", "native", "tools/x", "amdgcn-amd-amdhsa", "hip", "=x", "1")
PURE = ["-c", "a.c"]


@functools.cache
def commands() -> list[tuple[str, ...]]:
    """What reaches clang of all options, each alone, with joined and with separate values."""
    clang = shutil.which("clang-22")
    if clang is None:
        return []
    listed = subprocess.run([clang, "--autocomplete=-"], capture_output=True, text=True, check=True)
    names = {line.partition("\t")[0] for line in listed.stdout.splitlines()}
    given = dict.fromkeys(each for name in sorted(names) for each in _given(name))
    return [each for each in given if each != tuple(PURE)]


def _given(name: str) -> Iterator[tuple[str, ...]]:
    for value in VALUES:
        for form in ([name + value], [name, value])[: 1 + bool(value)]:
            try:
                yield tuple(allowed_of_driver([*form, *PURE]))
            except ExtractionError:
                continue


@pytest.mark.parametrize(("share", "part"), SHARES)
def test_every_option(traced: Traced, tmp_path: Path, share: int, part: int) -> None:
    build = tmp_path / "build"
    (build / "tools").mkdir(parents=True)
    for name in TOOLS:
        (build / "tools" / name).write_text(f"#!/bin/sh\ntouch {build}/ran\n")
        (build / "tools" / name).chmod(0o755)
    (build / "a.c").write_text("int a;\n")
    mine = commands()[part::share]
    assert mine
    for each in mine:
        try:
            dry_run(traced.clang, each, build)
        except CompileError as error:
            assert error.exit_status, each
    assert len(traced.programs()) == 1
    assert traced.changed() == set()
    opened = {path for path in traced.opened() if "tools" in path or path.startswith(str(build))}
    assert opened == set()
