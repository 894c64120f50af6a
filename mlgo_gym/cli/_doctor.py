"""``mlgo-gym doctor``: what is here, what is missing, and the command that installs it."""

from __future__ import annotations

import argparse
import importlib.util
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from corpus_tools.clang import find_clang
from corpus_tools.errors import CorpusToolsError
from mlgo_gym import __version__
from mlgo_gym.base import MlgoGymError
from mlgo_gym.cli._extensions import extensions
from mlgo_gym.cli.show._output import Output

DESCRIPTION = (
    "Check what this machine has, by using it; with --ray, what each node of a cluster has. The "
    "exit status is 1 where something is missing that nothing works without, or a node could not "
    "work for this machine."
)
EXAMPLE = "mlgo-gym doctor"

_EXTRAS = {
    "models under training": ("tflite", "ai_edge_litert", "tflite_runtime"),
    "gRPC runners": ("grpc", "grpc"),
    "datasets": ("datasets", "pyarrow"),
    "training": ("train", "keras"),
    "clusters": ("ray", "ray"),
    "plots": ("plot", "matplotlib"),
    "timelines": ("timeline", "perfetto"),
    "folders by URI (s3://)": ("remote", "s3fs"),
    "corpora from PyPI": ("corpus", "unearth"),
    "corpora out of archives": ("corpus", "arpy"),
}
"""What an extra is for: its name, and packages of it, of which one is enough."""
_DISTRIBUTIONS = {"grpc": "grpcio"}
_PROBE = """
define internal i32 @callee(i32 %x) { ret i32 %x }
define i32 @caller(i32 %x) {
  %y = call i32 @callee(i32 %x)
  ret i32 %y
}
"""


@dataclass(frozen=True, slots=True)
class _Finding:
    """One line of the report: a version, a path or what is wrong; what is required, all need."""

    name: str
    is_ok: bool
    found: str
    is_required: bool = True


def run(options: argparse.Namespace, output: Output) -> int:
    del options
    from rich.table import Column, Table
    from rich.text import Text

    checks = list(_checks())
    table = Table(*(Column(each, overflow="fold") for each in ("what", "state", "found")))
    for check in checks:
        state = Text("ok", "green") if check.is_ok else Text("missing", "red")
        table.add_row(check.name, state, check.found)
    output.print(table)
    output.json([asdict(check) for check in checks])
    return 0 if all(check.is_ok for check in checks if check.is_required) else 1


def _checks() -> Iterator[_Finding]:
    from importlib import metadata

    yield _Finding("mlgo_gym", True, __version__)
    yield _Finding("Python", True, f"{platform.python_version()} on {platform.platform()}")
    for package in ("gymnasium", "numpy"):
        yield _Finding(package, True, metadata.version(package))
    yield _tried("llvmlite", _llvmlite)
    yield from _check_compiler()
    yield from _check_sandbox()
    for name, (extra, *packages) in _EXTRAS.items():
        yield _check_extra(name, extra, *packages)
    yield _tried("clang, for corpus build and programs", _clang, is_required=False)
    for extension in extensions():
        for name, find in extension.checks():
            yield _tried(name, find, is_required=False)


def _tried(name: str, find: Callable[[], str], *, is_required: bool = True) -> _Finding:
    try:
        return _Finding(name, True, find(), is_required)
    except (MlgoGymError, CorpusToolsError) as error:
        return _Finding(name, False, str(error), is_required)


def _llvmlite() -> str:
    from mlgo_gym.llvm import check_llvmlite, installed_llvmlite

    version = installed_llvmlite()
    check_llvmlite(version)
    return str(version)


def _check_compiler() -> Iterator[_Finding]:
    from mlgo_gym.corpus import Module
    from mlgo_gym.llvm import Compiler, check_memory
    from mlgo_gym.problems import InliningForSize, default

    try:
        with Compiler() as compiler:
            result = compiler.compile_module(
                Module.from_ir(_PROBE), problem=InliningForSize(), policy=default
            )
    except MlgoGymError as error:
        yield _Finding("embedded LLVM", False, str(error))
        return
    yield _Finding("embedded LLVM", True, result.llvm_version)
    asked = f"asked {result.decisions} question about a probe of one call"
    yield _Finding("ML inline advisor", result.decisions == 1, asked)
    with Compiler() as compiler:
        for name, wrong in check_memory(compiler).items():
            yield _Finding(name, wrong is None, wrong or "as probes expect", is_required=False)


def _check_sandbox() -> Iterator[_Finding]:
    from mlgo_gym.llvm import Worker

    try:
        worker = Worker()
    except MlgoGymError as error:
        yield _Finding("sandbox of workers", False, str(error), is_required=False)
        return
    worker.close()
    held = worker.sandbox
    lacking = "; without both, load modules of those alone whom you trust"
    is_whole = held.landlock_abi > 0 and held.has_filter
    found = f"{held}{'' if is_whole else lacking}"
    yield _Finding("sandbox of workers", is_whole, found, is_required=False)


def _check_extra(name: str, extra: str, *packages: str) -> _Finding:
    from importlib import metadata

    for package in packages:
        if importlib.util.find_spec(package):
            version = metadata.version(_DISTRIBUTIONS.get(package, package.replace("_", "-")))
            return _Finding(name, True, f"{package} {version}", is_required=False)
    missing = f"needs {packages[0]}; run: pip install 'mlgo-gym[{extra}]'"
    return _Finding(name, False, missing, is_required=False)


def _clang() -> str:
    clang = find_clang()
    return f"{'.'.join(map(str, clang.version))}, {clang.path}"
