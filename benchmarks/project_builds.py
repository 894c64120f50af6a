"""Whole C++ projects built by a project file, a model and link-time optimisation; their own tests.

::

    python -m benchmarks.project_builds --project jsoncpp --project ninja
    python -m benchmarks.project_builds --way plain --way local   # all projects, two of the ways

Each project comes from Debian 12 and is built by CMake, Ninja, clang-22 and lld, as shared
libraries where it can be, at MinSizeRel with -Oz. Every link has ``--gc-sections --icf=safe``, for
objects with sections. A row has the code left in what the project ships, and the change against
plain clang. After each build without LTO the project's tests run; the exit status is 1 where one
fails. With LTO only what ships is built. ``--way tuned`` takes ten minutes for each project.

``--times`` builds what ships and no tests, and adds the processor time of that over plain clang's.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.debian_source import DebianSource, fetch_tree
from benchmarks.driver_builds import NOTHING, ROOT, call, compilers, environment
from corpus_tools.sdist import unpack_sdist
from mlgo_gym.cc._builds import read_build
from mlgo_gym.evaluation._summary import draw, interval

MODEL = "inlining-for-size-project"
SECTIONS = "-ffunction-sections -fdata-sections -faddrsig"
LINK = "-fuse-ld=lld -Wl,--gc-sections -Wl,--icf=safe"
CTEST = ("ctest", "--test-dir", "{build}", "--timeout", "900")


@dataclass(frozen=True)
class Project:
    """A project to build.

    Attributes:
        source: a source package of Debian.
        options: of CMake, beside those that all projects have.
        ships: patterns of the linked files that count, in the build's folder.
        tests: the command; ``{build}`` is the build's folder, ``{source}`` that of the sources.
        targets: what is built beside the default.
        alone: further options of CMake by which the tests are not built; what is tuned is.
        without: a file and a line in it that clang 22 does not take and no test needs.
    """

    source: DebianSource
    options: tuple[str, ...]
    ships: tuple[str, ...]
    tests: tuple[str, ...] = CTEST
    targets: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    without: tuple[str, str] | None = None


WITHOUT_OF_POCO = (
    *("ACTIVERECORD", "ACTIVERECORD_COMPILER", "APACHECONNECTOR", "CPPPARSER", "CRYPTO", "DATA"),
    *("DATA_MYSQL", "DATA_ODBC", "DATA_POSTGRESQL", "DATA_SQLITE", "ENCODINGS", "JWT", "MONGODB"),
    *("NET", "NETSSL", "PAGECOMPILER", "PAGECOMPILER_FILE2PAGE", "PDF", "PROMETHEUS", "REDIS"),
    *("SEVENZIP", "UTIL", "XML", "ZIP"),
)

PROJECTS: Mapping[str, Project] = {
    "jsoncpp": Project(
        DebianSource(
            "libjsoncpp=1.9.5-4",
            "libjsoncpp_1.9.5.orig.tar.gz",
            "f409856e5920c18d0c2fb85276e24ee607d2a09b5e7d5f0a371368903c275da2",
        ),
        ("-DJSONCPP_WITH_POST_BUILD_UNITTEST=OFF",),
        ("*/libjsoncpp.so.*",),
    ),
    "capnproto": Project(
        DebianSource(
            "capnproto=0.9.2-2",
            "capnproto_0.9.2.orig.tar.gz",
            "4031e9c9158fce1979baf3c5234315c1be74b273c0be9f6c4aaf4d0dfda52542",
        ),
        ("-DBUILD_TESTING=ON",),
        ("*.so.*", "*.so"),
        ("ctest", "--test-dir", "{build}/src"),
        ("all", "kj-tests", "kj-heavy-tests", "capnp-tests", "capnp-heavy-tests"),
        alone=("-DBUILD_TESTING=OFF",),
    ),
    "catch2": Project(
        DebianSource(
            "catch2=2.13.10-1",
            "catch2_2.13.10.orig.tar.gz",
            "2f4fe284449cf17394350e027ae21958973a61b9161197d416e2dfca16167686",
        ),
        ("-DCATCH_DEVELOPMENT_BUILD=ON",),
        ("projects/SelfTest",),
    ),
    "cppcheck": Project(
        DebianSource(
            "cppcheck=2.10-2",
            "cppcheck_2.10.orig.tar.gz",
            "785dcbf711048dfe43ae920b6eff2eeebb4a096e88188a40e173ca4c030f57c3",
        ),
        ("-DBUILD_TESTS=ON",),
        ("bin/cppcheck",),
        alone=("-DBUILD_TESTS=OFF",),
    ),
    "doctest": Project(
        DebianSource(
            "doctest=2.4.9~ds-1",
            "doctest_2.4.9~ds.orig.tar.xz",
            "7cc78169975bea36e70ab9d67e7de9b03d89b38653499ad03243e3944429b1ab",
        ),
        (),
        ("*",),
    ),
    "flatbuffers": Project(
        DebianSource(
            "flatbuffers=2.0.8+dfsg1-2",
            "flatbuffers_2.0.8+dfsg1.orig.tar.xz",
            "424b8c76568e718a1a05c3fbc6b2070c83b5e55d9b48568fa4f744e9bcd1163a",
        ),
        ("-DFLATBUFFERS_BUILD_SHAREDLIB=ON",),
        ("flatc", "libflatbuffers.so.*"),
        ("sh", "-c", "cd {source} && {build}/flattests"),
        alone=("-DFLATBUFFERS_BUILD_TESTS=OFF",),
    ),
    "double-conversion": Project(
        DebianSource(
            "double-conversion=3.2.1-1",
            "double-conversion_3.2.1.orig.tar.gz",
            "e40d236343cad807e83d192265f139481c51fc83a1c49e406ac6ce0a0ba7cd35",
        ),
        ("-DBUILD_TESTING=ON",),
        ("*.so.*",),
    ),
    "googletest": Project(
        DebianSource(
            "googletest=1.12.1-0.2",
            "googletest_1.12.1.orig.tar.gz",
            "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
        ),
        ("-Dgtest_build_tests=ON", "-Dgmock_build_tests=ON"),
        ("lib/*.so.*",),
    ),
    "imath": Project(
        DebianSource(
            "imath=3.1.6-1",
            "imath_3.1.6.orig.tar.gz",
            "ea5592230f5ab917bea3ceab266cf38eb4aa4a523078d46eac0f5a89c52304db",
        ),
        (),
        ("*.so.*",),
    ),
    "log4cplus": Project(
        DebianSource(
            "log4cplus=2.0.8-1",
            "log4cplus_2.0.8.orig.tar.xz",
            "f5949e713cf8635fc554384ab99b04716e3430f28eed6dd7d71ad03d959b91a0",
        ),
        ("-DWITH_UNIT_TESTS=OFF",),  # of the library itself, in which Catch2 would be
        ("*.so.*",),
        alone=("-DLOG4CPLUS_BUILD_TESTING=OFF",),
    ),
    "ninja": Project(
        DebianSource(
            "ninja-build=1.11.1-2~deb12u1",
            "ninja-build_1.11.1.orig.tar.gz",
            "31747ae633213f1eda3842686f83c2aa1412e0f5691d1c14dbbcc67fe7400cea",
        ),
        (),
        ("ninja",),
        alone=("-DBUILD_TESTING=OFF",),
    ),
    "poco": Project(
        DebianSource(
            "poco=1.11.0-3+deb12u1",
            "poco_1.11.0.orig.tar.bz2",
            "b08cf73926fa92a6c8f3c712e8fb217d5d0c2fa5248ec0281f251fe1e925d2f1",
        ),
        (
            "-DENABLE_TESTS=ON",
            *(f"-DENABLE_{part}=OFF" for part in WITHOUT_OF_POCO),
        ),
        ("lib/libPocoFoundation.so.*", "lib/libPocoJSON.so.*"),
        without=("Foundation/include/Poco/PriorityDelegate.h", "this->_pTarget "),
    ),
    "pugixml": Project(
        DebianSource(
            "pugixml=1.13-0.2",
            "pugixml_1.13.orig.tar.gz",
            "5c5ad5d7caeb791420408042a7d88c2c6180781bf218feca259fd9d840a888e1",
        ),
        ("-DPUGIXML_BUILD_TESTS=ON",),
        ("*.so.*",),
    ),
    "taglib": Project(  # needs libcppunit-dev and zlib1g-dev
        DebianSource(
            "taglib=1.13-2+deb12u1",
            "taglib_1.13.orig.tar.gz",
            "58f08b4db3dc31ed152c04896ee9172d22052bc7ef12888028c01d8b1d60ade0",
        ),
        ("-DBUILD_TESTING=ON",),
        ("taglib/*.so.*",),
        alone=("-DBUILD_TESTING=OFF",),
    ),
    "xerces-c": Project(
        DebianSource(
            "xerces-c=3.2.4+debian-1",
            "xerces-c_3.2.4+debian.orig.tar.xz",
            "cf5b5d5fda86061a49bd5f58ef778aa9d7caba30c6b152a5d57c5ff545f50f2c",
        ),
        ("-Dnetwork:BOOL=OFF",),
        ("src/*.so", "src/*.so.*"),
    ),
}

PLAIN, SMALLER, TUNED = "plain", "smaller", "tuned"
BOTH = {"MLGO_PROJECT": "{project}", "MLGO_INLINING_MODEL": MODEL}
# What each way adds to the flags of the compiler, and to its environment (None: clang itself).
WAYS: Mapping[str, tuple[str, Mapping[str, str] | None]] = {
    PLAIN: ("", None),
    "local": ("", {"MLGO_PROJECT": "{project}"}),
    "both": ("", BOTH),
    SMALLER: ("", BOTH | {"MLGO_KEEP_SMALLER": "1"}),
    TUNED: (
        "",
        {
            "MLGO_PROJECT": "{tuned}/project.txt",
            "MLGO_INLINING_MODEL": "{tuned}/model",
            "MLGO_TRACES": "{tuned}/traces",
            "MLGO_KEEP_SMALLER": "1",
        },
    ),
    "thin": ("-flto=thin", None),
    "full": ("-flto=full", None),
    "thin, both": ("-flto=thin", BOTH),
}
LINK_TIME = tuple(way for way, (flags, _) in WAYS.items() if flags)


def measure(
    name: str, ways: Sequence[str], cache: Path, jobs: int, *, times: bool = False
) -> tuple[Mapping[str, float], bool]:
    """Build and test in each way, and print the rows; the changes, and whether all tests passed."""
    project = without_tests(PROJECTS[name]) if times else PROJECTS[name]
    with tempfile.TemporaryDirectory(prefix="mlgo_gym-") as scratch:
        folder = Path(scratch)
        source = unpack_sdist(fetch_tree(project.source, cache), folder)
        if project.without:
            path, start = source / project.without[0], project.without[1]
            lines = path.read_text().splitlines()
            path.write_text("\n".join(each for each in lines if not each.strip().startswith(start)))
        good, plain, plain_s = True, 0, 0.0
        changes: dict[str, float] = {}
        names: tuple[str, ...] = ()
        for way in dict.fromkeys((PLAIN, *ways)):
            build = folder / way.replace(", ", "-")
            targets = names if times or way in LINK_TIME else project.targets
            taken_s = _build(project, source, build, way, (f"-j{jobs}", *targets))
            sizes = shipped(project, build)
            size, said = sum(sizes.values()), ""
            if way == PLAIN:
                names, plain = tuple(sizes), size
            if times:
                if way == PLAIN:  # once more, now that it is known what ships
                    call("ninja", "-C", build, "-t", "clean")
                    plain_s = taken_s = _ninja_s(build, (f"-j{jobs}", *names), NOTHING)
                said = f"{taken_s / plain_s:.2f} times the processor time ({taken_s:.0f} s)"
            elif way not in LINK_TIME:
                passed, said = _tested(project, source, build)
                good &= passed
            changes[way] = size / plain - 1
            print(f"{name:18}{way:11}{size:11,}{changes[way]:+10.2%}  {said}", flush=True)
            if way != PLAIN:
                shutil.rmtree(build)
    return changes, good


def summarise(found: Mapping[str, Mapping[str, float]], ways: Sequence[str]) -> None:
    """Print the mean over projects of each way, with a 95 % interval by drawing projects."""
    weights = draw(list(found), seed=0)
    for way in ways:
        changes = np.array([each[way] for each in found.values()])
        low, high = interval(weights, changes, np.ones(len(changes))) or (0.0, 0.0)
        print(f"{'mean':18}{way:22}{changes.mean():+10.2%}  [{100 * low:+.2f}, {100 * high:+.2f}]")


def without_tests(project: Project) -> Project:
    """What a project ships, and no more of it than that where its build has an option for it."""
    return replace(project, options=(*project.options, *project.alone), targets=())


def _build(project: Project, source: Path, build: Path, way: str, ninja: Sequence[str]) -> float:
    """Configure and build; what a way needs beside the model is made by the first that needs it.

    Returns the processor time of compiling and linking, in seconds.
    """
    flags, told = WAYS[way]
    if told is None:
        settings = NOTHING
    elif way == TUNED:
        settings = _tuned(project, source, build, told)
    else:
        file = build.with_name("project.txt")
        if not file.exists():
            plain = build.with_name(PLAIN)
            call("mlgo-gym", "project", "--build", plain, "--output", file)
        settings = {key: value.format(project=file) for key, value in told.items()}
    _configure(project, source, build, flags, settings, driver=told is not None)
    return _ninja_s(build, ninja, settings)


def _ninja_s(build: Path, ninja: Sequence[str], settings: Mapping[str, str]) -> float:
    """Build, and return the processor time of that, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call("ninja", "-C", build, *ninja, settings=settings)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _tuned(
    project: Project, source: Path, build: Path, told: Mapping[str, str]
) -> Mapping[str, str]:
    """Tune what the project ships, without its tests, for ten minutes."""
    alone, folder = build.with_name("alone"), build.with_name("output")
    _configure(without_tests(project), source, alone, "", {}, driver=False)
    call("ninja", "-C", alone, "-j2")  # what is generated is there
    budget = ("--budget", "10m", "--search", "9m", "--verify", "--jobs", "2")
    try:
        said = call("mlgo-gym", "tune", "--build", alone, *budget, "--output", folder)
    except RuntimeError as error:  # so it ends where a source was left out, too
        if not (folder / "report.html").exists():
            raise
        said = str(error)
    print(said, file=sys.stderr)
    settings = {key: value.format(tuned=folder) for key, value in told.items()}
    if not (folder / "model").exists():  # LLVM's own heuristic was chosen
        del settings["MLGO_INLINING_MODEL"], settings["MLGO_KEEP_SMALLER"]
    return settings


