"""``mlgo-combine-corpus``: corpora side by side as one, as LLVM's ``combine_training_corpus``."""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections.abc import Sequence
from pathlib import Path

from corpus_tools.command_line import add_as_llvm, add_option, escaping_console, run_command
from corpus_tools.errors import BuildListError, LayoutError, OutputError
from corpus_tools.manifest import MANIFEST_NAME, Manifest, read_description, write_json

_PROGRAM = "mlgo-combine-corpus"


def combine_corpus(root_dir: Path, *, as_llvm: bool = False) -> tuple[str, ...]:
    """Write a manifest that names the modules of all corpora right below a folder.

    Args:
        root_dir: the folder; it becomes a corpus, and nothing is copied.
        as_llvm: modules may have any name and their bitcode may be missing; without a corpus
            below the folder it becomes one without modules.

    Returns:
        The modules, by corpus in the order of their names.

    Raises:
        BuildListError: there is no corpus below the folder.
        LayoutError: the corpora differ in more than their modules, or one of them is broken.
        OutputError: the manifest cannot be written.
    """
    modules: list[str] = []
    shared: dict[str, object] = {}
    first = root_dir
    folders = _corpora_below(root_dir)
    if not folders and not as_llvm:
        raise BuildListError(root_dir, "expected corpora in its folders, found none")
    for folder in folders:
        names, rest = read_description(folder / MANIFEST_NAME)
        if not as_llvm:
            Manifest.read(folder)
        modules += [posixpath.join(folder.name, name) for name in names]
        if not shared:
            first, shared = folder, rest
        for key in (*shared, *rest):
            if key not in shared or key not in rest or shared[key] != rest[key]:
                problem = f"expected the same {key!r} as in {first}, found another"
                raise LayoutError(folder, problem)
    try:
        write_json(root_dir / MANIFEST_NAME, shared | {"modules": modules})
    except OSError as error:
        raise OutputError.refused(root_dir, error) from error
    return tuple(modules)


def _corpora_below(root_dir: Path) -> list[Path]:
    """The folders with a manifest, sorted; hidden ones are left out, as LLVM's tool does."""
    folders = sorted(path.parent for path in root_dir.glob(f"*/{MANIFEST_NAME}"))
    return [folder for folder in folders if not folder.name.startswith(".")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-combine-corpus`` with these arguments, or with those of the process."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Make one corpus of those in the folders right below a folder. They may "
        "differ in their modules only; nothing is copied.",
    )
    add_option(parser, "--root_dir", "DIR", "the folder", type=Path, required=True)
    add_as_llvm(parser, "combine_training_corpus")
    options = parser.parse_args(arguments)
    return run_command(_PROGRAM, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    modules = combine_corpus(options.root_dir, as_llvm=options.as_llvm)
    text = f"{options.root_dir}: {len(modules)} modules"
    escaping_console().print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
