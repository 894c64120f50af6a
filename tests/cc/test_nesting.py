"""Programs called clang that start each other: an error where that never ends, only there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cc.conftest import AS_DEFAULT, MODELS, NOTHING, SOURCE, Driver
from tests.conftest import require

NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
KEEP_SMALLER = {"MLGO_KEEP_SMALLER": str(MODELS / "never")}
UNUSABLE = {"MLGO_CACHE": "/proc/none"}
"""No driver can be made: the script itself looks for clang."""
LED_BACK = 110
HANGS_S = 60


@dataclass(frozen=True)
class Programs:
    """Folders at the front of ``PATH``, each with programs of one kind."""

    driver: Driver
    work: Path

    @property
    def mlgo_cc(self) -> Path:
        return self.driver.scripts / "mlgo-cc"

    def folder(self, name: str) -> Path:
        made = self.work / name
        made.mkdir(exist_ok=True)
        return made

    def script(self, name: str, text: str) -> Path:
        made = self.folder("scripts") / name
        made.write_text(f"#!/bin/sh\n{text}\n")
        made.chmod(0o755)
        return made

    def masquerade(self) -> Path:
        """The folder of ccache's links, as Debian has it."""
        made = self.folder("ccache")
        (made / "clang").symlink_to(require("ccache", "ccache"))
        return made

    def installed(self) -> Path:
        """A folder in which ``mlgo-cc`` is called clang."""
        made = self.folder("installed")
        (made / "clang").symlink_to(self.mlgo_cc)
        return made

    def run(
        self,
        *command: str | Path,
        path: tuple[Path, ...] = (),
        settings: Mapping[str, str] = NOTHING,
    ) -> subprocess.CompletedProcess[str]:
        folders = [*map(str, path), self.driver.environment["PATH"]]
        environment = {
            **self.driver.environment,
            "MLGO_CLANG": "",
            "CCACHE_DIR": str(self.work / "kept"),
            "PATH": os.pathsep.join(folders),
            **settings,
        }
        return subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, text=True, check=False,
            timeout=HANGS_S,
        )  # fmt: skip

    def fails(self, done: subprocess.CompletedProcess[str], *named: Path) -> None:
        """The last words name two programs; nothing was warned of, and there is no object."""
        assert done.returncode == LED_BACK, done.stderr
        assert "warning" not in done.stderr
        assert not (self.work / "f.o").exists()
        first, second = named
        words = {said(first, second), said(second, first)}
        assert words & set(done.stderr.splitlines()), done.stderr


def said(clang: Path, driver: Path) -> str:
    return (
        f"mlgo-cc: error: clang: expected a compiler, found that {clang} starts {driver} again; "
        "MLGO_CLANG names another"
    )


@pytest.fixture
def programs(driver: Driver, work: Path) -> Programs:
    assert driver.run("--version", cwd=work).returncode == 0  # makes the driver
    return Programs(driver, work)


WAYS = {
    "without a model": NOTHING,
    "with a model": NEVER,
    "strict": {**NEVER, "MLGO_STRICT": "1"},
    "over FIFOs": {**NEVER, "MLGO_IN_PROCESS": "0"},
    "the smallest": KEEP_SMALLER,
}


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
def test_ccache_s_folder(
    programs: Programs, settings: Mapping[str, str], *, is_known: bool
) -> None:
    """Whether ccache's program has once been a clang that ends, or not."""
    ccache, installed = programs.masquerade(), programs.installed()
    command = ("clang", "-O2", "-c", "f.c")
    if is_known:
        (programs.folder("clang") / "clang").symlink_to(programs.driver.clang)
        ends = (ccache, programs.folder("clang"))
        assert (
            programs.run(programs.mlgo_cc, *command[1:], path=ends, settings=NEVER).returncode == 0
        )
        (programs.work / "f.o").unlink()
    for path in ((ccache, installed), (installed, ccache)):
        done = programs.run(*command, path=path, settings=settings)
        programs.fails(done, ccache / "clang", installed / "clang")


@pytest.mark.e2e
@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS.keys())
def test_two_copies(programs: Programs, settings: Mapping[str, str]) -> None:
    installed, copies = programs.installed(), programs.folder("copies")
    shutil.copy(programs.mlgo_cc, copies / "clang")
    done = programs.run("clang", "-O2", "-c", "f.c", path=(installed, copies), settings=settings)
    programs.fails(done, installed / "clang", copies / "clang")


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("start", ["exec ", ""], ids=["exec", "child"])
def test_a_clang_that_starts_the_driver(
    programs: Programs, start: str, settings: Mapping[str, str]
) -> None:
    mlgo_cc = programs.mlgo_cc
    wrapper = programs.script("wrapper", f'{start}{mlgo_cc} -DX "$@"')
    done = programs.run(
        mlgo_cc, "-O2", "-c", "f.c", settings={**settings, "MLGO_CLANG": str(wrapper)}
    )
    programs.fails(done, wrapper, mlgo_cc)


def test_a_clang_that_is_the_native_driver(programs: Programs) -> None:
    mlgo_cc, native = programs.mlgo_cc, programs.driver.program()
    done = programs.run(mlgo_cc, "-O2", "-c", "f.c", settings={"MLGO_CLANG": str(native)})
    programs.fails(done, native, mlgo_cc)


