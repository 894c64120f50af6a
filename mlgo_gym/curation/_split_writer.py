"""Writing a split: two corpora, each whole or not there at all.

::

    OUTPUT/train   OUTPUT/test      corpora in mlgo-utils' layout, with corpus_info.json
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from corpus_tools.errors import OutputError
from corpus_tools.manifest import MANIFEST_NAME, Manifest, write_json
from corpus_tools.staging import INFO_NAME, check_output, staged_folder
from mlgo_gym.corpus._packages import SPLITS
from mlgo_gym.corpus._sources import JoinedCorpora
from mlgo_gym.curation._split import Split
from mlgo_gym.curation._split_options import SplitOptions

_SUFFIXES: Final = (".bc", ".cmd", ".thinlto.bc")


def check_split_output(output: Path, inputs: Sequence[Path]) -> None:
    """See that a split may be written to a folder.

    Raises:
        OutputError: the folder is inside an input or the other way round, is a corpus or a file,
            or something else than a corpus is where a side would go.
    """
    target = output.resolve()
    for each in inputs:
        source = each.resolve()
        if target.is_relative_to(source) or source.is_relative_to(target):
            raise OutputError(output, f"expected a folder apart from the inputs, found {each}")
    if output.exists() and not output.is_dir():
        raise OutputError(output, "expected a folder or nothing, found a file")
    if (output / MANIFEST_NAME).exists():
        raise OutputError(output, "expected a folder for two corpora, found a corpus")
    for side in SPLITS:
        check_output(output / side)


def write_split(
    corpora: JoinedCorpora, split: Split, options: SplitOptions, output: Path
) -> dict[str, Path]:
    """Write both sides; files are hard links where the file system allows, otherwise copies.

    Args:
        corpora: the modules.
        split: which goes where.
        options: how that was decided, for the record.
        output: must pass `check_split_output`.

    Returns:
        The folder of each side.

    Raises:
        OutputError: something else than a corpus is where a side would go.
    """
    folders = {side: output / side for side in SPLITS}
    with ExitStack() as stack:
        for side, folder in folders.items():
            staged = stack.enter_context(staged_folder(folder))
            _write_side(corpora, split, options, side, staged)
    return folders


def _write_side(
    corpora: JoinedCorpora, split: Split, options: SplitOptions, side: str, folder: Path
) -> None:
    names = split.modules(side)
    for name in names:
        key = corpora.keys[name]
        for suffix in _SUFFIXES:
            source = corpora.packages.corpora[key].folder / f"{key.name}{suffix}"
            if source.is_file():
                _link(source, folder / f"{name}{suffix}")
    Manifest(names, corpora.has_thinlto, corpora.global_command).write(folder)
    write_json(folder / INFO_NAME, _info(corpora, split, options, side))


def _info(corpora: JoinedCorpora, split: Split, options: SplitOptions, side: str) -> dict[str, Any]:
    return {
        "split": side,
        "split_options": asdict(options),
        "sources": {
            name: {
                "corpus": corpora.packages.corpora[key].folder.resolve().name,
                "module": key.name,
                "package": key.package,
                "sha256": split.hashes[name],
            }
            for name in split.modules(side)
            for key in (corpora.keys[name],)
        },
    }


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
