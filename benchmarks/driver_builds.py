"""What ``mlgo-cc`` costs: single files and whole builds, beside plain clang, in one run.

Single files: wall time of one compilation, alternating, the median of several. Builds: an unchanged
project with ``make -j2`` (Lua 5.4 by its own makefile, jq by its configure script, sentencepiece,
which is C++, by CMake), alternating, then its own tests where it has some, and the sizes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from corpus_tools import load_recipe
from corpus_tools.archive import unpack_sdist
from corpus_tools.code import code_sections
from corpus_tools.sdist import fetch_sdist

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests" / "models"
CLANG = "clang-22"
LUA = "third-party/lua54"
LUA_MAKE = ("MYLIBS=-ldl", "MYCFLAGS=-std=c99 -DLUA_USE_LINUX", "CWARNGCC=")


@dataclass(frozen=True)
class Project:
    """A project to build.

    Attributes:
        recipe: whose sdist holds it.
        root: the folder of the project in the sdist.
        configure: commands before the build; ``{CC}`` and ``{CXX}`` are the compilers.
        build: the command.
        check: the project's own tests, in the built folder.
        inner: an archive in the sdist that holds the project.
    """

    recipe: str
    root: str
    configure: tuple[tuple[str, ...], ...]
    build: tuple[str, ...]
    check: tuple[str, ...] = ()
    inner: str = ""


PROJECTS = {
    "lua": Project(
        "lupa",
        LUA,
        (),
        ("make", "-s", "-j2", "CC={CC}", *LUA_MAKE),
        ("sh", "-c", 'cd testes && ../lua -e"_U=true" all.lua'),
    ),
    "jq": Project(
        "jq",
        "",
        (("./configure", "-q", "--disable-docs", "CC={CC}", "CFLAGS=-O2"),),
        ("make", "-s", "-j2"),
        ("sh", "tests/jqtest"),
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
        ("build/src/spm_encode", "--help"),
    ),
}


def unpack(project: Project, folder: Path, cache: Path) -> Path:
    """The project's sources, in a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    root = unpack_sdist(fetch_sdist(load_recipe(project.recipe), cache), folder)
    if project.inner:
        root = unpack_sdist(root / project.inner, folder)
    return root / project.root


def build(project: Project, folder: Path, settings: Mapping[str, str], *, driver: bool) -> float:
    """Configure and build; returns the seconds that the build took."""
    compilers = {
        "CC": str(ROOT / "scripts" / "mlgo-cc") if driver else CLANG,
        "CXX": str(ROOT / "scripts" / "mlgo-c++") if driver else CLANG.replace("-", "++-"),
    }
    environment = {**os.environ, "MLGO_CLANG": CLANG, **settings}
    for command in project.configure:
        _run(command, compilers, folder, environment)
    start = time.perf_counter()
    _run(project.build, compilers, folder, environment)
    return time.perf_counter() - start


def _run(
    command: tuple[str, ...], names: Mapping[str, str], folder: Path, environment: dict[str, str]
) -> None:
    filled = [word.format(**names) if "{C" in word else word for word in command]
    done = subprocess.run(
        filled, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{filled} in {folder}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def text_bytes(folder: Path) -> dict[str, int]:
    """Bytes of code by object."""
    return {
        str(each.relative_to(folder)): sum(
            len(section.content) for section in code_sections(each.read_bytes(), each.name)
        )
        for each in sorted(folder.rglob("*.o"))
    }


def run(names: list[str] | None = None, rounds: int = 3, cache: Path | None = None) -> None:
    cache = cache or ROOT / "build" / "sdists"
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder), cache)
        for name in names or list(PROJECTS):
            builds(name, Path(folder), rounds, cache)


def files(folder: Path, cache: Path, rounds: int = 15) -> None:
    (folder / "empty.c").touch()
    sources = unpack(PROJECTS["lua"], folder / "files", cache)
    model = {"MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    default = {"MLGO_INLINING_MODEL": str(MODELS / "default")}
    for source in (folder / "empty.c", sources / "lvm.c"):

        def plain() -> None:
            compile_file(CLANG, source, {})  # noqa: B023 - called before the next

        def advised() -> None:
            compile_file(str(ROOT / "scripts" / "mlgo-cc"), source, default)  # noqa: B023

        compile_file(str(ROOT / "scripts" / "mlgo-cc"), source, model)
        advised()
        base, mine = alternating(plain, advised, rounds)
        print(
            f"{source.name}: clang {1e3 * base:.1f} ms, mlgo-cc {1e3 * mine:.1f} ms, "
            f"{1e3 * (mine - base):+.1f} ms"
        )


def compile_file(compiler: str, source: Path, settings: Mapping[str, str]) -> None:
    command = [compiler, "-O2", "-c", str(source), "-o", str(source.with_suffix(".o"))]
    environment = {**os.environ, "MLGO_CLANG": CLANG, "MLGO_STRICT": "1", **settings}
    subprocess.run(command, env=environment, check=True)


def alternating(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, into in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            into.append(time.perf_counter() - start)
    return median(times[0]), median(times[1])


def builds(name: str, folder: Path, rounds: int, cache: Path) -> None:
    project = PROJECTS[name]
    settings = {
        "clang": {},
        "default": {
            "MLGO_INLINING_MODEL": str(MODELS / "default"),
            "MLGO_SIZE_INCREASE_THRESHOLD": "1e9",
        },
        "inliner": {"MLGO_INLINING_MODEL": str(MODELS / "inliner")},
    }
    times: dict[str, list[float]] = {each: [] for each in settings}
    sizes: dict[str, dict[str, int]] = {}
    for number in range(rounds):
        for each, values in settings.items():
            place = folder / name
            sources = unpack(project, place, cache)
            times[each].append(
                build(project, sources, {**values, "MLGO_STRICT": "1"}, driver=each != "clang")
            )
            sizes[each] = text_bytes(sources)
            if number == 0 and project.check:
                _run(project.check, {}, sources, dict(os.environ))
            shutil.rmtree(place)
    base = median(times["clang"])
    for each in settings:
        equal = sum(sizes[each].get(key) == size for key, size in sizes["clang"].items())
        print(
            f"{name}, {each}: {median(times[each]):.1f} s, {median(times[each]) / base:.2f} x; "
            f"{sum(sizes[each].values()):,} bytes of code in {len(sizes[each])} objects, "
            f"{equal} of clang's size; its tests pass"
        )
