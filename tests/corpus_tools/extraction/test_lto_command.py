"""The one command of a local ThinLTO build, from the parameters of its link."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus_tools import Clang
from corpus_tools.cc1 import portable_command
from corpus_tools.clang import SourceFile
from corpus_tools.errors import ExtractionError, ToolchainError
from corpus_tools.extraction.lto_command import command_of_driver, infer_override

TRIPLE = "x86_64-pc-linux-gnu"
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-faddrsig")
VECTORIZE = ("-vectorize-loops", "-vectorize-slp")
REFUSED = (
    "is not one of the options known to run nothing and to read nothing; --default_args gives the "
    "command instead"
)


@pytest.mark.parametrize(
    ("parameters", "model", "level", "more"),
    [
        (["-o", "a", "a.o"], "static", "-O2", VECTORIZE),
        (["-pie", "a.o"], "pic", "-O2", VECTORIZE),
        (["--shared", "a.o"], "pic", "-O2", VECTORIZE),
        (["-shared", "--no-pie", "a.o"], "static", "-O2", VECTORIZE),
        (["-plugin-opt=O3"], "static", "-O3", VECTORIZE),
        (["--plugin-opt", "O1"], "static", "-O1", ()),
        (["--lto-O3", "-O1"], "static", "-O3", VECTORIZE),
        (
            ["-mllvm", "-inline-threshold=9", "--mllvm=-x", "-plugin-opt=-y"],
            "static",
            "-O2",
            (*VECTORIZE, "-mllvm", "-inline-threshold=9", "-mllvm", "-x", "-mllvm", "-y"),
        ),
        (["-plugin", "LLVMgold.so", "-plugin-opt=thinlto"], "static", "-O2", VECTORIZE),
    ],
)
def test_parameters_of_the_linker(
    parameters: list[str], model: str, level: str, more: tuple[str, ...]
) -> None:
    expected = ("-cc1", "-triple", TRIPLE, "-emit-obj", level, "-mrelocation-model", model)
    assert infer_override(parameters, TRIPLE, Path()) == (*expected, *SECTIONS, *more)


def test_target_of_the_linker() -> None:
    parameters = ["-plugin-opt=mcpu=skylake", "-plugin-opt=-mattr=+avx,-sse4a"]
    override = infer_override(parameters, None, Path())
    assert override[:4] == ("-cc1", "-emit-obj", "-O2", "-mrelocation-model")
    cpu = ("-target-cpu", "skylake", "-target-feature", "+avx", "-target-feature", "-sse4a")
    assert override[5:11] == cpu


@pytest.mark.parametrize("linker", ["lld", "lld-22", "/usr/bin/ld.lld-22", "/usr/bin/ld"])
def test_parameters_of_the_driver(clang: str, tmp_path: Path, linker: str) -> None:
    (tmp_path / "a.o").touch()
    command = [clang, f"-fuse-ld={linker}", "-flto=thin", "-O3", "-march=skylake", "a.o"]
    override = infer_override([*command, "-Wl,-mllvm,-x=1"], TRIPLE, tmp_path)
    assert override[4] == "-O3"
    assert override[7:9] == ("-target-cpu", "skylake")
    assert override[-2:] == ("-mllvm", "-x=1")


def test_a_driver_that_is_not_here() -> None:
    with pytest.raises(ToolchainError, match=r"looked for clang-99"):
        infer_override(["/no/clang-99", "a.o"], TRIPLE, Path())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["gcc", "a.o"], "expected parameters of lld or of clang, found those of 'gcc'"),
        (
            ["./clang.sh", "a.o"],
            "expected parameters of lld or of clang, found those of './clang.sh'",
        ),
        (
            ["clang-22", "-B/elsewhere", "a.o"],
            f"refused to ask clang: '-B/elsewhere' {REFUSED}",
        ),
    ],
)
def test_commands_that_are_not_asked(parameters: list[str], message: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        infer_override(parameters, TRIPLE, Path())
    assert str(caught.value) == message


GPU = ("amdgpu-arch", "nvptx-arch", "offload-arch")
RUNNING = [
    "-ccc-install-dir TOOLS -x hip --offload-arch=native -nogpuinc -nogpulib",
    "-x hip --offload-arch=native",
    "-ccc-install-dir TOOLS -x cuda --cuda-gpu-arch=native -nocudainc -nocudalib",
    "-ccc-install-dir TOOLS -fopenmp -fopenmp-targets=amdgcn-amd-amdhsa",
    "-ccc-install-dir TOOLS --target=amdgcn-amd-amdhsa -mcpu=native -nogpulib",
    "--target=amdgcn-amd-amdhsa -mcpu=native",
    "-target nvptx64-nvidia-cuda -march=native",
    "--target=x86_64-nvidia-cuda -march=native",
    "-target x86_64-unknown-amdhsa -mcpu=native",
    "-xhip",
    "@TOOLS/arguments",
    "--config=TOOLS/arguments",
    "-specs=TOOLS/arguments",
    "--driver-mode=cl",
]


@pytest.mark.parametrize("options", RUNNING)
def test_no_program_of_the_build_is_run(clang22: Clang, options: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (*GPU, "clang-22"):
        (tools / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho gfx906\n")
        (tools / name).chmod(0o755)
    (tools / "arguments").write_text("-ccc-install-dir tools -x hip --offload-arch=native\n")
    (tmp_path / "a.c").write_text("int a;\n")
    own = options.replace("TOOLS", str(tools)).split()
    with pytest.raises(ExtractionError, match=r"^refused to ask clang: ") as of_object:
        command_of_driver(clang22, ["clang", "-flto", *own, "-c", "a.c"], tmp_path)
    with pytest.raises(ExtractionError, match=r"^refused to ask clang: ") as of_link:
        infer_override(["tools/clang-22", "-flto", *own, "a.c"], TRIPLE, tmp_path)
    assert str(of_object.value).endswith(REFUSED)
    assert str(of_link.value) == str(of_object.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "options",
    [
        "-fwhole-program-vtables",
        "-fvirtual-function-elimination",
        "-fsanitize=cfi",
        "-fsanitize=cfi-icall -fvisibility=hidden",
    ],
)
@pytest.mark.parametrize("lto", ["-flto", "-flto=thin"])
def test_options_that_clang_takes_with_lto_alone(
    clang22: Clang, tmp_path: Path, options: str, lto: str
) -> None:
    (tmp_path / "a.cpp").write_text("int a;\n")
    given = ["clang++", "-O2", "-fvisibility=hidden", lto, *options.split(), "-c", "a.cpp"]
    found = command_of_driver(clang22, given, tmp_path)
    plain = command_of_driver(clang22, [each for each in given if each not in options], tmp_path)
    assert set(plain) <= set(found)
    assert found[found.index("-O2") + 1] == "-emit-obj"
    assert not [each for each in found if each.startswith(("-flto", "-emit-llvm", "-fwhole"))]


def test_the_command_is_what_clang_says_of_the_options_that_decide(
    clang22: Clang, tmp_path: Path
) -> None:
    (tmp_path / "a.c").write_text("int a;\n")
    decide = "-O3 -march=skylake -fPIC -ffunction-sections -fno-plt -mllvm -inline-threshold=3"
    others = "-DX=1 -I. -Wall -MD -MF a.d -o b.o -g0 -fdiagnostics-color=always -save-temps"
    found = command_of_driver(
        clang22, ["clang", *decide.split(), *others.split(), "-flto=thin", "--", "a.c"], tmp_path
    )
    expected = SourceFile(clang22, "a.c", tmp_path, decide.split(), "O3").driver_command()
    own = {"-w", "-main-file-name", "-fcoverage-compilation-dir=."}
    assert set(portable_command(expected)) - own == set(found) - own
    assert not {"-emit-llvm-bc", "-flto=thin", "-D", "-Wall"} & set(found)


@pytest.mark.parametrize("before", [[], ["ccache"], ["env", "A=1"], [":", "&&", "/usr/bin/distcc"]])
def test_what_starts_a_command(before: list[str], clang: str, tmp_path: Path) -> None:
    (tmp_path / "a.o").touch()
    command = [*before, clang, "-fuse-ld=lld", "-flto=thin", "-O3", "a.o", "&&", ":"]
    assert infer_override(command, TRIPLE, tmp_path)[4] == "-O3"


def test_a_driver_that_does_not_link(clang: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").touch()
    with pytest.raises(ExtractionError) as caught:
        infer_override([clang, "-c", "a.c"], TRIPLE, tmp_path)
    assert str(caught.value) == "clang-22: expected a link, found none in what -### prints"
