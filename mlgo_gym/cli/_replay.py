"""``mlgo-gym replay``: repeat recorded compilations and verify what comes out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlgo_gym.base import CompilationError, InputError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Module, Packages

if TYPE_CHECKING:
    from mlgo_gym.llvm import Compiler
    from mlgo_gym.rollout import Trace

DESCRIPTION = (
    "Compile the module of each trace again with the recorded answers, and compare the object's "
    "hash. With --opt-level, the trace must be of that level."
)
EXAMPLE = "mlgo-gym replay traces/digest.c.trace"


def add_options(add: shared.Options) -> None:
    add("traces", "FILE", "a trace", nargs="+")
    add.corpus()
    add.opt_level()
    add.settings(files_alone=True)
    add.timeout()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.llvm import Compiler

    packages = shared.packages_of(options)
    records: list[dict[str, object]] = []
    with Compiler(timeout_s=options.timeout) as compiler:
        for path in options.traces:
            try:
                files = shared.files_of(options)
                records.append(_replayed(compiler, packages, path, options.opt_level, files))
            except (InputError, CompilationError) as error:
                output.error(str(error))
                continue
            output.print("{trace}: {decisions:,} decisions, the same object".format(**records[-1]))
    output.json(records)
    return 0 if len(records) == len(options.traces) else 1


def _replayed(
    compiler: Compiler,
    packages: Packages,
    path: Path,
    opt_level: str | None,
    files: Mapping[str, str],
) -> dict[str, object]:
    from mlgo_gym.rollout import Trace, options_of_trace, replay

    trace = Trace.load(path)
    options = opt_level and replace(options_of_trace(trace), opt_level=opt_level)
    module = _module(packages, trace)
    result = replay(compiler, trace, module, options or None, files=files)
    return {
        "trace": str(path),
        "module": trace.module,
        "decisions": trace.decisions,
        "object_sha256": result.object_sha256,
        "text_size_bytes": result.text_size_bytes,
    }


def _module(packages: Packages, trace: Trace) -> Module:
    """The trace's module; of several packages that have one of its name, the one of its bytes."""
    corpora = list(packages.named.values())
    having = [each for each in corpora if trace.module in each] or corpora[:1]
    modules = [corpus[trace.module] for corpus in having]
    return next((each for each in modules if each.sha256 == trace.module_sha256), modules[0])
