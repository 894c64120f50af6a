"""What ``mlgo-cc`` costs: single files and whole builds, beside plain clang, in one run.

::

    python -m benchmarks driver_builds
    python -m benchmarks.driver_builds --model inlining-for-size --project zstd --rounds 1
    python -m benchmarks.driver_builds --model inlining-for-size --project jq --keep-smaller

Single files: wall time of one compilation, alternating, the median of several. Builds: an unchanged
project with two jobs (Lua 5.4 and zstd by their own makefiles, zstd also by Meson, jq by its
configure script, sentencepiece, which is C++, by CMake), alternating, then its own tests, and the
code in its objects, and in its programs and libraries after linking. ``--keep-smaller`` takes the
models that way: as the driver does it, where clang forks, and by whole compilations.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.debian_source import DebianSource, fetch_tree
from benchmarks.measuring import in_turns
from corpus_tools import load_recipe
from corpus_tools.sdist import fetch_sdist, unpack_sdist
from mlgo_gym.cc._builds import BinaryFile, read_build
from mlgo_gym.model import find_model, read_card
from mlgo_gym.runners._models import problem_of_models, settings_of_models

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests" / "models"
CLANG = "clang-22"
LUA = "third-party/lua54"
LUA_MAKE = ("MYLIBS=-ldl", "MYCFLAGS=-std=c99 -DLUA_USE_LINUX", "CWARNGCC=")


ZSTD = DebianSource(
    "libzstd=1.5.4+dfsg2-5",
    "libzstd_1.5.4+dfsg2.orig.tar.xz",
    "8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953",
)
# Programs that no build is for: how build systems look at the compiler, tests, zstd's copies.
_BESIDE = ("CMakeFiles/", "meson-private/", "/tests/", "/obj/conf/")
# zstd's folders have the compiler's name in theirs.
_CONFIGURATION = re.compile(r"/conf_[0-9a-f]+/")
NOTHING: Mapping[str, str] = {}
# How LLVM is answered: in clang's process, or by another one.
FIFOS = {"MLGO_IN_PROCESS": "0"}
WAYS: Mapping[str, Mapping[str, str]] = {"in-process": {}, "FIFOs": FIFOS}
_KEPT = "MLGO_KEEP_SMALLER"
_VARIABLES = {"InliningForSize": "MLGO_INLINING_MODEL", "RegallocEviction": "MLGO_REGALLOC_MODEL"}


@dataclass(frozen=True)
class Project:
    """A project to build.

    Attributes:
        source: the recipe whose sdist holds it, or a source package of Debian.
        root: the folder of the project in it.
        configure: commands before the build; ``{CC}`` and ``{CXX}`` are the compilers.
        build: the command.
        checks: commands that run the project's own tests, in the built folder.
        inner: an archive in the sdist that holds the project.
    """

    source: str | DebianSource
    root: str
    configure: tuple[tuple[str, ...], ...]
    build: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]
    inner: str = ""


PROJECTS = {
    "lua": Project(
        "lupa",
        LUA,
        (),
        ("make", "-s", "-j2", "CC={CC}", *LUA_MAKE),
        (("sh", "-c", 'cd testes && ../lua -e"_U=true" all.lua'),),
    ),
    "jq": Project(
        "jq",
        "",
        (("./configure", "-q", "--disable-docs", "CC={CC}", "CFLAGS=-O2"),),
        ("make", "-s", "-j2"),
        (("sh", "tests/jqtest"),),
        inner="deps/jq-1.8.2.tar.gz",
    ),
    "sentencepiece": Project(
        "sentencepiece",
        "sentencepiece",
        (
            (
                *("cmake", "-S", ".", "-B", "build", "-G", "Unix Makefiles"),
                *("-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_CXX_COMPILER={CXX}"),
                *("-DCMAKE_C_COMPILER={CC}", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"),
            ),
        ),
        ("make", "-s", "-j2", "-C", "build", "spm_encode"),
        (("build/src/spm_encode", "--help"),),
    ),
    "zstd": Project(
        ZSTD,
        "",
        (),
        ("make", "-s", "-j2", "CC={CC}"),
        (
            ("make", "-s", "-j2", "check", "CC={CC}"),
            ("make", "-s", "-j2", "-C", "tests", "test-fuzzer", "CC={CC}", "FUZZERTEST=-T30s"),
        ),
    ),
    "zstd by Meson": Project(
        ZSTD,
        "build/meson",
        (
            (
                *("env", "CC={CC}", "CXX={CXX}", "meson", "setup", "out"),
                *("--buildtype=release", "-Dbin_tests=true"),
            ),
        ),
        ("ninja", "-C", "out", "-j2"),
        (("meson", "test", "-C", "out", "test-pool", "test-legacy", "test-invalidDictionaries"),),
    ),
}


def unpack(project: Project, folder: Path, cache: Path) -> Path:
    """The project's sources, in a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    source = project.source
    if isinstance(source, DebianSource):
        root = unpack_sdist(fetch_tree(source, cache), folder)
    else:
        root = unpack_sdist(fetch_sdist(load_recipe(source), cache), folder)
    if project.inner:
        root = unpack_sdist(root / project.inner, folder)
    return root / project.root