def _configure(
    project: Project,
    source: Path,
    build: Path,
    flags: str,
    settings: Mapping[str, str],
    *,
    driver: bool,
) -> None:
    names = compilers(driver=driver)
    told = {
        "CMAKE_BUILD_TYPE": "MinSizeRel",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "BUILD_SHARED_LIBS": "ON",
        "CMAKE_C_COMPILER": names["CC"],
        "CMAKE_CXX_COMPILER": names["CXX"],
        "CMAKE_AR": shutil.which("llvm-ar-22") or "",
        "CMAKE_RANLIB": shutil.which("llvm-ranlib-22") or "",
        **{f"CMAKE_{each}_FLAGS_MINSIZEREL": "-Oz -DNDEBUG" for each in ("C", "CXX")},
        **{f"CMAKE_{each}_FLAGS": f"-w {SECTIONS} {flags}" for each in ("C", "CXX")},
        **{f"CMAKE_{each}_LINKER_FLAGS": LINK for each in ("EXE", "SHARED", "MODULE")},
    }
    options = [f"-D{key}={value}" for key, value in told.items()]
    folders = ("-S", source, "-B", build)
    call("cmake", *folders, "-G", "Ninja", *options, *project.options, settings=settings)


def shipped(project: Project, build: Path) -> Mapping[str, int]:
    """The bytes of code in each linked file that the project ships."""
    return {
        name: file.code_bytes
        for name, file in read_build(build).items()
        if file.is_linked
        and "CMakeFiles/" not in name
        and not (build / name).is_symlink()
        and any((build / name).match(pattern) for pattern in project.ships)
    }


