"""The corpus layout of mlgo-utils: a manifest, and a command for each module.

A corpus is a folder with

* ``corpus_description.json``: a JSON object with ``modules`` (list of names), ``has_thinlto``
  (bool) and, where all modules share one command, ``global_command_override`` (list of strings);
* ``NAME.bc`` for each module: LLVM bitcode;
* ``NAME.cmd``: the arguments of ``clang -cc1``, separated by NUL bytes, the first being ``-cc1``.
  Clang's own ``-fembed-bitcode`` ends every argument with a NUL, mlgo-utils puts NULs between
  them; both are read, and the second is written because ml-compiler-opt reads no other.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, Self

from corpus_tools.errors import LayoutError
from corpus_tools.reading import Shape, holds, is_file, parse_json, read_regular, shaped

MANIFEST_NAME = "corpus_description.json"

UNSPECIFIED = ("<UNSPECIFIED>",)
"""The text that mlgo-utils puts where the command of all modules has to be filled in by hand."""


_NAMES: Final[dict[str, Shape]] = {"modules": [str]}
_SHAPE: Final[Shape] = {
    **_NAMES,
    "has_thinlto": bool,
    "global_command_override?": [str],
}


def name_problem(name: str) -> str | None:
    """Say why a module may not be called ``name``, or None if it may.

    >>> name_problem("src/lapi.c") is None
    True
    >>> name_problem("../lapi.c")
    "expected a name inside the corpus, found a '..' part"
    """
    if not name:
        return "expected a name, found an empty string"
    if "\0" in name or "\\" in name:
        return "expected a name without NUL and backslash, found one"
    if PurePosixPath(name).is_absolute():
        return "expected a relative name, found an absolute one"
    if drive := PureWindowsPath(name).drive:
        return f"expected a name without a drive of Windows, found {drive!r}"
    if ".." in PurePosixPath(name).parts:
        return "expected a name inside the corpus, found a '..' part"
    return None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``corpus_description.json``.

    Attributes:
        modules: names relative to the corpus, with ``/`` between parts and without ``.bc``.
        has_thinlto: whether the modules were made for ThinLTO.
        global_command_override: the one command of all modules, or None if each has its own.

    Raises:
        LayoutError: a module's name is not one, or comes twice.
    """

    modules: tuple[str, ...]
    has_thinlto: bool = False
    global_command_override: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_modules(self.modules)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a corpus and see that every module has its bitcode.

        Args:
            folder: the corpus.

        Raises:
            LayoutError: there is no manifest, it is not a valid one, or a module's ``.bc`` file is
                not there.
        """
        path = folder / MANIFEST_NAME
        modules, rest = read_description(path, _SHAPE)
        override = rest.get("global_command_override")
        try:
            manifest = cls(modules, rest["has_thinlto"], None if override is None else (*override,))
        except LayoutError as error:
            raise LayoutError(path, error.problem) from None
        _check_bitcode(modules, folder)
        return manifest

    def write(self, folder: Path) -> None:
        """Write the manifest into a corpus; a reader sees the old one or the new one, no mix.

        Args:
            folder: the corpus, which must exist.
        """
        write_json(folder / MANIFEST_NAME, self.as_json())

    def as_json(self) -> dict[str, object]:
        """The content of ``corpus_description.json``; see `describe`."""
        return describe(self.modules, self.global_command_override, has_thinlto=self.has_thinlto)


def describe(
    modules: Sequence[str], override: Sequence[str] | None, *, has_thinlto: bool
) -> dict[str, object]:
    """The content of ``corpus_description.json``, its keys in mlgo-utils' order.

    Args:
        modules: any names; a `Manifest` looks at them.
        override: the one command of all modules, or None if each has its own.
        has_thinlto: whether the modules were made for ThinLTO.
    """
    shared = {} if override is None else {"global_command_override": list(override)}
    return shared | {"has_thinlto": has_thinlto, "modules": list(modules)}


def read_description(path: Path, keys: Shape = _NAMES) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Read a ``corpus_description.json`` that may name any modules, there or not.

    Args:
        path: the file.
        keys: what they must be.

    Returns:
        The modules, and the other keys.

    Raises:
        LayoutError: it cannot be read, or is no JSON object of that shape.
    """
    try:
        description = shaped(parse_json(read_regular(path)), keys)
    except OSError as error:
        raise LayoutError(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LayoutError(path, f"JSON: {error}") from error
    return tuple(description.pop("modules")), description


def read_command(path: Path) -> tuple[str, ...]:
    """Read a ``NAME.cmd`` file.

    Args:
        path: the file. Bytes that are not UTF-8 come back as surrogates (``surrogateescape``).

    Returns:
        The arguments, the first of which is ``-cc1``.

    Raises:
        LayoutError: the file cannot be read, or does not start with ``-cc1``.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        raise LayoutError(path, f"cannot be read: {error.strerror}") from error
    arguments = data.removesuffix(b"\0").decode("utf-8", "surrogateescape").split("\0")
    _check_command(arguments, path)
    return tuple(arguments)


def encode_command(args: Sequence[str]) -> bytes:
    r"""Encode arguments as the content of a ``NAME.cmd`` file.

    >>> encode_command(["-cc1", "-Oz"])
    b'-cc1\x00-Oz'

    Args:
        args: the arguments, the first of which is ``-cc1``; surrogates stand for raw bytes.

    Raises:
        LayoutError: the first argument is not ``-cc1``, or an argument holds a NUL.
    """
    _check_command(args, "command")
    for argument in args:
        if "\0" in argument:
            raise LayoutError("command", f"expected arguments without NUL, found {argument!r}")
    # The reader drops one NUL at the end: an empty last argument needs its own.
    end = "" if args[-1] else "\0"
    return ("\0".join(args) + end).encode("utf-8", "surrogateescape")


def write_json(path: Path, value: object, *, staging: Path | None = None) -> None:
    """Replace a file by JSON as mlgo-utils writes it, in one step; leave an equal one alone.

    Args:
        path: the file; its folder must exist.
        value: what ``json.dumps`` takes.
        staging: a folder on the same file system for the file until it is whole; by default its
            own folder.
    """
    text = json.dumps(value, indent=2)
    if holds(path, text.encode()):
        return
    descriptor, temporary = tempfile.mkstemp(dir=staging or path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files that only their owner reads; a corpus is for everybody.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _check_modules(modules: Sequence[str]) -> None:
    seen: set[str] = set()
    for module in modules:
        if problem := name_problem(module):
            raise LayoutError("manifest", f"module {module!r}: {problem}")
        if module in seen:
            raise LayoutError("manifest", f"module {module!r}: expected once, found twice")
        seen.add(module)


def _check_bitcode(modules: Sequence[str], folder: Path) -> None:
    missing = [module for module in modules if not is_file(folder / f"{module}.bc")]
    if missing:
        more = f" (and {len(missing) - 1} more modules)" if len(missing) > 1 else ""
        path = folder / f"{missing[0]}.bc"
        raise LayoutError(f"module {missing[0]!r}", f"expected bitcode at {path}, found none{more}")


def _check_command(arguments: Sequence[str], where: Path | str) -> None:
    first = arguments[0] if arguments else ""
    if first != "-cc1":
        raise LayoutError(where, f"expected '-cc1' as the first argument, found {first!r}")
