"""The worker's own door: what it is not to do it refuses by itself, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compilation import plain_options
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._request import CompileRequest, SplitRequest, request_to_json
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.llvm.command._options import CompileOptions

IMPURE = "it is not one of those known to run, read, write and show nothing"
TARGET = CompileOptions("O2").target()
COMPILING = request_to_json(
    CompileRequest(False, True, False, TARGET, COMPILE, False, plain_options(), ())
)
SPLITTING = request_to_json(SplitRequest(False, TARGET, 0, plain_options(), ()))
OPTIONS = [
    "-exec-on-ir-change={}/program",
    "-print-changed",
    "-ir-dump-directory={}",
    "-info-output-file={}/stats",
    "-stats",
    "-pass-remarks-output={}/remarks",
    "-dot-cfg-mssa={}/dot",
    "-view-cfg",
    "-enable-ml-inliner=development",
    "-training-log={}/log",
    "-inliner-interactive-channel-base={}/channel",
    "-load={}/plugin.so",
    "-no-such-option",
]


def answered(request: dict[str, Any], module: Module) -> dict[str, Any]:
    """What a worker answers to a request that nothing of ours has looked at."""
    worker = Worker()
    try:
        worker.send(request, module.data)
        while (frame := worker.take_frame()) is None:
            worker.wait(60)
        return frame[0]
    finally:
        worker.close()


@pytest.mark.parametrize("request_", [COMPILING, SPLITTING], ids=["compile", "split"])
def test_what_it_does(request_: dict[str, Any], small: Corpus) -> None:
    assert answered(request_, small["frame_stream.c"])["opt_level"] == "O2"


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_llvm(option: str, small: Corpus, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    own = option.format(tmp_path)
    asked = COMPILING | {"llvm_options": [own, "-print-changed=quiet"]}
    found = answered(asked, small["frame_stream.c"])
    assert found["error"] == f"llvm_options: {own}: {IMPURE}"
    assert list(tmp_path.iterdir()) == [program]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"opt_level": "O9"},
            "opt_level: expected one of O0, O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'O9'",
        ),
        (
            {"opt_level": []},
            "opt_level: expected one of O0, O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found ()",
        ),
        (
            {"relocation_model": None},
            "relocation_model: expected one of pic, static, dynamicnopic, found None",
        ),
        (
            {"code_model": "jit"},
            "code_model: expected one of default, small, kernel, medium, large, found 'jit'",
        ),
        ({"unroll_loops": "no"}, "unroll_loops: expected true or false, found 'no'"),
        ({"run_passes": None}, "run_passes: expected true or false, found None"),
        (
            {"cpu": "a\0b"},
            "cpu: expected at most 256 characters of ASCII, without spaces, found 'a\\x00b'",
        ),
        (
            {"abi": "\xff"},
            "abi: expected at most 256 characters of ASCII, without spaces, found '\xff'",
        ),
        (
            {"features": 7},
            "features: expected at most 65536 characters of ASCII, without spaces, found 7",
        ),
    ],
)
def test_settings(setting: dict[str, Any], message: str, small: Corpus) -> None:
    found = answered(COMPILING | {"target": COMPILING["target"] | setting}, small["frame_stream.c"])
    assert found["error"] == message
    values: Any = {name: () if value == [] else value for name, value in setting.items()}
    with pytest.raises(OptionsError) as caught:
        CompileOptions(**values)
    assert str(caught.value) == message


def test_it_goes_on(compiler: Compiler, small: Corpus) -> None:
    module = small["frame_stream.c"]
    before = compiler.compile_module(module)
    with pytest.raises(OptionsError, match=r"^llvm_options: -stats: "):
        CompileRequest(False, True, False, TARGET, COMPILE, False, (), ("-stats",))
    assert compiler.compile_module(module).object_sha256 == before.object_sha256


def test_a_command_that_no_encoding_has() -> None:
    with pytest.raises(OptionsError) as caught:
        CompileOptions.from_command(["-cc1", "-target-abi", b"\xff".decode("utf-8", "replace")])
    assert str(caught.value) == (
        "abi: expected at most 256 characters of ASCII, without spaces, found '\ufffd'"
    )
