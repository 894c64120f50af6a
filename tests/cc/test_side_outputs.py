"""Side outputs of clang while objects are compared.

The bytes are plain clang's, or plain clang has compiled alone and a line says so.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, NOTHING, UNADVISED, Driver
from tests.cc.test_keep_smaller import ABOUT, WORTH_IT

NEVER = str(MODELS / "never")
AGAIN = "a second compilation would write to the file of '{}' again"


HEAD = "#include <stddef.h>\n#warning once\n"


def _same(data: bytes) -> bytes:
    return data


def _no_numbers(data: bytes) -> bytes:
    return re.sub(rb"[0-9.]+", b"N", data)


def _event_names(data: bytes) -> bytes:
    events = json.loads(data)["traceEvents"]
    names = {each["name"] for each in events if each["name"].startswith("Total ")}
    assert {"Total ExecuteCompiler", "Total Backend"} <= names
    return b""  # which others are there depends on how long they took


@dataclass(frozen=True)
class Output:
    """A side output: why plain clang compiles alone, over FIFOs if not in process."""

    line: str
    environment: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    reason_over_fifos: str = ""
    normalised: Callable[[bytes], bytes] = _same


def about(option: str) -> str:
    return f"'{option}' {ABOUT}"


OUTPUTS = {
    "none": Output(""),
    "warnings": Output("-Wall -Wextra -Weverything -fdiagnostics-format=sarif"),
    "-MD": Output("-MD"),
    "-MMD -MP -MF -MT": Output("-MMD -MP -MF deps -MT target"),
    "-Wp,-MD": Output("-Wp,-MD,deps"),
    "-H": Output("-H"),
    "CC_PRINT_HEADERS": Output("", {"CC_PRINT_HEADERS": "1"}),
    "CC_PRINT_HEADERS_FILE": Output(
        "", {"CC_PRINT_HEADERS": "1", "CC_PRINT_HEADERS_FILE": "headers"}
    ),
    "CC_PRINT_HEADERS_FORMAT": Output(
        "",
        {
            "CC_PRINT_HEADERS_FORMAT": "json",
            "CC_PRINT_HEADERS_FILTERING": "only-direct-system",
            "CC_PRINT_HEADERS_FILE": "headers.json",
        },
    ),
    "-header-include-file": Output(
        "-Xclang -header-include-file -Xclang headers -H",
        reason_over_fifos=AGAIN.format("-header-include-file"),
    ),
    "CC_LOG_DIAGNOSTICS": Output("-Wall", {"CC_LOG_DIAGNOSTICS": "1"}),
    "CC_LOG_DIAGNOSTICS_FILE": Output(
        "-Wall", {"CC_LOG_DIAGNOSTICS": "1", "CC_LOG_DIAGNOSTICS_FILE": "log.plist"}
    ),
    "-diagnostic-log-file": Output(
        "-Xclang -diagnostic-log-file -Xclang log.plist",
        reason_over_fifos=AGAIN.format("-diagnostic-log-file"),
    ),
    "-serialize-diagnostics": Output(
        "--serialize-diagnostics f.dia -Wall -Rpass=inline",
        reason_over_fifos=AGAIN.format("--serialize-diagnostics"),
    ),
    "-MJ": Output("-MJ f.json", reason_over_fifos=AGAIN.format("-MJ")),
    "CC_PRINT_OPTIONS_FILE": Output(
        "", {"CC_PRINT_OPTIONS": "1", "CC_PRINT_OPTIONS_FILE": "options"}
    ),
    "CC_PRINT_PROC_STAT_FILE": Output(
        "",
        {"CC_PRINT_PROC_STAT": "1", "CC_PRINT_PROC_STAT_FILE": "stat"},
        normalised=_no_numbers,
    ),
    "CC_PRINT_INTERNAL_STAT_FILE": Output(
        "",
        {"CC_PRINT_INTERNAL_STAT": "1", "CC_PRINT_INTERNAL_STAT_FILE": "stat"},
        normalised=_no_numbers,
    ),
    "-fproc-stat-report": Output(
        "-fproc-stat-report=stat",
        reason_over_fifos=AGAIN.format("-fproc-stat-report"),
        normalised=_no_numbers,
    ),
    "-fcrash-diagnostics-dir": Output("-fcrash-diagnostics-dir=crashes"),
    "--coverage": Output("--coverage"),
    "-fmodule-output": Output("-std=c++20 -x c++-module -fmodule-output=f.pcm"),
    "-info-output-file": Output(
        "-mllvm -stats -mllvm -info-output-file=info",
        reason_over_fifos=AGAIN.format("-info-output-file"),
        normalised=_no_numbers,
    ),
    "-fsave-optimization-record": Output(
        "-fsave-optimization-record", reason=about("-fsave-optimization-record")
    ),
    "-foptimization-record-file": Output(
        "-foptimization-record-file=r.yaml", reason=about("-foptimization-record-file=r.yaml")
    ),
    "-opt-record-file": Output(
        "-Xclang -opt-record-file -Xclang r.yaml", reason=about("-opt-record-file")
    ),
    "-fstack-usage": Output("-fstack-usage", reason=about("-fstack-usage")),
    "-gsplit-dwarf": Output(
        "-g -gsplit-dwarf", reason="'-gsplit-dwarf' puts a part of the object elsewhere"
    ),
    "-save-temps": Output("-save-temps=obj", reason=about("-save-temps=obj")),
    "-save-stats": Output("-save-stats", reason=about("-save-stats")),
    "-stats-file": Output("-Xclang -stats-file=f.stats", reason=about("-stats-file=f.stats")),
    "-ftime-trace": Output("-ftime-trace", reason=about("-ftime-trace"), normalised=_event_names),
}


def files(output: Output, work: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(work)): output.normalised(each.read_bytes())
        for each in work.rglob("*")
        if each.is_file() and each.name not in {"f.c", "f.o"}
    }


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_side_output(driver: Driver, work: Path, way: Mapping[str, str], name: str) -> None:
    output = OUTPUTS[name]
    is_module = "c++-module" in output.line
    head = f"module;\n{HEAD}export module m;\n" if is_module else HEAD
    (work / "f.c").write_text(head + WORTH_IT)
    line = ("-O2", "-c", *shlex.split(output.line), "f.c", "-o", "f.o")
    plain = driver._run([driver.clang, *line], work, b"", output.environment)
    assert plain.returncode == 0, plain.stderr
    expected, own = files(output, work), (work / "f.o").read_bytes()
    assert expected or not re.search("FILE|-M|file|fproc", name)
    for each in expected:
        (work / each).unlink()
    (work / "f.o").unlink()
    log = work.parent / "kept.tsv"
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_KEPT_LOG": str(log), **output.environment, **way}
    done = driver.run(*line, cwd=work, settings=settings)
    reason = output.reason or (output.reason_over_fifos if way is not NOTHING else "")
    said = b"mlgo-cc: warning: keep-smaller: " + reason.encode() + UNADVISED if reason else b""
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert sorted(done.stderr.splitlines()) == sorted((plain.stderr + said).splitlines())
    assert files(output, work) == expected
    assert ((work / "f.o").read_bytes() == own) == bool(reason)
    assert log.exists() == (not reason)
