"""What a module is known by in a folder of traces, and which modules are not known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus_tools.allowed.driver import _LEFT_UNSAID, allowed_of_build
from tests.cc.conftest import SOURCE, Driver

UNTOLD = (
    r"mlgo-cc: error: traces: expected (a command line that makes one object of one source|options "
    r"and headers that tell all that decides the code, found '.+')\n"
)


def key_of(driver: Driver, work: Path, line: str) -> str:
    done = driver.run(*line.split(), "--mlgo-traces-key", cwd=work)
    if done.returncode:
        assert re.fullmatch(UNTOLD, done.stderr.decode())
        return ""
    return done.stdout.decode().strip()


@pytest.mark.e2e
def test_what_a_module_is_known_by(driver: Driver, work: Path) -> None:
    (work / "sub").mkdir()
    for copy in ("sub/f.c", "g.c", "f.cc", "f.i"):
        (work / copy).write_bytes((work / "f.c").read_bytes())
    (work / "commented.c").write_text("/* said */\n\n" + (work / "f.c").read_text())
    (work / "h.h").write_text("#define H 1\n")
    same = [
        "-O2 -c f.c",
        "-O2 -c f.c -o sub/f.o",
        "-O2 -of.o -c g.c -MD -MF sub/f.d -MT f.o -MP -Wall -Werror=format -w -pipe",
        "-O2 -c sub/f.c -Isub -I sub -DX=1 -D Y -include h.h -fdiagnostics-color=never",
        f"-O2 -c {work}/f.c -ffile-prefix-map={work}=. -fno-color-diagnostics",
        "-O2 -c commented.c",
        "-O2 -c f.c --write-dependencies",
        "-O2 -c f.c --write-user-dependencies",
        "-O2 -c f.c -Wp,-MD,f.d",
        "-O2 -c f.c -Wp,-MMD,sub/f.d",
    ]
    (key,) = {key_of(driver, work, line) for line in same}
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert [*work.rglob("*.d")] == []
    others = [
        "-O1 -c f.c", "-O2 -g -c f.c", "-O2 -c f.cc", "-O2 -xc++ -c f.c", "-O2 -c f.c -Dx=y",
        "-O2 -c f.c -mllvm -inline-threshold=5", "-O2 -c f.c --target=aarch64-linux-gnu",
        "-O2 -c f.c -Wp,-D_FORTIFY_SOURCE=2", "-O2 -c f.c -Wp,-Dx=y,-Uy",
    ]  # fmt: skip
    assert len({key, *(key_of(driver, work, line) for line in others)}) == len(others) + 1


UNKNOWN = {
    *("--", "-save-temps", "-save-temps=*", "--save-temps", "--save-temps=*", "-fembed-bitcode*"),
    *("-fstack-usage", "-ftime-trace*", "-fsave-optimization-record*", "-foptimization-record-*"),
}
"""With these no module is known, and a search leaves it out."""
SPELLED = {
    each: each.replace("*", rest)
    for rest, several in {
        "": ("-fcrash-diagnostics*", "-ftime-report*", "-fproc-stat-report*"),
        "color": ("-fdiagnostics-*", "-fno-diagnostics-*"),
        "column": ("-fshow-*", "-fno-show-*"),
        "lld": ("-fuse-ld=*",),
        "format": ("-W*",),
    }.items()
    for each in several
}  # fmt: skip


def test_folders_lines_and_times_are_not_told(driver: Driver, work: Path) -> None:
    source = (
        "#include <assert.h>\nint f(int x) { assert(x); return x; }\n"
        "const char *const told[] = {__FILE__, __BASE_FILE__, __DATE__, __TIME__, __TIMESTAMP__};\n"
    )
    (work / "other").mkdir()
    for name, before in (("f.c", ""), ("other/f.c", "/* said */\n\n")):
        (work / name).write_text(before + source)
    lines = ("-O2 -c f.c", f"-O2 -c {work}/f.c", f"-O2 -c {work}/other/f.c")
    (key,) = {key_of(driver, work, line) for line in lines}
    assert key
    (work / "f.c").write_text(f"{source}#if __LINE__ < 3\n#error\n#endif\nint g(int x);\n")
    one = key_of(driver, work, "-O2 -c f.c")
    assert one not in {"", key}
    (work / "f.c").write_text(f"{source}#if __LINE__ < 3\n#error\n#endif\nint h(int x);\n")
    assert key_of(driver, work, "-O2 -c f.c") not in {"", key, one}


@pytest.mark.e2e
def test_what_a_search_leaves_out_of_commands_does_not_count(driver: Driver, work: Path) -> None:
    """Else no build would find the answers that a search writes."""
    (key,) = {key_of(driver, work, "-O2 -c f.c")}
    before = {*work.iterdir()}
    for spelling in sorted(_LEFT_UNSAID - UNKNOWN):
        value = "a=b" if "prefix-map" in spelling else "1"
        option = SPELLED.get(spelling) or spelling.replace("VALUE", value).replace("*", value)
        assert key_of(driver, work, f"{option} -O2 -c f.c") == key, option
    assert {*work.iterdir()} == before


@pytest.mark.parametrize(
    "option",
    [
        "-Wno-deprecated",
        "-Wdeprecated",
        "-fmacro-prefix-map={work}=.",
        "-Wall -Werror",
        "-Xclang -fembed-bitcode=all",
    ],
)
def test_a_search_and_a_build_have_one_key(driver: Driver, work: Path, option: str) -> None:
    """Also where macros tell of an option that is about messages or debug information."""
    (work / "g.cc").write_text(
        "#ifdef __DEPRECATED\nint f();\n#endif\nconst char *file() { return __FILE__; }\n"
    )
    line = f"-O2 -c {work}/g.cc -o g.o {option.format(work=work)}"
    searched = " ".join(allowed_of_build(line.split()))
    key = key_of(driver, work, line)
    assert key
    assert key == key_of(driver, work, searched)


@pytest.mark.parametrize(
    "line",
    [
        "-O2 f.c", "-O2 -S f.c", "-O2 -c f.c g.c", "-O2 -c f.i", "-O2 -c none.c",
        *(
            f"-O2 -c f.c {each}"
            for each in (
                "-fprofile-use=f.profdata", "-Xclang -fno-pch-timestamp", "--config=f.cfg",
                "-Wp,-MD,f.d,-Df=g", "-Wp,-MT,f.o", "-Wp,-Df=g,-include,h.h", "-Wp,-include,h.h",
                "-fprofile-instr-generate -fprofile-list=list", "-fxray-attr-list=list",
                "-fxray-always-instrument=list", "-fxray-never-instrument=list",
                "-fbasic-block-sections=list=list", "-dM", "-dD", "-dI", "-frewrite-includes",
                "-fdirectives-only", "-march=native", "-mtune=native", "--driver-mode=gcc",
                "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu", "--offload=amdgcn-amd-amdhsa",
            )
        ),
        *(
            f"-O2 {each} -c -nogpuinc -nogpulib --cuda-host-only"
            for each in ("-x cuda f.c", "-xhip f.c", "f.cu", "f.hip")
        ),
    ],
)  # fmt: skip
def test_what_is_not_known(driver: Driver, work: Path, line: str) -> None:
    for copy in ("g.c", "f.i", "f.cu", "f.hip"):
        (work / copy).write_text(SOURCE)
    for empty in ("h.h", "list", "f.cfg"):
        (work / empty).touch()
    before = {*work.iterdir()}
    assert key_of(driver, work, line) == ""
    assert {*work.iterdir()} == before


def test_edits_of_the_command_line_are_not_seen(driver: Driver, work: Path) -> None:
    settings = {"CCC_OVERRIDE_OPTIONS": "#+-Df=g"}
    done = driver.run("-O2", "-c", "f.c", "--mlgo-traces-key", cwd=work, settings=settings)
    assert done.returncode == 1