def test_where_no_driver_can_be_made(programs: Programs) -> None:
    """The script alone ends it; it warns once of that."""
    mlgo_cc = programs.mlgo_cc
    wrapper = programs.script("wrapper", f'{mlgo_cc} "$@"')
    settings = {**UNUSABLE, "MLGO_CLANG": str(wrapper)}
    done = programs.run(mlgo_cc, "-O2", "-c", "f.c", settings=settings)
    assert done.returncode == LED_BACK, done.stderr
    assert done.stderr.splitlines()[-1] == said(wrapper, mlgo_cc)
    assert done.stderr.count("cannot write to") == 1


def test_where_no_driver_can_be_made_and_ccache_is_in_front(programs: Programs) -> None:
    ccache, installed = programs.masquerade(), programs.installed()
    path = (ccache, installed)
    done = programs.run("clang", "-O2", "-c", "f.c", path=path, settings=UNUSABLE)
    assert done.returncode == LED_BACK, done.stderr
    assert done.stderr.splitlines()[-1] == said(ccache / "clang", installed / "clang")


def test_where_no_driver_can_be_made_and_there_is_no_clang(programs: Programs) -> None:
    (programs.folder("few") / "readlink").symlink_to(require("readlink", "coreutils"))
    installed = programs.installed()
    settings = {**UNUSABLE, "PATH": f"{installed}{os.pathsep}{programs.folder('few')}"}
    done = programs.run(installed / "clang", "-O2", "-c", "f.c", settings=settings)
    assert done.returncode == 1
    assert done.stderr == (
        "mlgo-cc: error: clang: expected clang or clang-19 or newer on PATH, found none; "
        "MLGO_CLANG names another\n"
    )


@pytest.mark.parametrize("settings", [NOTHING, NEVER], ids=["plain", "with a model"])
@pytest.mark.parametrize("strict", ["0", pytest.param("1", marks=pytest.mark.e2e)])
def test_a_first_use_under_the_name_of_clang(
    programs: Programs, settings: Mapping[str, str], strict: str
) -> None:
    """The driver is compiled by the first clang on PATH, which is the script that waits for it."""
    cache = {"MLGO_CACHE": str(programs.work / "new"), "MLGO_STRICT": strict}
    path = (programs.installed(),)
    done = programs.run("clang", "-O2", "-c", "f.c", path=path, settings={**settings, **cache})
    assert (done.returncode, done.stderr) == (0, "")
    made = (programs.work / "f.o").read_bytes()
    command = ("-O2", "-c", "f.c")
    assert programs.driver.run(*command, cwd=programs.work, settings=settings).returncode == 0
    assert made == (programs.work / "f.o").read_bytes()


@pytest.mark.parametrize("name", ["ccache", "script", "child", "driver"])
def test_a_wrapper_that_ends_in_clang(programs: Programs, name: str) -> None:
    """A clang that is ccache's, a script or another driver is one, and the model still answers."""
    clang = programs.driver.clang
    other = programs.folder("other") / "mlgo-cc"
    shutil.copy(programs.mlgo_cc, other)
    masquerade = programs.folder("ccache") / Path(clang).name
    masquerade.symlink_to(require("ccache", "ccache"))
    wrapper = {
        "ccache": masquerade,
        "script": programs.script("script", f'exec {clang} "$@"'),
        "child": programs.script("child", f'{clang} "$@"'),
        "driver": programs.script(
            "driver", f'MLGO_INLINING_MODEL= MLGO_CLANG={clang} exec {other} "$@"'
        ),
    }[name]
    driver, work = programs.driver, programs.work
    objects = []
    for program in (clang, str(wrapper)):
        settings = {**NEVER, "MLGO_STRICT": "1", "CCACHE_DIR": str(work / "kept")}
        settings["MLGO_CLANG"] = program
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert (done.returncode, done.stderr) == (0, b"")
        objects.append((work / "f.o").read_bytes())
    assert objects[0] == objects[1]


@pytest.mark.parametrize("settings", [NOTHING, AS_DEFAULT], ids=["plain", "with a model"])
def test_builds_inside_of_builds(programs: Programs, settings: Mapping[str, str]) -> None:
    """Clang's linker makes another program by the driver, whose linker does that again."""
    mlgo_cc = programs.mlgo_cc
    linker = programs.script(
        "linker",
        "rest=$((LEVEL - 1))\n"
        'if [ "$LEVEL" -gt 0 ]; then\n'
        f'LEVEL=$rest {mlgo_cc} -O2 f.c --ld-path="$0" -o "inner-$LEVEL" || exit\n'
        f'fi\nexec {require("ld.lld-22", "lld-22")} "$@"',
    )
    (programs.work / "f.c").write_text(f"{SOURCE}int main(int x, char **y) {{ return f(x); }}\n")
    done = programs.run(
        mlgo_cc, "-O2", "f.c", f"--ld-path={linker}", "-o", "outer",
        settings={**settings, "LEVEL": "3", "MLGO_CLANG": programs.driver.clang},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("outer", "inner-3", "inner-2", "inner-1"):
        assert subprocess.run([programs.work / name], check=False).returncode == 1 + 4
