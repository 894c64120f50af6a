"""Which objects LLVM's ``extract_ir`` takes: ``mlgo-extract-corpus --as-llvm``.

The rules are those of ``llvm/utils/mlgo-utils/mlgo/corpus/extract_ir_lib.py``, which knows neither
quotes nor archives nor response files. In two things it is not followed: what lies outside the
build's folder fails here, where LLVM's tool would write beside it, and so does an entry that ends
LLVM's tool with a traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus_tools.errors import BuildListError
from corpus_tools.extraction.compile_commands import read_entry, read_json
from corpus_tools.extraction.inputs import Listed, Outcome, Status, listed_object, read_list
from corpus_tools.extraction.linker_parameters import read_links
from corpus_tools.extraction.static_archive import list_folder

_OBJECT_SUFFIX = ".o"


def list_as_llvm(path: Path, input_type: str, obj_base_dir: Path) -> list[Listed]:
    """List the objects of a build as LLVM's tool does: each as often as it is named.

    Args:
        path: what lists them.
        input_type: ``json``, ``params``, ``directory`` or ``bazel_aquery``.
        obj_base_dir: where the names in ``params`` and ``bazel_aquery`` start.

    Raises:
        BuildListError: ``path`` is no such list.
    """
    if input_type == "directory":
        return list_folder(path, (_OBJECT_SUFFIX,), ())
    if input_type == "json":
        entries = enumerate(read_json(path, list))
        return [_listed(entry, f"entry {number}", path) for number, entry in entries]
    if input_type == "params":
        parameters = [line.strip() for line in read_list(path).splitlines()]
    else:
        parameters = next((link["arguments"] for link in reversed(read_links(path))), [])
    return [listed_object(each, obj_base_dir) for each in _objects(parameters) if each]


def _listed(entry: Any, label: str, path: Path) -> Listed:
    """An entry of a compilation database: the object is what its first ``-o`` names."""
    try:
        _, source, arguments = read_entry(entry, path, split=str.split)
    except BuildListError as error:
        return Outcome(label, Status.FAILED, reason=error.problem)
    if "-o" not in arguments:
        return Outcome(source or label, Status.SKIPPED, reason="names no object (no -o)")
    given = [*arguments, ""][arguments.index("-o") + 1]
    return listed_object(given, Path(entry["directory"]))


def _objects(parameters: list[str]) -> list[str]:
    """The objects of a link: without ``-o`` all is taken for one."""
    if "-o" not in parameters:
        return parameters
    at = parameters.index("-o")
    rest = parameters[:at] + parameters[at + 2 :]
    return [each for each in rest if not each.startswith("-") and each.endswith(_OBJECT_SUFFIX)]
