"""CompileOptions: what clang's command line says, and what it cannot say."""

from __future__ import annotations

import pytest

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm.command._options import CompileOptions


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["-cc1"], CompileOptions("O0", vectorize_loops=False, vectorize_slp=False)),
        (
            ["-cc1", "-Oz", "-vectorize-slp"],
            CompileOptions("Oz", vectorize_loops=False, vectorize_slp=True),
        ),
        (
            ["-cc1", "-O1", "-O3", "-vectorize-loops", "-vectorize-slp"],
            CompileOptions("O3", vectorize_loops=True, vectorize_slp=True),
        ),
        (
            ["-cc1", "-O2", "-mrelocation-model", "static", "-mcmodel=medium"],
            CompileOptions(
                "O2",
                "static",
                "medium",
                vectorize_loops=False,
                vectorize_slp=False,
                not_honoured=("-mcmodel=medium: data of every size counts as large",),
            ),
        ),
        (["-cc1", "-Og"], CompileOptions("O1", vectorize_loops=False, vectorize_slp=False)),
        (
            ["-cc1", "-Ofast", "-vectorize-slp"],
            CompileOptions("O3", vectorize_loops=False, vectorize_slp=True),
        ),
        (
            ["-cc1", "-Os", "-funroll-loops", "-fno-unroll-loops"],
            CompileOptions("Os", vectorize_loops=False, vectorize_slp=False, unroll_loops=False),
        ),
        (
            ["-cc1", "-O", "-mrelocation-model", "dynamic-no-pic", "-mcmodel=tiny"],
            CompileOptions(
                "O1",
                "dynamicnopic",
                "small",
                vectorize_loops=False,
                vectorize_slp=False,
                not_honoured=("-mcmodel=tiny: the small code model is used",),
            ),
        ),
        (
            [
                *("-cc1", "-O2", "-target-cpu", "core2", "-target-feature", "+avx2"),
                *("-target-feature", "-sse4a", "-target-abi", "lp64"),
            ],
            CompileOptions(
                "O2",
                vectorize_loops=False,
                vectorize_slp=False,
                cpu="core2",
                features="+avx2,-sse4a",
                abi="lp64",
            ),
        ),
        (
            ["-cc1", "-Oz", "-disable-llvm-passes"],
            CompileOptions("Oz", vectorize_loops=False, vectorize_slp=False, run_passes=False),
        ),
        (
            ["-cc1", "-Oz", "-disable-llvm-optzns"],
            CompileOptions("Oz", vectorize_loops=False, vectorize_slp=False, run_passes=False),
        ),
    ],
)
def test_command_lines(command: list[str], options: CompileOptions) -> None:
    assert CompileOptions.from_command(command) == options


def test_another_level_brings_its_own_switches() -> None:
    options = CompileOptions.from_command(["-cc1", "-Oz", "-mrelocation-model", "static"])
    assert options.with_level("O3") == CompileOptions("O3", "static")
    assert options.with_level(None) is options
    ready = CompileOptions.from_command(["-cc1", "-Oz", "-disable-llvm-passes"])
    assert ready.with_level("O3") == CompileOptions("O3", run_passes=False)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "command line: expected -cc1 first, found 'nothing'"),
        (["clang", "-c"], "command line: expected -cc1 first, found 'clang'"),
        (
            ["-cc1", "-Oq"],
            "level: expected one of -O0, -O1, -O2, -O3, -Os, -Oz, -O, -Og, -O4, -Ofast, "
            "found '-Oq'",
        ),
        (
            ["-cc1", "-mrelocation-model", "ropi"],
            "-mrelocation-model: expected one of pic, static, dynamic-no-pic, found 'ropi'",
        ),
        (
            ["-cc1", "-mcmodel=huge"],
            "-mcmodel: expected one of tiny, default, small, kernel, medium, large, found 'huge'",
        ),
    ],
)
def test_command_lines_that_cannot_be_honoured(command: list[str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        CompileOptions.from_command(command)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "opt_level",
            "O4",
            "opt_level: expected one of O0, O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'O4'",
        ),
        (
            "relocation_model",
            "pie",
            "relocation_model: expected one of pic, static, dynamicnopic, found 'pie'",
        ),
        (
            "code_model",
            "jitdefault",
            "code_model: expected one of default, small, kernel, medium, large, found 'jitdefault'",
        ),
    ],
)
def test_values_that_fields_cannot_have(field: str, value: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        CompileOptions(**{field: value})  # type: ignore[arg-type]
    assert str(caught.value) == message
