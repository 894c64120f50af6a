"""What this machine lacks leaves tests out; a run's last line says how many ran, and why not all.

A plugin of pytest, which the root conftest loads for tests and examples alike. Two things leave a
test out: `require` and `lacking` of tests/conftest.py, called before what they are about, and a
failure that says itself what is missing, if that is true. With ``CI`` set both are failures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from functools import cache
from importlib.machinery import PathFinder
from typing import Final

import pytest
from packaging.requirements import Requirement

from mlgo_gym.llvm._launch import LLVMLITE, installed_llvmlite

PACKAGES: Final = {
    "ai_edge_litert": "TFLite",
    "arpy": "arpy",
    "build": "build",
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "keras": "TensorFlow",
    "matplotlib": "matplotlib",
    "mlgo": "mlgo-utils",
    "opentelemetry": "opentelemetry-sdk",
    "pyarrow": "pyarrow",
    "ray": "Ray",
    "sb3_contrib": "sb3-contrib",
    "sklearn": "scikit-learn",
    "stable_baselines3": "stable-baselines3",
    "tensorboard": "tensorboard",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "tree": "RLlib",
    "unearth": "unearth",
    "uv": "uv",
}
"""By the name that is imported, what has to be installed."""

TOOLS: Final = ("cc", "clang-22", "clang++-22", "gcc", "make", "openssl")
"""What tests and the package itself start without asking whether it is there."""

_PATH: Final = os.environ.get("PATH")
_NO_MODULE: Final = r"(?:No module named|expected the package) '(\w+)"
_NO_PACKAGE: Final = r"(?:needs?|expected) '?([\w-]+)'?(?:;|: pip)"
_NO_TOOL: Final = r"(?:No such file or directory: '|apt-get install )([\w+-]+)"
# Of a long message a failed comparison shows both ends alone.
_NO_LLVM: Final = rf"(llvmlite|LLVM): expected version \d|{re.escape(LLVMLITE.rpartition(',')[2])}'"


def what_is_lacking(text: str) -> str | None:
    """What a failure says is missing, if this machine has none."""
    named = set(re.findall(_NO_MODULE, text))
    for name, package in PACKAGES.items():
        said = name in named or package in re.findall(_NO_PACKAGE, text)
        if said and _is_absent(name):
            return package
    for tool in re.findall(_NO_TOOL, text):
        if tool in TOOLS and shutil.which(tool, path=_PATH) is None:
            return str(tool)
    if re.search(_NO_LLVM, text) and not _has_our_llvm():
        return f"{LLVMLITE}, found {installed_llvmlite() or 'none'}"
    return None


@cache
def _is_absent(name: str) -> bool:
    """Whether no folder has it, whatever a test did to `sys.modules`."""
    return PathFinder.find_spec(name) is None


@cache
def _has_our_llvm() -> bool:
    found = installed_llvmlite()
    return found is not None and Requirement(LLVMLITE).specifier.contains(found)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, subprocess.CalledProcessError):  # it does not say what the child said
        said = error.stderr or ""
        words = said.decode(errors="replace") if isinstance(said, bytes) else said
        report.sections.append(("Standard error of the child", words))
    _leave_out(report, str(item.path), (item.location[1] or 0) + 1)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _leave_out(report, str(collector.path), 1)
    return report


def _leave_out(report: pytest.TestReport | pytest.CollectReport, path: str, line: int) -> None:
    """Make a failure that is the machine's a test, or a whole file, that is left out."""
    if not report.failed or os.environ.get("CI"):
        return
    what = what_is_lacking("\n".join([report.longreprtext, *(text for _, text in report.sections)]))
    if what is not None:
        report.outcome = "skipped"
        report.longrepr = (path, line, f"Skipped: needs {what}")
        # What pytest keeps for a debugger keeps open what the test had.
        sys.last_value = sys.last_traceback = None


class _Tally:
    """Counts, in the one process that reports."""

    def __init__(self) -> None:
        self._chosen = 0
        self._ran: set[str] = set()
        self._tests: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._flaky: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._chosen = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._chosen = len(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._files[report.nodeid] = _reason(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._tests[report.nodeid] = _reason(report)
        elif str(report.outcome) == "rerun":  # of pytest-rerunfailures
            self._flaky.append(report.nodeid)
        elif report.when == "call" or report.failed:
            self._ran.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield  # the outermost of all, so that nothing is written after it
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not session.config.option.collectonly:
            for test in self._flaky:
                reporter.write_line(f"FLAKY {test}: failed once, and was tried again", red=True)
            reporter.write_line(self._line())
        return result

    def _line(self) -> str:
        left = len(self._tests.keys() - self._ran)
        missed = self._chosen - len(self._ran) - left
        why = [*_counted(self._tests, "", ""), *_counted(self._files, " file", " files")]
        line = f"ran {len(self._ran):,} of {self._chosen:,} tests"
        if missed > 0:
            line += f"; not reached: {missed:,}"
        return line + (f"; left out: {', '.join(why)}" if why else "; none left out")


def _counted(reasons: dict[str, str], one: str, more: str) -> list[str]:
    """How many have which reason, the most frequent first."""
    counts = sorted(Counter(reasons.values()).items(), key=lambda each: (-each[1], each[0]))
    words = []
    for what, n in counts:
        said = f"{n:,}{one if n == 1 else more}"
        if what.startswith("needs "):
            words.append(f"{said} {what if n == 1 else what.replace('needs', 'need', 1)}")
        else:
            words.append(f"{said} because {what!r}")
    return words


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What it needs, without how to get that, which stands in the list of those left out."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"(?s)^(needs .+?): .*", r"\1", said.removeprefix("Skipped: "))


SLOW_EXAMPLES: Final = {
    "boxes.md",
    "mlgo_gym.lab.boxes._box.Box",
    "mlgo_gym.lab.boxes._boxed_program.BoxedProgram",
    "mlgo_gym.lab.programs._workload_check.check_workloads",
    "mlgo_gym.lab.tiers._recorder.check_recording",
    "mlgo_gym.lab.tiers._recorder.record_program",
    "mlgo_gym.runners._models.model_policies",
    "mlgo_gym.training._from_torch.export_torch",
    "mlgo_gym.training._train.train",
    "training-with-other-libraries.md",
}
"""Docstrings and pages that train, or run programs for seconds: slow tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow examples; let slow tests fail once, since they depend on other processes' pace."""
    for item in items:
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.e2e)
        can_try_again = item.config.pluginmanager.has_plugin("rerunfailures")
        if can_try_again and any(map(item.get_closest_marker, ("e2e", "network"))):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Tally(), "tally")
