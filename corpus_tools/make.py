"""``mlgo-make-corpus``: a corpus out of bitcode files that lie about, as LLVM's ``make_corpus``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corpus_tools.bitcode import split_modules
from corpus_tools.command_line import add_as_llvm, add_option, escaping_console, run_command
from corpus_tools.errors import BuildListError, ExtractionError
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.store import open_store
from corpus_tools.manifest import Manifest
from corpus_tools.object_file import read_bounded

_PROGRAM = "mlgo-make-corpus"
_SUFFIX = ".bc"


def make_corpus(
    input_dir: Path, output_dir: Path, default_args: Sequence[str] = (), *, as_llvm: bool = False
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Copy the bitcode below a folder into a corpus whose modules share one command.

    Args:
        input_dir: the folder; its ``.bc`` files become modules of their relative paths.
        output_dir: the corpus.
        default_args: the command of all modules; it should start with ``-cc1``.
        as_llvm: files are not looked into, those of a corpus inside the folder are taken too, and
            a corpus without modules is written.

    Returns:
        The modules, and why files were left out, by name: those are no bitcode or cannot be read.
        Without any module nothing is written.

    Raises:
        BuildListError: there is no such folder.
        OutputError: the corpus cannot be written.
    """
    if not input_dir.is_dir():
        raise BuildListError(input_dir, "expected a folder, found none")
    left_out: dict[str, str] = {}
    modules = []
    with open_store(output_dir) as store:
        for name in _bitcode_below(input_dir, None if as_llvm else output_dir):
            try:
                data = read_bounded(input_dir / name)
                if not as_llvm:
                    split_modules(data)
                module = name.removesuffix(_SUFFIX)
                store.stage(ExtractedModule(module, {_SUFFIX: data}), name)
                modules.append(module)
            except ExtractionError as error:
                left_out[name] = str(error)
        if modules or as_llvm:
            manifest = Manifest(tuple(modules), global_command_override=tuple(default_args))
            store.commit(manifest.as_json())
    return tuple(modules), left_out


def _bitcode_below(folder: Path, output: Path | None) -> list[str]:
    """Names of the bitcode files below a folder, those of a corpus inside it left out."""
    below = [path for path in sorted(folder.rglob(f"*{_SUFFIX}")) if not path.is_dir()]
    if output and output != folder and output.absolute().is_relative_to(folder.absolute()):
        below = [path for path in below if output.absolute() not in path.absolute().parents]
    return [path.relative_to(folder).as_posix() for path in below]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-make-corpus`` with these arguments, or with those of the process."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Make a corpus of the .bc files below a folder. The bitcode should be as it "
        "is before the optimisations that are to be learned.",
    )
    add_option(parser, "--input_dir", "DIR", "the folder", type=Path, required=True)
    add_option(parser, "--output_dir", "DIR", "the corpus", type=Path, required=True)
    about = "the command of all modules, separated by spaces, such as '-cc1 -Oz'"
    add_option(parser, "--default_args", "ARGS", about, nargs="?", default="", const="")
    add_as_llvm(parser, "make_corpus")
    options = parser.parse_args(arguments)
    return run_command(_PROGRAM, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    modules, left_out = make_corpus(
        options.input_dir,
        options.output_dir,
        options.default_args.split(),
        as_llvm=options.as_llvm,
    )
    console = escaping_console(stderr=True)
    for name, reason in left_out.items():
        console.print(f"{_PROGRAM}: {name}: {reason}", style="red", soft_wrap=True)
    console_out = escaping_console()
    if modules or options.as_llvm:
        console_out.print(f"{options.output_dir}: {len(modules)} modules", soft_wrap=True)
    else:
        problem = f"no bitcode below {options.input_dir}"
        console.print(f"{_PROGRAM}: error: {problem}", style="red", soft_wrap=True)
    return 0 if options.as_llvm or (modules and not left_out) else 1


if __name__ == "__main__":
    sys.exit(main())
