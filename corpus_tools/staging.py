"""An output folder that appears whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from corpus_tools.errors import OutputError
from corpus_tools.manifest import MANIFEST_NAME
from corpus_tools.reading import parse_json, read_regular, shaped
from corpus_tools.scratch import replaced_folder

INFO_NAME = "corpus_info.json"

WORKLOADS: Final = "workloads"
"""The folder of a corpus that its workloads are in."""

WORKLOAD_FILES: Final = "workload_files"
"""The key of ``corpus_info.json`` for what was put there: the SHA-256 of each file."""

_OWN_NAMES = frozenset({MANIFEST_NAME, INFO_NAME})
_OWN_SUFFIXES = (".bc", ".cmd")


def check_output(output: Path) -> None:
    """See that a corpus may be written to a folder.

    It may if nothing is there, an empty folder, or a corpus with no foreign files in it: the
    folder will be replaced, and files that no corpus has are not ours to delete.

    Raises:
        OutputError: something else is there.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise OutputError(output, "expected a folder or nothing, found a file")
    if any(output.iterdir()) and not (output / MANIFEST_NAME).is_file():
        raise OutputError(output, f"expected a corpus, found a folder without {MANIFEST_NAME}")
    for foreign in _foreign_files(output):
        raise OutputError(output, f"expected only a corpus, found {foreign.as_posix()} in it")


@contextmanager
def staged_corpus(output: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``output`` that takes its place when the block ends well.

    Args:
        output: must pass `check_output`, before the block and after it.

    Raises:
        OutputError: something else than a corpus is at ``output``, or nothing can be written there.
    """
    output = output.resolve()
    check_output(output)
    with ExitStack() as stack:
        try:
            staged = stack.enter_context(replaced_folder(output))
        except OSError as error:
            raise OutputError.refused(output, error) from error
        yield staged
        check_output(output)


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256, hexadecimal, of each file in a folder, by its name there."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def workload_files(output: Path) -> dict[str, str]:
    """The files in a corpus's folder of workloads; none where that is not known."""
    try:
        info = parse_json(read_regular(output / INFO_NAME))
        return dict(shaped(info, {WORKLOAD_FILES: {"*": str}})[WORKLOAD_FILES])
    except (OSError, ValueError):
        return {}


def _foreign_files(output: Path) -> Iterator[Path]:
    found = digests_of(output / WORKLOADS).items() - workload_files(output).items()
    names = sorted(name for name, _ in found if not name.endswith(_OWN_SUFFIXES))
    yield from (Path(WORKLOADS, name) for name in names)
    for path in sorted(output.rglob("*")):
        is_own = path.name in _OWN_NAMES or path.name.endswith(_OWN_SUFFIXES)
        is_own |= path.is_relative_to(output / WORKLOADS)
        if not path.is_dir() and not is_own:
            yield path.relative_to(output)