def compilers(*, driver: bool) -> dict[str, str]:
    """The C and the C++ compiler: the driver's scripts, or plain clang."""
    if driver:
        return {"CC": str(ROOT / "scripts/mlgo-cc"), "CXX": str(ROOT / "scripts/mlgo-c++")}
    return {"CC": CLANG, "CXX": CLANG.replace("-", "++-")}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's, with the settings, and this Python first, which the scripts need once."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Projects that find ccache by themselves would be given objects of other settings.
    own = {"PATH": path, "MLGO_CLANG": CLANG, "MLGO_STRICT": "1", "CCACHE_DISABLE": "1"}
    return {**os.environ, **own, **settings}


def build(
    project: Project, folder: Path, settings: Mapping[str, str], *, driver: bool
) -> tuple[float, float]:
    """Configure and build; returns the seconds of time and of processors that the build took."""
    for command in project.configure:
        _run(command, folder, settings, driver=driver)
    start, used = time.perf_counter(), _processors_s()
    _run(project.build, folder, settings, driver=driver)
    return time.perf_counter() - start, _processors_s() - used


def _processors_s() -> float:
    """Of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(
    command: tuple[str, ...], folder: Path, settings: Mapping[str, str], *, driver: bool
) -> None:
    names = compilers(driver=driver)
    filled = [word.format(**names) if "{C" in word else word for word in command]
    call(*filled, folder=folder, settings=settings)


def call(
    *command: object, folder: Path | None = None, settings: Mapping[str, str] = NOTHING
) -> str:
    """Run a command of a build; what it printed.

    Raises:
        RuntimeError: it fails; with the end of what it said.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=environment(settings), capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        raise RuntimeError(f"{words[:8]} in {folder or Path.cwd()}: {said}")
    return done.stdout


def binaries(folder: Path) -> dict[str, BinaryFile]:
    """Objects, programs and libraries of a build, by names that are the same for each compiler."""
    found = {_CONFIGURATION.sub("/conf/", name): file for name, file in read_build(folder).items()}
    return {
        name: file
        for name, file in found.items()
        if not (file.is_linked and any(part in name for part in _BESIDE))
    }


def settings_of(models: Sequence[str], *, keep_smaller: bool = False) -> dict[str, dict[str, str]]:
    """The settings of each build, by the name that is printed: clang, its own answers, models.

    Args:
        models: folders, or names of shipped models.
        keep_smaller: each model's objects are compared with clang's own, the smaller stays.

    Raises:
        FileNotFoundError: there is no such model.
    """
    settings: dict[str, dict[str, str]] = {
        "clang": {},
        "default": {
            "MLGO_INLINING_MODEL": str(MODELS / "default"),
            "MLGO_SIZE_INCREASE_THRESHOLD": "1e9",
        },
    }
    for name in models:
        folder = Path(find_model(name))
        if not folder.is_dir():
            raise FileNotFoundError(f"model {name!r}: expected a folder or the name of a model")
        card = read_card(folder)
        if keep_smaller:
            values = {_KEPT: str(folder.absolute())}
            settings |= {folder.name: values, f"{folder.name}, whole": {**values, **FIFOS}}
            continue
        variable = _VARIABLES[card.problem if card else "InliningForSize"]
        settings[folder.name] = {variable: str(folder.absolute())}
    return settings


def run(
    names: Sequence[str] | None = None,
    rounds: int = 3,
    cache: Path | None = None,
    models: Sequence[str] = (str(MODELS / "inliner"),),
    *,
    keep_smaller: bool = False,
) -> None:
    """Measure single files and projects.

    Args:
        names: of `PROJECTS`; ``None`` takes all, and measures single files too.
        rounds: how often each is built under each of the settings.
        cache: where sources are kept.
        models: what is built with besides plain clang and clang's own answers.
        keep_smaller: see `settings_of`.
    """
    cache = cache or ROOT / "build" / "sdists"
    settings = settings_of(models, keep_smaller=keep_smaller)
    with tempfile.TemporaryDirectory() as folder:
        if names is None:
            files(Path(folder), settings, cache)
        for name in names or list(PROJECTS):
            builds(name, settings, Path(folder), rounds, cache)


