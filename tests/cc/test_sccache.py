"""sccache in front of the driver: it has to be told what decides the code."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, SOURCE, Driver
from tests.conftest import require

BUSTER = "SCCACHE_C_CUSTOM_CACHE_BUSTER"
UNTOLD = (
    f'sccache: expected {BUSTER}="$(mlgo-cc --mlgo-fingerprint)", found none, without which it '
    "gives back objects of another model"
)
NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
DEFAULT = {"MLGO_INLINING_MODEL": str(MODELS / "default")}

Compile = Callable[[Mapping[str, str]], tuple[int, str, bytes]]


@pytest.fixture
def compile_cached(driver: Driver, tmp_path: Path) -> Iterator[Compile]:
    """Compiles ``f.c`` behind an sccache of its own: the status, what is said, and the object."""
    sccache = require("sccache", "sccache")
    work = tmp_path / "work"
    work.mkdir()
    (work / "f.c").write_text(SOURCE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"SCCACHE_DIR": str(tmp_path / "sccache"), "SCCACHE_SERVER_PORT": str(port)}
    environment = {**driver.environment, **own}

    def compiled(settings: Mapping[str, str]) -> tuple[int, str, bytes]:
        (work / "f.o").unlink(missing_ok=True)
        done = subprocess.run(
            [sccache, *driver.command("-O2", "-c", "f.c", "-o", "f.o")],
            cwd=work, env={**environment, **settings}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        made = (work / "f.o").read_bytes() if (work / "f.o").exists() else b""
        return done.returncode, done.stderr, made

    yield compiled
    subprocess.run([sccache, "--stop-server"], env=environment, capture_output=True, check=False)


def fingerprint(driver: Driver, settings: Mapping[str, str], work: Path) -> str:
    done = driver.run("--mlgo-fingerprint", cwd=work, settings=settings)
    assert done.returncode == 0
    return str(done.stdout.decode())


def test_each_model_has_objects_of_its_own(
    compile_cached: Compile, driver: Driver, tmp_path: Path
) -> None:
    told = [{**each, BUSTER: fingerprint(driver, each, tmp_path)} for each in (NEVER, DEFAULT)]
    first = [compile_cached(each) for each in told]
    assert [done[:2] for done in first] == [(0, ""), (0, "")]
    assert first[0][2] != first[1][2]
    assert [compile_cached(each) for each in told] == first


def test_untold_it_is_a_warning_and_with_strict_an_error(compile_cached: Compile) -> None:
    status, said, _ = compile_cached({**NEVER, "MLGO_STRICT": "1"})
    assert status != 0
    assert f"mlgo-cc: error: {UNTOLD}" in said
    status, said, made = compile_cached(NEVER)
    assert (status, bool(made)) == (0, True)
    assert f"mlgo-cc: warning: {UNTOLD}" in said
    assert compile_cached(DEFAULT)[2] == made  # of another model: what the warning says
