"""Objects out of a linker's parameters: a parameter file, or the links of ``bazel aquery``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corpus_tools.errors import BuildListError
from corpus_tools.extraction.compile_commands import read_json
from corpus_tools.extraction.inputs import (
    OBJECT_SUFFIXES,
    Listed,
    Outcome,
    Status,
    expand_response_files,
    listed_object,
    read_arguments,
)
from corpus_tools.extraction.static_archive import ARCHIVE_SUFFIXES, list_archive
from corpus_tools.reading import Shape, shaped

_LINK: Final[Shape] = {
    "arguments": [str],
    "paramFiles?": [{"execPath?": str, "arguments?": [str]}],
}


def read_parameters(path: Path, obj_base_dir: Path) -> list[str]:
    """Read a linker's parameter file, one parameter a line, and the response files in it.

    Args:
        path: the file.
        obj_base_dir: where the names of objects and response files in it start.

    Raises:
        BuildListError: a file cannot be read, or response files name each other.
    """
    parameters = read_arguments(path, obj_base_dir, is_line_based=True)
    return expand_response_files(parameters, obj_base_dir, is_line_based=True, source=path)


def list_parameters(path: Path, obj_base_dir: Path) -> list[Listed]:
    """List the objects in a linker's parameter file; see `read_parameters`.

    Raises:
        BuildListError: a file cannot be read, or response files name each other.
    """
    return _listed(read_parameters(path, obj_base_dir), obj_base_dir)


def list_aquery(path: Path, obj_base_dir: Path) -> list[Listed]:
    """List the objects of all links in ``bazel aquery --output=jsonproto``.

    Parameter files come from ``paramFiles`` (``--include_param_files``) or from the disk.

    Args:
        path: the file.
        obj_base_dir: Bazel's execution root, where its paths start.

    Raises:
        BuildListError: it is no such file.
    """
    parameters = [each for link in read_links(path) for each in _with_files(link)]
    return _listed(expand_response_files(parameters, obj_base_dir, source=path), obj_base_dir)


def read_links(path: Path) -> list[dict[str, Any]]:
    """Read the actions that link out of ``bazel aquery --output=jsonproto``.

    Raises:
        BuildListError: it is no such file.
    """
    actions = read_json(path, {"actions": list})["actions"]
    dicts = [each for each in actions if isinstance(each, dict)]
    links = [each for each in dicts if each.get("mnemonic") == "CppLink"]
    try:
        shaped(links, [_LINK], "CppLink")
    except ValueError as error:
        raise BuildListError(path, str(error)) from error
    return links


def _with_files(link: dict[str, Any]) -> Iterator[str]:
    """The arguments of a link and of its parameter files, without its output."""
    given = link.get("paramFiles", ())
    files = {f"@{each.get('execPath')}": each.get("arguments", []) for each in given}
    for argument in _without_output(link["arguments"]):
        yield from _without_output(files[argument]) if argument in files else (argument,)


def _listed(parameters: list[str], obj_base_dir: Path) -> list[Listed]:
    listed: list[Listed] = []
    for parameter in dict.fromkeys(_without_output(parameters)):
        if parameter.startswith("-"):
            continue
        if parameter.endswith(OBJECT_SUFFIXES):
            listed.append(_object(parameter, obj_base_dir))
        elif parameter.endswith(ARCHIVE_SUFFIXES):
            listed += list_archive(parameter, obj_base_dir)
    return listed


def _object(parameter: str, obj_base_dir: Path) -> Listed:
    """An object of the link; those of the system, such as ``crt1.o``, are no part of the build."""
    listed = listed_object(parameter, obj_base_dir)
    if isinstance(listed, Outcome) and Path(parameter).is_absolute():
        return replace(listed, status=Status.SKIPPED, reason=f"lies outside {obj_base_dir}")
    return listed


def _without_output(parameters: list[str]) -> list[str]:
    if "-o" not in parameters:
        return parameters
    at = parameters.index("-o")
    return parameters[:at] + parameters[at + 2 :]