def files(
    folder: Path, settings: Mapping[str, Mapping[str, str]], cache: Path, rounds: int = 15
) -> None:
    """What the driver adds to one compilation, under each of the settings."""
    (folder / "empty.c").touch()
    sources = unpack(PROJECTS["lua"], folder / "files", cache)
    for source in (folder / "empty.c", sources / "lvm.c"):
        for name, values in settings.items():
            if name != "clang":
                file(source, name, values, rounds)


def file(source: Path, name: str, values: Mapping[str, str], rounds: int) -> None:
    arguments = ["-O2", "-c", str(source), "-o", str(source.with_suffix(".o"))]
    base, by_way = seconds_of(arguments, values, rounds)
    for way, mine in by_way.items():
        more, percent = 1e3 * (mine - base), 100 * (mine / base - 1)
        print(
            f"{source.name}, {name}, {way}: clang {1e3 * base:.1f} ms, "
            f"mlgo-cc {1e3 * mine:.1f} ms, {more:+.1f} ms, {percent:+.1f} %"
        )


def seconds_of(
    arguments: Sequence[str], settings: Mapping[str, str], rounds: int
) -> tuple[float, dict[str, float]]:
    """The median seconds of a compilation by clang, and by mlgo-cc in each way of answering."""
    driver = compilers(driver=True)["CC"]
    compile_file(driver, arguments, settings)  # once before, so that the model is compiled
    ways = ways_of(settings)
    calls = {"clang": partial(compile_file, CLANG, arguments, {})}
    for name, way in ways.items():
        calls[name] = partial(compile_file, driver, arguments, {**settings, **way})
    medians = {name: median(seconds) for name, seconds in in_turns(calls, rounds).items()}
    return medians.pop("clang"), medians


def ways_of(settings: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Those of `WAYS` that a model can answer in; its inputs may be of LLVM's module in clang."""
    models = [settings[each] for each in (*_VARIABLES.values(), _KEPT) if each in settings]
    needs_module = settings_of_models(models, problem_of_models(models))
    return {way: more for way, more in WAYS.items() if more is not FIFOS or not needs_module}


def compile_file(compiler: str, arguments: Sequence[str], settings: Mapping[str, str]) -> None:
    """Run a compiler under settings."""
    subprocess.run([compiler, *arguments], env=environment(settings), check=True)


def builds(
    name: str, settings: Mapping[str, Mapping[str, str]], folder: Path, rounds: int, cache: Path
) -> None:
    project = PROJECTS[name]
    times: dict[str, list[tuple[float, float]]] = {each: [] for each in settings}
    found: dict[str, dict[str, BinaryFile]] = {}
    for number in range(rounds):
        for each, values in settings.items():
            place = folder / name.replace(" ", "-")
            sources = unpack(project, place, cache)
            driver = each != "clang"
            times[each].append(build(project, sources, values, driver=driver))
            found[each] = binaries(sources)
            for check in project.checks if number == 0 else ():
                _run(check, sources, values, driver=driver)
            shutil.rmtree(place)
    report(name, times, found)


def report(
    name: str,
    times: Mapping[str, Sequence[tuple[float, float]]],
    found: Mapping[str, Mapping[str, BinaryFile]],
) -> None:
    base = found["clang"]
    medians = {
        each: [median(column) for column in zip(*rows, strict=True)] for each, rows in times.items()
    }
    for each, mine in found.items():
        seconds, processors = medians[each]
        ratios = [one / other for one, other in zip(medians[each], medians["clang"], strict=True)]
        objects = {key: file.code_bytes for key, file in mine.items() if not file.is_linked}
        linked = {key: file.code_bytes for key, file in mine.items() if file.is_linked}
        equal = sum(key in base and base[key].code_bytes == size for key, size in objects.items())
        print(
            f"{name}, {each}: {seconds:.1f} s, {ratios[0]:.2f} x; "
            f"of processors {processors:.1f} s, {ratios[1]:.2f} x; bytes of code: "
            f"{sum(objects.values()):,} in {len(objects)} objects, {equal} of clang's size, "
            f"{sum(linked.values()):,} linked; its tests pass"
        )
        for key, size in linked.items():
            print(f"  {key}: {size:,}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_builds")
    parser.add_argument("--model", action="append", help="a folder or a shipped one's name; repeat")
    parser.add_argument("--project", action="append", choices=tuple(PROJECTS), help="repeat")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sources", type=Path, help="where sources are kept")
    parser.add_argument("--keep-smaller", action="store_true", help="than clang's own objects")
    options = parser.parse_args()
    models = options.model or [str(MODELS / "inliner")]
    run(options.project, options.rounds, options.sources, models, keep_smaller=options.keep_smaller)


if __name__ == "__main__":
    main()
