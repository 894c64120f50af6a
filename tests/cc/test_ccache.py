"""ccache in front of the driver: what it returns is what the driver would make now."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cc.conftest import CHANNEL, MODELS, NOTHING, SANITIZED, SOURCE, Argument, Driver
from tests.conftest import require

CHECK = {"CCACHE_COMPILERCHECK": "%compiler% --mlgo-fingerprint"}
UNTOLD = (
    "ccache: expected CCACHE_COMPILERCHECK='%compiler% --mlgo-fingerprint', found 'mtime', by "
    "which it gives back objects of another model"
)
NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
DEFAULT = {"MLGO_INLINING_MODEL": str(MODELS / "default")}


@dataclass(frozen=True)
class Cached:
    """Runs the driver behind ccache, and by itself, in one folder."""

    ccache: str
    driver: Driver
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**self.driver.environment, "CCACHE_DIR": str(self.work.parent / "ccache")}

    def compile(
        self, settings: Mapping[str, str], *arguments: Argument, cxx: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Compiles ``f.c`` to ``f.o``, which is not there before."""
        (self.work / "f.o").unlink(missing_ok=True)
        return subprocess.run(
            [self.ccache, *self.driver.command("-O2", *arguments, "-c", "f.c", cxx=cxx)],
            cwd=self.work, env={**self.environment, **settings}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def made(self, settings: Mapping[str, str], *arguments: Argument) -> bytes:
        done = self.compile(settings, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return (self.work / "f.o").read_bytes()

    def expected(self, settings: Mapping[str, str], *arguments: Argument) -> bytes:
        """What the driver makes without ccache."""
        done = self.driver.run("-O2", *arguments, "-c", "f.c", cwd=self.work, settings=settings)
        assert (done.returncode, done.stderr) == (0, b"")
        return (self.work / "f.o").read_bytes()

    def hits(self) -> int:
        done = subprocess.run(
            [self.ccache, "--print-stats"],
            env=self.environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        counts = dict(line.split("\t") for line in done.stdout.splitlines())
        return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


@pytest.fixture
def cached(driver: Driver, tmp_path: Path) -> Cached:
    ccache = require("ccache", "ccache")
    work = tmp_path / "work"
    work.mkdir()
    (work / "f.c").write_text(SOURCE)
    return Cached(ccache, driver, work)


@pytest.mark.parametrize("kind", ["other", "clang"])
def test_each_model_has_objects_of_its_own(cached: Cached, kind: str) -> None:
    """Whatever kind of compiler ccache takes it for."""
    settings = [{**CHECK, **each, "CCACHE_COMPILERTYPE": kind} for each in (NEVER, DEFAULT, {})]
    expected = [cached.expected(each) for each in settings]
    assert expected[0] != expected[1] == expected[2]
    assert [cached.made(each) for each in settings] == expected
    assert cached.hits() == 0
    assert [cached.made(each) for each in settings] == expected
    assert cached.hits() == len(settings)


def change(model: Path) -> None:
    """Puts another graph into a model's folder."""
    shutil.copy(MODELS / "default" / "model.tflite", model / "model.tflite")


def test_a_model_that_changes_in_its_place(cached: Cached, tmp_path: Path) -> None:
    model = shutil.copytree(MODELS / "never", tmp_path / "model")
    settings = {**CHECK, "MLGO_INLINING_MODEL": str(model)}
    before = cached.made(settings)
    change(model)
    assert cached.made(settings) == cached.expected(settings) != before
    assert cached.hits() == 0


def test_the_fingerprint_has_a_model_of_the_command_line(cached: Cached, tmp_path: Path) -> None:
    model = shutil.copytree(MODELS / "never", tmp_path / "model")
    option = f"--mlgo-inlining-model={model}"
    before = cached.made(CHECK, option)
    assert cached.made(CHECK, option) == before
    assert cached.hits() == 1
    change(model)
    assert cached.made(CHECK, option) == cached.expected(NOTHING, option) != before
    assert cached.hits() == 1


PARTED = """
mlgo-gym project 1
target library
object static/f.o
target plugin
exported
object shared/f.o
target untouched
plain
object plain/f.o
end
"""
INLINE = """
struct Api { __attribute__((noinline)) int answer(int x) { return x * 42 + 1; } };
int use(Api &api, int x) { return api.answer(x); }
"""


@pytest.mark.skipif(SANITIZED in os.environ, reason="as test_inside.py")
@pytest.mark.parametrize("options", [(), ("-MMD",), ("@line.rsp",)], ids=" ".join)
@pytest.mark.parametrize("by", ["variable", "option"])
def test_one_source_for_objects_that_a_project_file_tells_apart(
    cached: Cached, options: tuple[str, ...], by: str
) -> None:
    """Whichever is first, and though ccache looks at the name of no object."""
    work = cached.work
    (work / "f.cpp").write_text(INLINE)
    (work / "project.txt").write_text(PARTED.lstrip())
    (work / "line.rsp").write_text("-DX=1")
    told = {"MLGO_PROJECT": str(work / "project.txt")} if by == "variable" else {}
    more = () if told else (f"--mlgo-project={work / 'project.txt'}",)
    environment = {**cached.environment, **CHECK, **told, "MLGO_STRICT": "1"}
    command = [*cached.driver.command("-Oz", *more, *options, cxx=True), "-c", "f.cpp", "-o"]
    expected: dict[str, bytes] = {}
    names = ["static", "shared", "plain", "new"]
    for name in names:
        (work / name).mkdir()
        subprocess.run([*command, f"{name}/f.o"], cwd=work, env=environment, check=True)
        expected[name] = (work / name / "f.o").read_bytes()
    assert expected["static"] != expected["shared"] == expected["plain"] == expected["new"]
    for name in [*names, *reversed(names)]:
        (work / name / "f.o").unlink()
        done = subprocess.run(
            [cached.ccache, *command, f"{name}/f.o"],
            cwd=work, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert (work / name / "f.o").read_bytes() == expected[name]
    assert cached.hits() == len(names)


@pytest.mark.parametrize("setting", ["namespace=x", "base_dir=/f"])
def test_settings_in_front_of_the_compiler(driver: Driver, tmp_path: Path, setting: str) -> None:
    """Newer versions of ccache take them; a shell by ccache's name has such a command line.

    The fingerprint tells objects apart, whatever stands before the compiler.
    """
    (tmp_path / "f.cpp").write_text(INLINE)
    (tmp_path / "project.txt").write_text(PARTED.lstrip())
    ccache = shutil.copy(require("sh", "dash"), tmp_path / "ccache")
    ask = tmp_path / setting
    ask.parent.mkdir(exist_ok=True)
    ask.write_text('"$1" --mlgo-fingerprint\nexit $?\n')
    environment = {**driver.environment, "MLGO_PROJECT": "project.txt"}
    found = []
    for name in ("static", "shared"):
        (tmp_path / name).mkdir()
        command = driver.command("-Oz", "-c", "f.cpp", "-o", f"{name}/f.o", cxx=True)
        done = subprocess.run(
            [ccache, setting, *command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        found.append(done.stdout)
    assert found[0] != found[1]


def test_untold_ccache_gets_no_objects_of_a_project_file(cached: Cached) -> None:
    (cached.work / "f.cpp").write_text(INLINE)
    (cached.work / "project.txt").write_text(PARTED.lstrip())
    (cached.work / "static").mkdir()
    command = cached.driver.command("-Oz", "-c", "f.cpp", "-o", "static/f.o", cxx=True)
    environment = {**cached.environment, "MLGO_PROJECT": "project.txt"}
    done = subprocess.run(
        [cached.ccache, *command],
        cwd=cached.work, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    warning = f"mlgo-c++: warning: {UNTOLD}; compiled without the project file\n"
    assert (done.returncode, done.stderr) == (0, warning)
    made = (cached.work / "static" / "f.o").read_bytes()
    assert cached.driver.run(*command[1:], cwd=cached.work, cxx=True).returncode == 0
    assert made == (cached.work / "static" / "f.o").read_bytes()


def test_ccache_in_front_of_a_script(cached: Cached) -> None:
    """One that starts the driver as a child of its own is looked through."""
    script = cached.work / "mlgo-script"
    script.write_text(f'#!/bin/sh\n{cached.driver.scripts / "mlgo-cc"} "$@"\nexit $?\n')
    script.chmod(0o755)
    command = [cached.ccache, str(script), "-O2", "-c", "f.c"]
    strict = {**cached.environment, **NEVER, "MLGO_STRICT": "1"}
    for told, status in ((NOTHING, 1), (CHECK, 0)):
        done = subprocess.run(
            command, cwd=cached.work, env={**strict, **told},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (
            status, f"mlgo-cc: error: {UNTOLD}\n" if status else ""
        )  # fmt: skip


def test_ccache_by_itself_knows_no_models(cached: Cached) -> None:
    """Why it has to be told: the second object is wrong. ccache gives back the warning as well."""
    done, again = cached.compile(NEVER), cached.compile(DEFAULT)
    assert (done.returncode, again.returncode) == (0, 0)
    assert done.stderr == again.stderr == f"mlgo-cc: warning: {UNTOLD}\n"
    assert (cached.work / "f.o").read_bytes() == cached.expected(NEVER) != cached.expected(DEFAULT)
    assert cached.hits() == 1


@pytest.mark.parametrize(
    "told",
    [
        {"CCACHE_COMPILERCHECK": "%compiler% --mlgo-fingerprint"},
        {"CCACHE_CONFIGPATH": "ccache.conf"},
        {"CCACHE_DISABLE": "1"},
    ],
    ids=lambda told: next(iter(told)),
)
def test_ccache_that_is_told_or_not(cached: Cached, told: dict[str, str]) -> None:
    """By its variables, or in its configuration file; being strict, nothing is made otherwise."""
    (cached.work / "ccache.conf").write_text("compiler_check = %compiler% --mlgo-fingerprint\n")
    strict = NEVER | {"MLGO_STRICT": "1"}
    extra = {"CCACHE_EXTRAFILES": str(MODELS / "never" / "model.tflite")}
    for short in (NOTHING, extra):  # which tells no other setting, nor clang's version
        done = cached.compile({**strict, **short})
        assert (done.returncode, done.stderr) == (1, f"mlgo-cc: error: {UNTOLD}\n")
        assert not (cached.work / "f.o").exists()
    assert cached.made(strict | told) == cached.expected(NEVER)


@pytest.mark.parametrize(
    "changed",
    [
        {"MLGO_SIZE_INCREASE_THRESHOLD": "3"},
        {"MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density")},
    ],
    ids=lambda each: next(iter(each)),
)
def test_other_settings_count(cached: Cached, changed: dict[str, str]) -> None:
    settings = CHECK | NEVER
    cached.made(settings)
    cached.made(settings | changed)
    assert cached.hits() == 0
    cached.made(settings | changed)
    assert cached.hits() == 1


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_fallback_is_kept_unless_it_is_an_error(cached: Cached, *, is_strict: bool) -> None:
    """There is no temporary folder, once."""
    settings = {**CHECK, **NEVER, **CHANNEL, "MLGO_STRICT": str(int(is_strict))}
    done = cached.compile({**settings, "TMPDIR": "/proc"})
    assert "cannot make a folder in '/proc'" in done.stderr
    assert done.returncode == int(is_strict)
    again = cached.compile(settings)
    assert again.returncode == 0
    made = (cached.work / "f.o").read_bytes()
    if is_strict:
        assert (again.stderr, made) == ("", cached.expected(settings))
    else:
        assert (again.stderr, made) == (done.stderr, cached.expected(NOTHING))


@pytest.mark.e2e
def test_what_has_no_fingerprint_is_not_kept(cached: Cached) -> None:
    """Settings that are no good are to be warned of each time."""
    for settings in ({"MLGO_TIMEOUT": "soon"}, {"MLGO_INLINING_MODEL": "/none"}):
        for _ in range(2):
            done = cached.compile(CHECK | settings)
            assert done.returncode == 0
            assert "compiled by plain clang" in done.stderr
    assert cached.hits() == 0


def test_dependency_files_and_diagnostics(cached: Cached) -> None:
    settings = CHECK | NEVER | {"MLGO_STRICT": "1"}
    (cached.work / "f.c").write_text(f"{SOURCE}int h(void) {{ int unused; return 1; }}\n")
    first = cached.compile(settings, "-Wall", "-MMD", "-MT", "other")
    assert "unused variable" in first.stderr
    dependencies = (cached.work / "f.d").read_text()
    assert dependencies.startswith("other: f.c")
    (cached.work / "f.d").unlink()
    again = cached.compile(settings, "-Wall", "-MMD", "-MT", "other")
    assert (again.returncode, again.stderr) == (first.returncode, first.stderr)
    assert (cached.work / "f.d").read_text() == dependencies
    assert cached.hits() == 1


def test_cxx(cached: Cached) -> None:
    (cached.work / "f.c").write_text(f"struct S {{ ~S() {{}} }} s; {SOURCE}")
    for hits in (0, 1):
        done = cached.compile(CHECK | NEVER, "-x", "c++", cxx=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert b"_Z1fi" in (cached.work / "f.o").read_bytes()
        assert cached.hits() == hits
