"""The objects that a build lists, and why some of them are not taken."""

from __future__ import annotations

import enum
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpus_tools.budget import Budget
from corpus_tools.errors import BuildListError
from corpus_tools.manifest import name_problem
from corpus_tools.reading import brief, is_file, read_regular

_PIECE: Final = re.compile(
    r"""[ \t\r\n]+ | ([^ \t\r\n'"\\]+) | \\(.) | '([^']*)' | "([^"\\]*(?:\\.[^"\\]*)*)" | (.)""",
    re.DOTALL | re.VERBOSE,
)
_DOUBLE, _OPEN = 4, 5
_ESCAPE: Final = re.compile(r'\\(["\\])')

OBJECT_SUFFIXES = (".o", ".obj")
_DEEPEST_RESPONSE_FILE = 16
_MOST_ARGUMENTS = 1 << 18
_MOST_OF_ALL = 1 << 23
_MOST_CHARACTERS = 1 << 29


def split_words(text: str) -> list[str]:
    r"""Split by the shell's rules for quotes and backslashes.

    >>> split_words(r'cc -DA="b c" d\ e')
    ['cc', '-DA=b c', 'd e']

    Raises:
        ValueError: a quote is open, or nothing follows a backslash.
    """
    words: list[str] = []
    pieces: list[str] | None = None
    for match in _PIECE.finditer(text):
        kind = match.lastindex
        if kind is None:
            words += [] if pieces is None else ["".join(pieces)]
            pieces = None
            continue
        piece = match[kind]
        if kind == _OPEN:
            raise ValueError("No escaped character" if piece == "\\" else "No closing quotation")
        pieces = [] if pieces is None else pieces
        pieces.append(_ESCAPE.sub(r"\1", piece) if kind == _DOUBLE else piece)
    return words if pieces is None else [*words, "".join(pieces)]


class Status(enum.Enum):
    """The outcomes of an input."""

    EXTRACTED = "extracted"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one input.

    Attributes:
        input: the object as the build names it; of an archive's member ``ARCHIVE(MEMBER)``.
        status: extracted, skipped or failed.
        modules: the names of the modules that came of it.
        reason: why it was skipped or failed; empty where it was extracted.
    """

    input: str
    status: Status
    modules: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ObjectInput:
    """One object that a build left behind.

    Attributes:
        label: as the build names it.
        name: of the module that comes of it, relative to the corpus.
        path: the object, or the archive that holds it.
        base_dir: where relative paths in its command start.
        member: offset and size in bytes in the archive, None for a file of its own.
        source: what it was compiled from, where the build says.
        driver_command: the compiler's command line, where the build says.
    """

    label: str
    name: str
    path: Path
    base_dir: Path
    member: tuple[int, int] | None = None
    source: str | None = None
    driver_command: tuple[str, ...] = ()


Listed = ObjectInput | Outcome
"""An object to take, or what became of a list's entry that names none."""


def listed_object(
    given: str,
    directory: Path,
    obj_base_dir: Path | None = None,
    *,
    source: str | None = None,
    driver_command: tuple[str, ...] = (),
) -> Listed:
    """Name an object as a build does, and its module as mlgo-utils does.

    Args:
        given: the object's path, as it stands in the build's command.
        directory: where the command ran.
        obj_base_dir: where the module's name starts if the object lies outside ``directory``.
        source: what it was compiled from, where the build says.
        driver_command: the compiler's command line, where the build says.

    Returns:
        The object, or the outcome ``failed`` where it lies outside both folders.
    """
    for word in (given, str(directory), source or "", *driver_command):
        if problem := _problem_of_word(word):
            return Outcome(given, Status.FAILED, reason=problem)
    directory = directory.absolute()
    path = directory / given
    name = given
    if Path(given).is_absolute() or ".." in Path(given).parts:
        roots = [root.absolute() for root in (directory, obj_base_dir) if root is not None]
        relative = [each for root in roots if (each := _below(path, root)) is not None]
        if not relative:
            return Outcome(
                given,
                Status.FAILED,
                reason=f"lies outside {directory}; name a folder above it with --obj_base_dir",
            )
        name = relative[0]
    if problem := name_problem(name):
        return Outcome(given, Status.FAILED, reason=f"module {name!r}: {problem}")
    return ObjectInput(given, name, path, directory, source=source, driver_command=driver_command)


