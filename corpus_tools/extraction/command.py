"""``mlgo-extract-corpus``: LLVM's ``extract_ir``, with a report and without LLVM's tools.

Exit status: 0 if all inputs were extracted or skipped and there is a module, 1 if something failed,
2 if the command line is wrong, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from corpus_tools.clang import Clang, find_clang
from corpus_tools.command_line import add_as_llvm, add_option, escaping_console, run_command, whole
from corpus_tools.errors import ToolchainError
from corpus_tools.extraction.as_llvm import list_as_llvm
from corpus_tools.extraction.compile_commands import list_compile_commands
from corpus_tools.extraction.embedded import (
    BITCODE_SECTION,
    COMMAND_SECTION,
    MACHO_SECTIONS,
    Extraction,
)
from corpus_tools.extraction.inputs import Listed, Status
from corpus_tools.extraction.linker_parameters import (
    list_aquery,
    list_parameters,
    read_parameters,
)
from corpus_tools.extraction.run import ExtractionReport, extract_corpus
from corpus_tools.extraction.static_archive import list_folder, list_thinlto_modules
from corpus_tools.printable import printable

_PROGRAM = "mlgo-extract-corpus"
_SHOWN_FAILURES = 20
_ONE_BY_ONE = "see below"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-extract-corpus`` with these arguments, or with those of the process."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(options, parser)
    return run_command(_PROGRAM, lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Extract a corpus, bitcode and commands, from a build that was made with "
        "clang and -Xclang -fembed-bitcode=all.",
        epilog="Options are those of extract_ir in LLVM's mlgo-utils; _ and - mean the same.",
    )
    option = partial(add_option, parser)
    types = ("json", "params", "directory", "bazel_aquery")
    option(
        "--input",
        "PATH",
        "what lists the objects: a compile_commands.json, a linker's parameters, a folder, or the "
        "output of bazel aquery",
        type=Path,
    )
    option(
        "--input_type",
        None,
        f"which of these (default: {types[0]})",
        choices=types,
        **_bare(types[0]),
    )
    option("--output_dir", "DIR", "the corpus", type=Path, required=True)
    option(
        "--num_workers",
        "N",
        "read N objects at a time (default: one for each core)",
        type=whole(1),
        nargs="?",
    )
    option(
        "--llvm_objcopy_path",
        "PATH",
        "taken for the sake of scripts and not used: sections are read without LLVM's tools",
        nargs="?",
    )
    option(
        "--obj_base_dir",
        "DIR",
        "where the names of objects start (default: the current folder)",
        type=Path,
        nargs="?",
    )
    option(
        "--cmd_filter",
        "REGEX",
        "take modules with an argument in which this is found, such as ^-Oz$",
        type=_pattern,
        nargs="?",
    )
    option(
        "--thinlto_build",
        None,
        "the build used ThinLTO: distributed, with -mllvm -lto-embed-bitcode=post-merge-pre-opt; "
        "or local, with -Wl,--save-temps=import and -Wl,--thinlto-emit-index-files, where --input "
        "may name the link's parameters",
        choices=("distributed", "local"),
        nargs="?",
    )
    for name, section in (("cmd", COMMAND_SECTION), ("bitcode", BITCODE_SECTION)):
        about = f"default: {section}, in Mach-O {MACHO_SECTIONS[section]}"
        option(f"--{name}_section_name", "NAME", about, **_bare(section))
    option(
        "--default_args",
        "ARGS",
        "the command, such as '-cc1 -O2', of objects that are bitcode themselves (-flto), where "
        "the build does not tell it",
        default="",
    )
    add_as_llvm(parser, "extract_ir")
    parser.add_argument(
        "--json", action="store_true", help="print what became of each input as JSON"
    )
    return parser


def _bare(default: str) -> dict[str, Any]:
    """The settings of an option that may stand without its value."""
    return {"default": default, "const": default, "nargs": "?"}


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    is_local = options.thinlto_build == "local"
    if options.input is None and not is_local:
        parser.error("--input or --thinlto_build=local is needed")
    if options.input is not None and is_local and options.input_type != "params":
        parser.error(
            "with --thinlto_build=local, --input is the link's parameters: add --input_type=params"
        )
    if options.as_llvm and (options.default_args or (is_local and options.input is not None)):
        given = "--default_args" if options.default_args else "--input of a local ThinLTO build"
        parser.error(f"--as_llvm: LLVM's tool has no {given}")


def _run(options: argparse.Namespace) -> int:
    base = options.obj_base_dir or Path()
    extraction = Extraction(
        cmd_filter=options.cmd_filter,
        thinlto_build=options.thinlto_build,
        cmd_section_name=options.cmd_section_name,
        bitcode_section_name=options.bitcode_section_name,
        default_args=tuple(options.default_args.split()),
        clang=functools.cache(_clang_if_any),
        as_llvm=options.as_llvm,
    )
    has_link = extraction.thinlto_build == "local" and options.input is not None
    parameters = read_parameters(options.input, base) if has_link else None
    listed = _list(options, base, parameters)
    console = escaping_console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("extracting", total=len(listed))
        report = extract_corpus(
            listed,
            options.output_dir,
            extraction,
            num_workers=options.num_workers,
            link_parameters=parameters,
            link_directory=base,
            progress=lambda done, _: progress.update(task, completed=done),
        )
    return _tell(report, console, options)


def _list(
    options: argparse.Namespace, base: Path, parameters: Sequence[str] | None
) -> list[Listed]:
    if options.thinlto_build == "local":
        return list_thinlto_modules(base, parameters)
    if options.as_llvm:
        return list_as_llvm(options.input, options.input_type, base)
    if options.input_type == "json":
        return list_compile_commands(options.input, options.obj_base_dir)
    if options.input_type == "params":
        return list_parameters(options.input, base)
    if options.input_type == "directory":
        return list_folder(options.input)
    return list_aquery(options.input, base)


def _clang_if_any() -> Clang | None:
    """The clang that can tell the commands of LTO objects."""
    try:
        return find_clang()
    except ToolchainError:
        return None


def _tell(report: ExtractionReport, console: Console, options: argparse.Namespace) -> int:
    failed = report.count(Status.FAILED)
    if options.json:
        sys.stdout.write(json.dumps(_as_json(report), indent=2) + "\n")
    else:
        _print_table(report)
        failures = [each for each in report.outcomes if each.status is Status.FAILED]
        for outcome in failures[:_SHOWN_FAILURES]:
            text = f"{_PROGRAM}: {printable(outcome.input)}: {printable(outcome.reason)}"
            console.print(text, style="red", soft_wrap=True)
        if failed > _SHOWN_FAILURES:
            more = f"{_PROGRAM}: and {failed - _SHOWN_FAILURES} more; --json shows all"
            console.print(more, style="red", soft_wrap=True)
    for warning in report.warnings:
        console.print(f"{_PROGRAM}: {warning}", style="yellow", soft_wrap=True)
    if options.as_llvm:
        return 0
    if not report.modules:
        found = "no module was extracted" if report.outcomes else "no objects are named there"
        hint = "" if report.outcomes else "; is --input_type right?"
        console.print(f"{_PROGRAM}: error: {found}{hint}", style="red", soft_wrap=True)
    return 1 if failed or not report.modules else 0


def _print_table(report: ExtractionReport) -> None:
    out = escaping_console()
    out.print(f"{report.output}: {len(report.modules)} modules", soft_wrap=True)
    table = Table()
    table.add_column("inputs", justify="right")
    table.add_column("outcome")
    table.add_column("reason", overflow="fold")
    for (status, reason), count in sorted(_reasons(report).items()):
        table.add_row(f"{count:,}", status, reason)
    out.print(table)


def _reasons(report: ExtractionReport) -> Counter[tuple[str, str]]:
    """Inputs by outcome and reason; failures are printed one by one besides."""
    return Counter(
        (each.status.value, _ONE_BY_ONE if each.status is Status.FAILED else each.reason)
        for each in report.outcomes
    )


def _as_json(report: ExtractionReport) -> dict[str, object]:
    return {
        "output": str(report.output),
        "modules": len(report.modules),
        **{status.value: report.count(status) for status in Status},
        "warnings": list(report.warnings),
        "inputs": [
            {
                "input": each.input,
                "outcome": each.status.value,
                "modules": list(each.modules),
                "reason": each.reason,
            }
            for each in report.outcomes
        ],
    }


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        message = f"expected a regular expression, found {text!r}: {error}"
        raise argparse.ArgumentTypeError(message) from error


if __name__ == "__main__":
    sys.exit(main())