def _tested(project: Project, source: Path, build: Path) -> tuple[bool, str]:
    command = [word.format(build=build, source=source) for word in project.tests]
    done = subprocess.run(
        command, cwd=build, env=environment({}), capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    failed = re.findall(r"^\s*\d+ - (.+?) \((?:Failed|.*)\)", done.stdout, re.MULTILINE)
    counts = re.findall(r"(\d+) tests failed out of (\d+)", done.stdout)
    verdict = "its test fails" if done.returncode else "its test passes"
    said = f"{counts[-1][0]} of {counts[-1][1]} tests fail" if counts else verdict
    return done.returncode == 0, f"{said} {failed[:8] or ''}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="project_builds", description=__doc__)
    parser.add_argument("--project", action="append", choices=tuple(PROJECTS), help="repeat")
    parser.add_argument("--way", action="append", choices=tuple(WAYS), help="repeat")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--sources", type=Path, default=ROOT / "build" / "sdists", metavar="DIR")
    options = parser.parse_args(arguments)
    ways = options.way or [way for way in WAYS if way not in {PLAIN, SMALLER, TUNED}]
    found: dict[str, Mapping[str, float]] = {}
    failed = False
    for name in options.project or PROJECTS:
        try:
            setting = (ways, options.sources, options.jobs)
            found[name], good = measure(name, *setting, times=options.times)
            failed |= not good
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    if found:
        summarise(found, ways)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
