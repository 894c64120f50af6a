"""``mlgo-combine-corpus``: corpora side by side as one, as LLVM's ``combine_training_corpus``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from corpus_tools.command_line import add_option, run_command
from corpus_tools.errors import BuildListError, CorporaDifferError, OutputError
from corpus_tools.manifest import MANIFEST_NAME, Manifest

__all__ = ["combine_corpus", "main"]

_PROGRAM = "mlgo-combine-corpus"


def combine_corpus(root_dir: Path) -> Manifest:
    """Write a manifest that names the modules of all corpora right below a folder.

    Args:
        root_dir: the folder; it becomes a corpus, and nothing is copied.

    Raises:
        BuildListError: there is no corpus below the folder.
        CorporaDifferError: the corpora differ in more than their modules.
        CorpusError: one of them is broken.
    """
    folders = sorted(path.parent for path in root_dir.glob(f"*/{MANIFEST_NAME}"))
    if not folders:
        raise BuildListError(root_dir, "expected corpora in its folders, found none")
    manifests = [Manifest.read(folder) for folder in folders]
    for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
        for key in ("has_thinlto", "global_command_override"):
            if getattr(manifest, key) != getattr(manifests[0], key):
                raise CorporaDifferError(folders[0], folder, key)
    modules = tuple(
        f"{folder.name}/{module}"
        for folder, manifest in zip(folders, manifests, strict=True)
        for module in manifest.modules
    )
    first = manifests[0]
    combined = Manifest(modules, first.has_thinlto, first.global_command_override)
    try:
        combined.write(root_dir)
    except OSError as error:
        raise OutputError.refused(root_dir, error) from error
    return combined


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-combine-corpus`` with these arguments, or with those of the process."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Make one corpus of those in the folders right below a folder. They may "
        "differ in their modules only; nothing is copied.",
    )
    add_option(parser, "--root_dir", type=Path, required=True, metavar="DIR", help="the folder")
    options = parser.parse_args(arguments)
    return run_command(_PROGRAM, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    combined = combine_corpus(options.root_dir)
    text = f"{options.root_dir}: {len(combined.modules)} modules"
    Console(highlight=False, markup=False).print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
