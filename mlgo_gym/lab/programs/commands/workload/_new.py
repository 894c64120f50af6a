"""``mlgo-gym workload new``: a program is run, and described by what it writes."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, Final

from corpus_tools.command_line import whole
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Link a source of yours with the modules of a corpus, run the program three times, once with "
    "nothing inlined, and describe it in CORPUS/workloads/workload.toml by what it writes, if that "
    "was the same each time. Sources and files are copied there."
)
EXAMPLE = "mlgo-gym workload new parse --source run.c --corpus corpus"

_LINES: Final = 20


def add_options(add: shared.Options) -> None:
    add("name", "NAME", "the workload's name")
    add(
        "--corpus", "DIR", "the corpus of a package, to which it is added", required=True, type=Path
    )
    add("--source", "FILE", "C or C++ that drives the modules; repeat for more", many=True)
    what = "a pattern of the modules that are linked; repeat for more (default: all)"
    add("--module", "PATTERN", what, many=True)
    what = "a pattern of the modules that are not linked; repeat for more"
    add("--exclude", "PATTERN", what, many=True)
    what = "compile the sources with this: -DNAME, -UNAME, -std=NAME or -IFOLDER; repeat for more"
    add("--flag", "FLAG", what, many=True)
    add("--library", "NAME", "a library to link, as -l takes it; repeat for more", many=True)
    what = "an argument of the program, as --argument=WORD; repeat for more"
    add("--argument", "WORD", what, many=True)
    add(
        "--file",
        "FILE",
        "a file that the program may read, by this name; repeat for more",
        many=True,
    )
    add("--stdin", "FILE", "the program's standard input")
    add("--exit-status", "N", "the expected exit status", 0, type=whole(0))
    add("--about", "TEXT", "a description in one line (default: its name)")
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.corpus import Corpus
    from mlgo_gym.lab.programs._workload_check import new_workload

    corpus = Corpus.load(options.corpus)
    inputs = [Path(each) for each in (*options.source, *options.file)]
    inputs += [Path(options.stdin)] if options.stdin else []
    found = new_workload(
        corpus, options.name, _fields(options), inputs, **shared.workers_of(options)
    )
    lines = found.run.stdout.decode(errors="replace").splitlines()
    for line in lines[:_LINES]:
        output.verbatim(line)
    if len(lines) > _LINES:
        output.print(f"... and {len(lines) - _LINES:,} lines more.")
    workload = found.workload
    output.print(
        f"{found.run.cpu_s:.3f} s of the CPU, {len(found.run.stdout):,} bytes of output, equal in "
        f"three runs, one of them with nothing inlined. Described in {workload.folder}; see that "
        "it can be counted:"
    )
    command = ["mlgo-gym", "workload", "check", "--corpus", str(corpus.folder)]
    output.verbatim(f"  {shlex.join([*command, '--workload', workload.name])}")
    output.json(
        {
            "workload": workload.name,
            "cpu_seconds": found.run.cpu_s,
            "exit_status": found.run.status,
            "stdout_sha256": workload.stdout_sha256,
        }
    )
    return 0


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """The workload's table, without what is as by default."""
    found = {
        "about": options.about or options.name,
        "modules": options.module,
        "exclude": options.exclude,
        "sources": [Path(each).name for each in options.source],
        "flags": options.flag,
        "libraries": options.library,
        "arguments": options.argument,
        "files": [Path(each).name for each in options.file],
        "stdin": Path(options.stdin).name if options.stdin else None,
        "exit_status": options.exit_status,
    }
    return {key: value for key, value in found.items() if value}
