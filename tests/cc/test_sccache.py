"""sccache in front of the driver: it has to be told what decides the code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, SOURCE, Driver, free_port
from tests.conftest import require

BUSTER = "SCCACHE_C_CUSTOM_CACHE_BUSTER"
UNTOLD = (
    f'sccache: expected {BUSTER}="$(mlgo-cc --mlgo-fingerprint)", found none, without which it '
    "gives back objects of another model"
)
NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
DEFAULT = {"MLGO_INLINING_MODEL": str(MODELS / "default")}

OF_OTHERS = UNTOLD.replace("found none", "found another text")
PROJECT = "mlgo-gym project 1\ntarget t\nobject f.o\nend\n"

Compile = Callable[[Mapping[str, str]], tuple[int, str, bytes]]


@pytest.fixture
def compile_cached(driver: Driver, tmp_path: Path) -> Iterator[Compile]:
    """Compiles ``f.c`` behind an sccache of its own: the status, what is said, and the object."""
    sccache = require("sccache", "sccache")
    work = tmp_path / "work"
    work.mkdir()
    (work / "f.c").write_text(SOURCE)
    own = {"SCCACHE_DIR": str(tmp_path / "sccache"), "SCCACHE_IDLE_TIMEOUT": "60"}
    environment = {**driver.environment, **own}
    for _ in range(3):  # somebody else may have taken the port meanwhile
        environment["SCCACHE_SERVER_PORT"] = str(free_port())
        command = [sccache, "--start-server"]
        started = subprocess.run(command, env=environment, capture_output=True, check=False)
        if started.returncode == 0:
            break
    else:
        pytest.fail(f"sccache did not start: {started.stderr.decode()}")

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


def test_a_text_that_is_not_the_fingerprint(
    compile_cached: Compile, driver: Driver, tmp_path: Path
) -> None:
    own = fingerprint(driver, NEVER, tmp_path)
    both = {**NEVER, "MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density")}
    more, other = (fingerprint(driver, each, tmp_path) for each in (both, DEFAULT))
    assert more.startswith(own)
    for text in ("1", other, more, f"x{own}", own.removesuffix(own[-9:])):
        status, said, _ = compile_cached({**NEVER, "MLGO_STRICT": "1", BUSTER: text})
        assert status != 0
        assert f"mlgo-cc: error: {OF_OTHERS}" in said
    for text in (own, own.removesuffix("\n"), other + own, own + other):
        status, said, _ = compile_cached({**NEVER, "MLGO_STRICT": "1", BUSTER: text})
        assert (status, said) == (0, "")


def test_a_project_file_tells_objects_of_one_source_apart(
    compile_cached: Compile, driver: Driver, tmp_path: Path
) -> None:
    """As sccache cannot: it is an error, or the object is made without the project file."""
    project = tmp_path / "project.txt"
    project.write_text(PROJECT)
    settings = {"MLGO_PROJECT": str(project)}
    settings[BUSTER] = fingerprint(driver, settings, tmp_path)
    words = (
        "sccache: expected no project file, which may tell the objects of one source apart, "
        "as sccache does not; ccache does"
    )
    status, said, _ = compile_cached(settings | {"MLGO_STRICT": "1"})
    assert (status != 0, f"mlgo-cc: error: {words}" in said) == (True, True)
    status, said, _ = compile_cached(settings)
    warning = f"mlgo-cc: warning: {words}; compiled without the project file\n"
    assert (status, said) == (0, warning)
