"""Commands of LTO builds, which no object carries: asked of clang, or inferred from the link."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from corpus_tools.cc1 import (
    embedded_command,
    linker_arguments,
    parse_driver_output,
    portable_command,
)
from corpus_tools.clang import Clang, dry_run, find_clang
from corpus_tools.errors import CompileError, ExtractionError

# Options that make bitcode of what would be an object.
_BITCODE_OPTIONS = ("-flto", "-emit-llvm", "-fno-lto", "-ffat-lto-objects", "-fsplit-lto-unit")
# What clang says of options that it takes beside -flto alone.
_NEEDS_LTO = "only allowed with '-flto"
_EMITS_BITCODE = "-emit-llvm-bc"
_OF_LTO = ("-flto", "-fsplit-lto-unit", "-fwhole-program-vtables", "-fvirtual-function-elimination")
_CLANG = re.compile(r"clang(\+\+)?(-\d+)?")
_LINKER = re.compile(r"(ld|ld\.lld|ld64\.lld|lld)(-\d+)?")
_LAUNCHER = re.compile(
    r"(\S*/)?(ccache|sccache|distcc|icecc|buildcache|env)|[A-Za-z_]\w*=.*", re.DOTALL
)
# What -MJ writes of a clang++, beside the language of the source.
_DRIVER_MODES = frozenset({"--driver-mode=gcc", "--driver-mode=g++"})


def command_of_driver(clang: Clang, arguments: Sequence[str], directory: Path) -> tuple[str, ...]:
    """The ``-cc1`` command by which a driver's command would make an object without LTO.

    Args:
        clang: whose driver is asked, with ``-###``.
        arguments: of the driver, the program first.
        directory: where the command ran.

    Raises:
        ExtractionError: clang is not asked, since the command has options that it is not given.
        CompileError: clang does not understand the command, or it compiles several sources.
    """
    own = [each for each in own_part(arguments)[1:] if not each.startswith(_BITCODE_OPTIONS)]
    try:
        printed = dry_run(clang, ["-c", *own], directory)
    except CompileError as error:
        if _NEEDS_LTO not in str(error):
            raise
        printed = dry_run(clang, ["-c", "-flto", *own], directory)
    commands = parse_driver_output(printed)
    if len(commands) != 1:
        raise CompileError("clang -###", f"expected one -cc1 command, found {len(commands)}")
    command = portable_command(embedded_command(commands[0], commands[0][-1]))
    kept = (each for each in command if not each.startswith(_OF_LTO))
    return tuple("-emit-obj" if each == _EMITS_BITCODE else each for each in kept)


def infer_override(
    parameters: Sequence[str], triple: str | None, directory: Path
) -> tuple[str, ...]:
    """The one command of all modules of a local ThinLTO build, from the link's parameters.

    It does what lld does with them (``lld/ELF/LTO.cpp``, ``createConfig``): every function and
    every datum in its own section, position-independent code for ``-pie`` and ``-shared``, the
    level of ``--lto-O`` or ``-plugin-opt=O``. The index and ``-thinlto-assume-merged`` are left to
    those who compile the modules, as in every corpus with ``has_thinlto``.

    Args:
        parameters: of lld; or of clang as its driver, in which case the clang of that name on
            PATH is asked what it would give to lld.
        triple: the target of the modules.
        directory: where the link ran.

    Raises:
        ToolchainError: the parameters are those of a driver that does not run here.
        ExtractionError: the driver would not link.
    """
    own = own_part(parameters)
    program = PurePosixPath(own[0]).name if own else ""
    if _CLANG.fullmatch(program):
        own = _of_driver(program, own[1:], directory)
    elif _LINKER.fullmatch(program):
        own = own[1:]
    elif program and not own[0].startswith("-") and not program.endswith((".o", ".obj", ".a")):
        problem = f"expected parameters of lld or of clang, found those of {own[0]!r}"
        raise ExtractionError(problem)
    return tuple(_override(_read_link(own), triple))


def own_part(arguments: Sequence[str]) -> list[str]:
    """A command without launchers, variables, the driver's mode and other commands of the line."""
    own = list(arguments)
    while own and (own[0] in {":", "&&"} or _LAUNCHER.fullmatch(own[0])):
        del own[0]
    end = next((at for at, each in enumerate(own) if each in {"&&", ";", "||", "|"}), len(own))
    return [each for each in own[:end] if each not in _DRIVER_MODES]


def _of_driver(program: str, arguments: Sequence[str], directory: Path) -> list[str]:
    clang = find_clang(program)
    found = linker_arguments(dry_run(clang, arguments, directory))
    if not found:
        raise ExtractionError(f"{program}: expected a link, found none in what -### prints")
    return list(found)


@dataclass(slots=True)
class _Link:
    """The parameters of a link that the code of a module depends on."""

    level: str = "2"
    is_pic: bool = False
    cpu: str = ""
    features: list[str] = field(default_factory=list)
    llvm_options: list[str] = field(default_factory=list)


def _read_link(parameters: Sequence[str]) -> _Link:
    link = _Link()
    for name, value in _named(parameters):
        if name in {"pie", "pic-executable", "shared", "Bshareable"}:
            link.is_pic = True
        elif name in {"no-pie", "no-pic-executable"}:
            link.is_pic = False
        elif name == "mllvm":
            link.llvm_options.append(value)
        elif name == "plugin-opt":
            _read_plugin_option(link, value)
        elif name.startswith("lto-O"):
            link.level = name.removeprefix("lto-O")
    return link


def _named(parameters: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options without their dashes, and values: ``-mllvm X``, ``--mllvm=X``, ``-plugin-opt=X``."""
    following = iter(parameters)
    for parameter in following:
        if parameter.startswith("-"):
            name, separator, value = parameter.lstrip("-").partition("=")
            if not separator and name in {"mllvm", "plugin-opt"}:
                value = next(following, "")
            yield name, value


def _read_plugin_option(link: _Link, value: str) -> None:
    if value.startswith("mcpu="):
        link.cpu = value.removeprefix("mcpu=")
    elif value.startswith("-mattr="):
        link.features += value.removeprefix("-mattr=").split(",")
    elif value.startswith("-"):
        link.llvm_options.append(value)
    elif value[:1] == "O" and value[1:].isdecimal():
        link.level = value[1:]


def _override(link: _Link, triple: str | None) -> Iterator[str]:
    yield "-cc1"
    if triple:
        yield from ("-triple", triple)
    yield from ("-emit-obj", f"-O{link.level}")
    yield from ("-mrelocation-model", "pic" if link.is_pic else "static")
    if link.cpu:
        yield from ("-target-cpu", link.cpu)
    for feature in link.features:
        yield from ("-target-feature", feature)
    yield from ("-ffunction-sections", "-fdata-sections", "-faddrsig")
    if link.level not in {"0", "1"}:
        yield from ("-vectorize-loops", "-vectorize-slp")
    for option in link.llvm_options:
        yield from ("-mllvm", option)
