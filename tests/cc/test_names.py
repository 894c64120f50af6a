"""The names that the driver is called by: a launcher of a compiler, clang for another target."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, ROOT, Argument, Driver
from tests.conftest import require

NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1"}
CXX = 'static int g(int x) { return x * x; } extern "C" int f(int x) { return g(x) + g(x + 1); }\n'


def run(
    driver: Driver, command: list[Argument], work: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=work, env={**driver.environment, **settings}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def launch(
    driver: Driver, *arguments: Argument, work: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    return run(driver, [driver.scripts / "mlgo-launch", *arguments], work, **settings)


@pytest.mark.parametrize("name", ["mlgo-launch", "mlgo-cc", "mlgo-c++"])
@pytest.mark.parametrize("compiler", ["clang-22", "clang++-22"])
def test_launches_the_compiler_in_front(
    driver: Driver, work: Path, name: str, compiler: str
) -> None:
    path = require(compiler, "clang-22")
    source = "f.cc" if "++" in compiler else "f.c"
    (work / "f.cc").write_text(CXX)
    expected = driver.run("-O2", "-c", source, cwd=work, settings=NEVER)
    object_file = (work / "f.o").read_bytes()
    done = run(
        driver, [driver.scripts / name, path, "-O2", "-c", source], work, **NEVER, MLGO_CLANG="none"
    )
    assert (expected.returncode, done.returncode, done.stderr) == (0, 0, "")
    assert (work / "f.o").read_bytes() == object_file
    driver.plain("-O2", "-c", source, cwd=work)
    assert (work / "f.o").read_bytes() != object_file


@pytest.mark.parametrize("word", [[], ["--mlgo-typo"]], ids=["", "a-bad-option"])
def test_a_compiler_may_be_named_without_its_folder(
    driver: Driver, work: Path, word: list[str]
) -> None:
    """It is the one that compiles, also where the model cannot."""
    require("clang-22", "clang-22")
    (work / "clang-21").write_text("")  # an input, as any file that is there
    words: list[Argument] = [*word]
    tried: list[Argument] = [
        driver.scripts / "mlgo-cc",
        *words,
        "clang-22",
        "-v",
        "-O2",
        "-c",
        "f.c",
    ]
    done = run(driver, tried, work, MLGO_CLANG="none")
    assert (done.returncode, (work / "f.o").exists()) == (0, True), done.stderr
    assert ("unknown option '--mlgo-typo'" in done.stderr) == bool(word)
    tried[-5:] = ["clang-21", "-###"]
    file = run(driver, tried, work, MLGO_CLANG="none")
    assert "clang: expected a program, found none at 'none'" in file.stderr


def test_another_compiler_works_alone(driver: Driver, work: Path) -> None:
    gcc = require("gcc", "gcc")
    subprocess.run([gcc, "-O2", "-c", "f.c"], cwd=work, check=True)
    expected = (work / "f.o").read_bytes()
    model = {"MLGO_INLINING_MODEL": NEVER["MLGO_INLINING_MODEL"]}
    done = launch(driver, gcc, "-O2", "-c", "f.c", work=work, **model)
    assert (done.returncode, (work / "f.o").read_bytes()) == (0, expected)
    assert re.fullmatch(
        r"mlgo-launch: warning: clang: expected a version from '.*gcc --version', found 'gcc .*'; "
        r"compiled without a model\n",
        done.stderr,
    )
    strict = launch(driver, gcc, "-O2", "-c", "f.c", work=work, **NEVER)
    assert strict.returncode == 1
    assert "error: clang: expected a version" in strict.stderr


def test_needs_a_compiler(driver: Driver, work: Path) -> None:
    none = launch(driver, work=work)
    assert (none.returncode, none.stderr) == (
        1, "mlgo-launch: error: expected the compiler to launch, found none\n",
    )  # fmt: skip
    option = launch(driver, "-c", "f.c", work=work)
    assert (option.returncode, option.stderr) == (
        1, "mlgo-launch: error: clang: expected a program, found none at '-c'\n",
    )  # fmt: skip


def test_launches_without_a_cache(driver: Driver, work: Path) -> None:
    clang = require("clang-22", "clang-22")
    done = launch(driver, clang, "-O2", "-c", "f.c", work=work, MLGO_CACHE="/dev/null")
    assert done.returncode == 0
    assert "compiled by plain clang" in done.stderr
    assert (work / "f.o").exists()


@pytest.mark.parametrize("cache", ["", "/dev/null"], ids=["driver", "script alone"])
@pytest.mark.parametrize("name", ["aarch64-linux-gnu-clang", "aarch64-linux-gnu-clang++"])
def test_compiles_for_the_target_of_its_name(
    driver: Driver, work: Path, name: str, cache: str
) -> None:
    (work / name).symlink_to(driver.scripts / "mlgo-cc")
    (work / "f.cc").write_text(CXX)
    source = "f.cc" if "++" in name else "f.c"
    expected = driver.plain("--target=aarch64-linux-gnu", "-Oz", "-c", source, cwd=work)
    object_file = (work / "f.o").read_bytes()
    settings = {"MLGO_CACHE": cache} if cache else {}
    done = run(driver, [work / name, "-Oz", "-c", source], work, **settings)
    assert (expected.returncode, done.returncode) == (0, 0)
    assert (work / "f.o").read_bytes() == object_file


def test_a_model_answers_for_the_target_of_its_name(driver: Driver, work: Path) -> None:
    (work / "aarch64-linux-gnu-clang").symlink_to(driver.scripts / "mlgo-cc")
    driver.run("--target=aarch64-linux-gnu", "-O2", "-c", "f.c", cwd=work, settings=NEVER)
    expected = (work / "f.o").read_bytes()
    done = run(driver, [work / "aarch64-linux-gnu-clang", "-O2", "-c", "f.c"], work, **NEVER)
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "f.o").read_bytes() == expected


def test_a_prefix_that_is_no_target_is_only_a_name(driver: Driver, work: Path) -> None:
    (work / "our-own-clang").symlink_to(driver.scripts / "mlgo-cc")
    driver.plain("-O2", "-c", "f.c", cwd=work)
    expected = (work / "f.o").read_bytes()
    done = run(driver, [work / "our-own-clang", "-O2", "-c", "f.c"], work)
    assert (done.returncode, (work / "f.o").read_bytes()) == (0, expected)


def test_help_names_what_the_documentation_does(driver: Driver, work: Path) -> None:
    done = launch(
        driver, "--mlgo-help", work=work, PATH=f"{Path(shutil.which('find') or '').parent}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = (ROOT / "docs" / "guides" / "compiler-driver.md").read_text()
    options = re.findall(r"--mlgo-[a-z0-9-]+", done.stdout)
    documented = re.findall(r"^\| `(--mlgo-[a-z0-9-]+)", text, re.MULTILINE)
    assert sorted(set(options) - {"--mlgo-"}) == sorted(set(documented))
    assert max(map(len, done.stdout.splitlines())) <= 80
