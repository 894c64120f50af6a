"""The links of a build, as Ninja and CMake's makefiles have it written down: nothing of it is run.

Read are the ``build.ninja`` of a build's folder, and the ``link.txt`` that CMake leaves for each
target of makefiles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from corpus_tools.budget import Budget
from corpus_tools.errors import BuildListError
from corpus_tools.extraction.inputs import (
    OBJECT_SUFFIXES,
    expand_response_files,
    read_list,
    response_budget,
    split_words,
)
from corpus_tools.extraction.static_archive import ARCHIVE_SUFFIXES
from corpus_tools.reading import own_file

_NINJA: Final = "build.ninja"
_CMAKE: Final = "link.txt"
_CMAKE_FOLDER: Final = "CMakeFiles"
_MOST_OBJECTS: Final = 1 << 23
_ESCAPED: Final = re.compile(r"\$(\n *|[$ :])|([ :|]|\n)")
_PHONY: Final = "phony"
_STATEMENT: Final = re.compile(
    r"^build ((?:[^\n$]|\$\n|\$.)*)((?:\n[ \t]+(?:[^\n$]|\$\n|\$.)*)*)", re.MULTILINE
)
"""A build statement of Ninja's, and the variables below it."""
_EXPORTS: Final = re.compile(
    r"-rdynamic\b|,-E\b|(?:,|-Xlinker )--?(?:export-dynamic|version-script|dynamic-list)"
    r"|-export-symbols|-retain-symbols"
)
"""Options by which a link says which symbols are exported."""


@dataclass(frozen=True, slots=True)
class Link:
    """A program, library or archive of a build.

    Attributes:
        name: its path below the build's folder.
        objects: what is linked into it, also by archives of the build, as absolute paths.
        is_exported: its command line says what is to be exported.
    """

    name: str
    objects: tuple[Path, ...]
    is_exported: bool = False


def list_links(build: Path) -> list[Link]:
    """List what a build links: programs, shared libraries, and archives that go into none of them.

    Args:
        build: its folder.

    Raises:
        BuildListError: a file that says it cannot be read.
    """
    build = Path(os.path.normpath(build.absolute()))
    found = _ninja_links(build) if (build / _NINJA).is_file() else _cmake_links(build)
    commands = {output: (given, says) for output, given, says in found}
    inputs = {output: given for output, (given, _) in commands.items()}
    used = {each for name in inputs for each in inputs[name] if each.suffix in ARCHIVE_SUFFIXES}
    links: list[Link] = []
    budget = Budget(partial(BuildListError, build), objects_of_links=_MOST_OBJECTS)
    for path in inputs:
        if path in used or not (objects := _objects(path, inputs)):
            continue
        budget.charge(objects_of_links=len(objects))
        links.append(Link(os.path.relpath(path, build), objects, commands[path][1]))
    return sorted(links, key=lambda each: each.name)


def _read(path: Path, build: Path) -> str:
    try:
        return read_list(own_file(path, build))
    except OSError as error:
        raise BuildListError(path, f"cannot be read: {error.strerror}") from error


def _objects(path: Path, inputs: Mapping[Path, tuple[Path, ...]]) -> tuple[Path, ...]:
    """The objects of a link, and of the archives of the build in it, each once."""
    found: dict[Path, None] = {}
    seen, left = {path}, [path]
    while left:
        for each in inputs[left.pop()]:
            if each.suffix in OBJECT_SUFFIXES:
                found[each] = None
            elif each in inputs and each not in seen:
                seen.add(each)
                left.append(each)
    return tuple(found)


def _cmake_links(build: Path) -> Iterator[tuple[Path, tuple[Path, ...], bool]]:
    budget = response_budget()
    for file in sorted(build.rglob(f"{_CMAKE_FOLDER}/*/{_CMAKE}")):
        folder = file.parents[2]
        for line in _read(file, build).splitlines():
            try:
                words = expand_response_files(split_words(line), folder, budget=budget)
            except ValueError as error:
                raise BuildListError(file, f"expected a command, found {error}") from error
            inputs = [each for each in words[1:] if _is_input(each)]
            if "-o" in words[:-1]:
                output = words[words.index("-o") + 1]
                inputs = [each for each in inputs if each != output]
            elif len(inputs) > 1 and PurePosixPath(inputs[0]).suffix in ARCHIVE_SUFFIXES:
                output, *inputs = inputs
            else:
                continue
            placed = tuple(_placed(folder, each) for each in inputs)
            yield _placed(folder, output), placed, _EXPORTS.search(" ".join(words)) is not None


def _ninja_links(build: Path) -> Iterator[tuple[Path, tuple[Path, ...], bool]]:
    text = _read(build / _NINJA, build).replace("$\r\n", "$\n")
    for match in re.finditer(_STATEMENT, text):
        outputs, inputs = _statement(match[1])
        objects = [each for each in inputs if _is_input(each)]
        if not outputs or PurePosixPath(outputs[0]).suffix in OBJECT_SUFFIXES or not objects:
            continue
        placed = tuple(_placed(build, each) for each in objects)
        yield _placed(build, outputs[0]), placed, _EXPORTS.search(match[2]) is not None


def _statement(text: str) -> tuple[list[str], list[str]]:
    """Outputs and inputs of a build statement of Ninja's, without those that only come first."""
    words, word = [], ""
    end = 0
    for match in _ESCAPED.finditer(text):
        word += text[end : match.start()]
        end = match.end()
        if match[1] is not None:
            word += "" if match[1].startswith("\n") else match[1]
            continue
        words += [word] if word else []
        words += [match[2]] if match[2] in (":", "|") else []
        word = ""
    words += [word + text[end:]] if word + text[end:] else []
    if ":" not in words:
        return [], []
    colon = words.index(":")
    outputs = [each for each in words[:colon] if each != "|"]
    rule, inputs = words[colon + 1 : colon + 2], words[colon + 2 :]
    for place in range(len(inputs) - 1):
        if inputs[place] == inputs[place + 1] == "|":  # only an order
            inputs = inputs[:place]
            break
    if rule == [_PHONY]:
        return [], []
    return outputs, [each for each in inputs if each != "|"]


def _is_input(word: str) -> bool:
    suffix = PurePosixPath(word).suffix
    return not word.startswith("-") and suffix in (*OBJECT_SUFFIXES, *ARCHIVE_SUFFIXES)


def _placed(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(folder / name))
