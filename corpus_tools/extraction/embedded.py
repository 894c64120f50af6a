"""Bitcode and command of one object: what clang's ``-fembed-bitcode`` or LTO left in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corpus_tools.bitcode import is_bitcode, main_module, split_modules
from corpus_tools.clang import Clang
from corpus_tools.errors import CorpusToolsError, ExtractionError
from corpus_tools.extraction.inputs import ObjectInput, Outcome, Status
from corpus_tools.extraction.lto_command import command_of_driver
from corpus_tools.extraction.static_archive import IMPORTED_SUFFIX
from corpus_tools.manifest import encode_command
from corpus_tools.object_file import ObjectFile, other_kind, read_bounded
from corpus_tools.reading import open_regular, reason_of

COMMAND_SECTION: Final = ".llvmcmd"
BITCODE_SECTION: Final = ".llvmbc"
MACHO_SECTIONS: Final = {
    COMMAND_SECTION: "__LLVM,__cmdline",
    BITCODE_SECTION: "__LLVM,__bitcode",
}
_FAT_LTO_SECTION: Final = ".llvm.lto"
_INDEX_OPTION: Final = "-fthinlto-index"
_FIRST_ARGUMENT: Final = b"-cc1\0"


@dataclass(frozen=True, slots=True)
class Extraction:
    """How objects are read.

    Attributes:
        cmd_filter: a module is taken if this is found in one of its arguments; None takes all.
        thinlto_build: ``distributed``, ``local``, or None for a build without ThinLTO.
        cmd_section_name: the section that holds the command.
        bitcode_section_name: the section that holds the bitcode.
        default_args: the command of objects that are bitcode themselves.
        clang: finds the clang that is asked for that command, where it is not given and the build
            tells the driver's; None if there is none. Called once for each such object.
        as_llvm: an object is one module, and its files are copies of its sections, whatever
            those hold, as LLVM's ``extract_ir`` takes them.
    """

    cmd_filter: re.Pattern[str] | None = None
    thinlto_build: str | None = None
    cmd_section_name: str = COMMAND_SECTION
    bitcode_section_name: str = BITCODE_SECTION
    default_args: tuple[str, ...] = ()
    clang: Callable[[], Clang | None] = lambda: None
    as_llvm: bool = False


@dataclass(frozen=True, slots=True)
class ExtractedModule:
    """A module as it goes into the corpus.

    Attributes:
        name: of the module.
        files: content of each of its files by suffix: ``.bc``, and ``.cmd`` or ``.thinlto.bc``.
    """

    name: str
    files: dict[str, bytes] = field(repr=False)


class _Skip(Exception):  # noqa: N818 - it is no error
    """An object that has nothing to take; the message says why."""


def extract(
    each: ObjectInput, extraction: Extraction
) -> tuple[Outcome, tuple[ExtractedModule, ...]]:
    """Take the modules out of one object.

    Args:
        each: the object.
        extraction: how it is read.

    Returns:
        What became of it, and its modules: none where it was skipped or failed, several where a
        linker had merged objects.
    """
    try:
        modules = _modules(each, extraction)
    except _Skip as skip:
        return Outcome(each.label, Status.SKIPPED, reason=str(skip)), ()
    except CorpusToolsError as error:
        return Outcome(each.label, Status.FAILED, reason=str(error)), ()
    except (OSError, ValueError) as error:  # a name that the system has no file or program for
        reason = f"cannot be read: {reason_of(error)}"
        return Outcome(each.label, Status.FAILED, reason=reason), ()
    names = tuple(module.name for module in modules)
    return Outcome(each.label, Status.EXTRACTED, names), modules


def _modules(each: ObjectInput, extraction: Extraction) -> tuple[ExtractedModule, ...]:
    if extraction.thinlto_build == "local":
        return (_local_thinlto_module(each, extraction),)
    data = _read(each)
    if is_bitcode(data) and not extraction.as_llvm:
        return (_bitcode_module(each, data, extraction),)
    if not data:
        raise _Skip("empty file")
    if not extraction.as_llvm and (kind := other_kind(data)):
        raise _Skip(kind)
    file = ObjectFile.parse(data)
    if not extraction.as_llvm and (bitcode := _of_fat_lto(file, extraction)):
        return (_bitcode_module(each, bitcode, extraction),)
    command, bitcode = _sections(file, extraction)
    if not command.strip(b"\0") and not extraction.as_llvm:
        command = _default_command(bitcode, extraction)
    parts = [(each.name, command, bitcode)]
    if not extraction.as_llvm:
        parts = _split(each.name, command, bitcode)
    kept = [part for part in parts if _is_wanted(part[1], extraction)]
    if not kept:
        raise _Skip("no argument of its command matches --cmd_filter")
    return tuple(
        ExtractedModule(name, _files(each, bitcode, command, extraction))
        for name, command, bitcode in kept
    )


def _read(each: ObjectInput) -> bytes:
    if each.member is None:
        if not each.path.exists():
            raise _Skip("not built: there is no such object")
        return read_bounded(each.path)
    offset, size = each.member
    with open_regular(each.path) as archive:
        archive.seek(offset)
        return archive.read(size)


def _sections(file: ObjectFile, extraction: Extraction) -> tuple[bytes, bytes]:
    """The command's section and the bitcode's."""
    names = [extraction.cmd_section_name, extraction.bitcode_section_name]
    if file.format == "Mach-O" and not extraction.as_llvm:
        names = [MACHO_SECTIONS.get(name, name) for name in names]
    command, bitcode = map(file.first if extraction.as_llvm else file.contents, names)
    if command is None or bitcode is None:
        missing = names[0] if command is None else names[1]
        raise _Skip(f"no section {missing}: {_likely_reason(file)}")
    if not bitcode.strip(b"\0") and not extraction.as_llvm:
        raise _Skip(f"section {names[1]} is only a marker; build with -Xclang -fembed-bitcode=all")
    return command, bitcode


def _of_fat_lto(file: ObjectFile, extraction: Extraction) -> bytes | None:
    """The bitcode of an object of ``-ffat-lto-objects``, which has machine code besides."""
    if file.contents(extraction.bitcode_section_name) is not None:
        return None
    return file.contents(_FAT_LTO_SECTION)


def _default_command(bitcode: bytes, extraction: Extraction) -> bytes:
    """The command of each of an object's modules where it has none, as rustc leaves them."""
    if not extraction.default_args:
        section = extraction.cmd_section_name
        raise _Skip(f"section {section} is empty, as rustc leaves it; give --default_args")
    count = len(split_modules(bitcode))
    return b"\0".join([encode_command(extraction.default_args)] * count)