def _problem_of_word(word: str) -> str | None:
    """Why no command and no file's name can be a text, if that is so."""
    if "\0" in word:
        return f"expected a name or a word of a command, found a NUL in {brief(word)}"
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        return f"expected a name or a word of a command, found half a character in {brief(word)}"
    return None


def _below(path: Path, root: Path) -> str | None:
    """The path relative to the root, if it lies below, links followed or not."""
    # Path.resolve raises RuntimeError where links lead to each other.
    resolved, plain = Path(os.path.realpath(path)), Path(os.path.normpath(path))
    if os.path.realpath(plain) == str(resolved) and plain.is_relative_to(os.path.normpath(root)):
        return plain.relative_to(os.path.normpath(root)).as_posix()
    if resolved.is_relative_to(root.resolve()):
        return resolved.relative_to(root.resolve()).as_posix()
    return None


def expand_response_files(
    arguments: list[str],
    directory: Path,
    *,
    is_line_based: bool = False,
    source: Path | None = None,
    budget: Budget | None = None,
) -> list[str]:
    """Replace each ``@FILE`` by the arguments in that file, and so on inside it.

    Args:
        arguments: of a compiler or linker.
        directory: where relative names of files start.
        is_line_based: a line of a file that names an existing object is one argument, spaces
            and all, as in Bazel's parameter files; else the GNU rules for quotes hold.
        source: the file that the arguments stand in, which an error then names first.
        budget: of several commands, as `response_budget` makes it.

    Raises:
        BuildListError: a file cannot be read, has an open quote, or the files name each other.
    """
    own, shared = Budget(arguments=_MOST_ARGUMENTS), budget or response_budget()

    def expanded(arguments: list[str], above: tuple[Path, ...]) -> Iterator[str]:
        for argument in arguments:
            path = directory / argument[1:]
            if not (argument.startswith("@") and len(argument) > 1 and os.path.lexists(path)):
                yield argument
                continue
            if path in above or len(above) == _DEEPEST_RESPONSE_FILE:
                raise BuildListError(path, "expected response files that end, found one in itself")
            if problem := shared.problem(arguments=0, characters=0):  # before it is read
                raise BuildListError(path, problem)
            inner = read_arguments(path, directory, is_line_based=is_line_based)
            count, length = len(inner), sum(map(len, inner))
            problem = own.problem(arguments=count)
            if problem := problem or shared.problem(arguments=count, characters=length):
                raise BuildListError(path, problem)
            yield from expanded(inner, (*above, path))

    try:
        return list(expanded(arguments, ()))
    except BuildListError as error:
        if source is None or error.subject == source:
            raise
        raise BuildListError(source, f"response file {error}") from error


def response_budget() -> Budget:
    """Limits on what the response files of all commands of a build add to them."""
    return Budget(arguments=_MOST_OF_ALL, characters=_MOST_CHARACTERS)


def read_list(path: Path) -> str:
    """Read a file by which a build lists something; bytes that are no UTF-8 become surrogates.

    Raises:
        BuildListError: it cannot be read.
    """
    try:
        return read_regular(path).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise BuildListError(path, f"cannot be read: {error.strerror}") from error


def read_arguments(path: Path, directory: Path, *, is_line_based: bool = False) -> list[str]:
    """Read the arguments in a response file, one level deep; see `expand_response_files`.

    Raises:
        BuildListError: the file cannot be read, or has an open quote.
    """
    text = read_list(path)
    try:
        if not is_line_based:
            return split_words(text)
        lines = [line.strip() for line in text.splitlines()]
        return [argument for line in lines for argument in _line_arguments(line, directory)]
    except ValueError as error:
        raise BuildListError(path, f"expected arguments, found an open quote: {error}") from error


def _line_arguments(line: str, directory: Path) -> list[str]:
    return [line] if " " in line and is_file(directory / line) else split_words(line)