def _likely_reason(file: ObjectFile) -> str:
    compiler = file.compiler()
    if compiler is None:
        return "assembly, or built without -Xclang -fembed-bitcode=all"
    if "clang" not in compiler.lower():
        return f"not built by clang but by {compiler}"
    return "built without -Xclang -fembed-bitcode=all"


def _split(name: str, command: bytes, bitcode: bytes) -> list[tuple[str, bytes, bytes]]:
    """Name, command and bitcode of each module in an object's sections."""
    commands, modules = _split_commands(command), split_modules(bitcode)
    if len(commands) != len(modules):
        raise ExtractionError(
            "several objects were merged: expected a command for each module, "
            f"found {len(commands)} and {len(modules)}"
        )
    names = [f"{name}.{number}" for number in range(1, len(modules) + 1)]
    return list(zip(names if len(modules) > 1 else [name], commands, modules, strict=True))


def _split_commands(section: bytes) -> list[bytes]:
    """Cut a section of commands, each of which starts with ``-cc1``."""
    if not section.startswith(_FIRST_ARGUMENT):
        found = section[: len(_FIRST_ARGUMENT)]
        raise ExtractionError(f"command: expected '-cc1' as the first argument, found {found!r}")
    pieces = (b"\0" + section).split(b"\0" + _FIRST_ARGUMENT)[1:]
    ends = [b"\0"] * (len(pieces) - 1) + [b""]
    return [_FIRST_ARGUMENT + piece + end for piece, end in zip(pieces, ends, strict=True)]


def _arguments(command: bytes) -> list[str]:
    return command.decode("utf-8", "surrogateescape").split("\0")


def _is_wanted(command: bytes, extraction: Extraction) -> bool:
    pattern = extraction.cmd_filter
    return pattern is None or any(map(pattern.search, _arguments(command)))


def _files(
    each: ObjectInput, bitcode: bytes, command: bytes, extraction: Extraction
) -> dict[str, bytes]:
    files = {".cmd": command, ".bc": bitcode}
    if extraction.thinlto_build == "distributed":
        files[".thinlto.bc"] = _read_index(each, command)
    return files


def _read_index(each: ObjectInput, command: bytes) -> bytes:
    for argument in _arguments(command):
        if argument.startswith(f"{_INDEX_OPTION}="):
            path = each.base_dir / argument.partition("=")[2]
            # What the build gives modules that no index was made for.
            return b"" if str(path) == os.devnull else _read_file(path)
    raise ExtractionError(
        f"expected {_INDEX_OPTION}= in its command, as in a distributed ThinLTO build, found none"
    )


def _local_thinlto_module(each: ObjectInput, extraction: Extraction) -> ExtractedModule:
    bitcode = _read_file(each.path.with_name(each.path.name + IMPORTED_SUFFIX))
    if not extraction.as_llvm:
        split_modules(bitcode)
    index = _read_file(each.path.with_name(each.path.name + ".thinlto.bc"))
    return ExtractedModule(each.name, {".bc": bitcode, ".thinlto.bc": index})


def _read_file(path: Path) -> bytes:
    try:
        return read_bounded(path)
    except ExtractionError as error:
        raise ExtractionError(f"{path}: {error}") from error


def _bitcode_module(each: ObjectInput, data: bytes, extraction: Extraction) -> ExtractedModule:
    """An object of a build with ``-flto``, or of ``-emit-llvm``: the bitcode itself."""
    data = b"".join(map(main_module, split_modules(data)))
    command = encode_command(_command_of_bitcode(each, extraction))
    if not _is_wanted(command, extraction):
        raise _Skip("no argument of its command matches --cmd_filter")
    return ExtractedModule(each.name, {".cmd": command, ".bc": data})


def _command_of_bitcode(each: ObjectInput, extraction: Extraction) -> tuple[str, ...]:
    if extraction.default_args:
        return extraction.default_args
    if each.driver_command and (clang := extraction.clang()):
        return command_of_driver(clang, each.driver_command, each.base_dir)
    needed = "a clang" if each.driver_command else "--input_type json"
    raise _Skip(f"bitcode (built with -flto?): its command takes {needed}, or --default_args")
