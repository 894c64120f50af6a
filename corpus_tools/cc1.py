"""The ``-cc1`` command of a module: from what the driver prints to what a corpus keeps.

Two steps, because the first has something real to be compared with:

* `embedded_command` keeps what clang's own ``-fembed-bitcode`` would write to ``.llvmcmd``: all
  but input, output, language and warnings (``CompilerInvocation.cpp``, ``EmbedCmdArgs``);
* `portable_command` drops what names this machine and cannot matter when compiling from IR, as
  the preprocessor has run: include paths, macros, the resource folder, dependency files and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Options followed by a value of their own argument.
_WITH_VALUE = (
    *("-D", "-F", "-I", "-MQ", "-MT", "-U", "-c-isystem", "-cxx-isystem", "-dependency-dot"),
    *("-dependency-file", "-diagnostic-log-file", "-dumpdir", "-header-include-file"),
    *("-iapinotes-modules", "-idirafter", "-iframework", "-iframeworkwithsysroot", "-imacros"),
    *("-include", "-include-pch", "-internal-externc-isystem", "-internal-iframework"),
    *("-internal-isystem", "-iprefix", "-iquote", "-isysroot", "-isystem", "-ivfsoverlay"),
    *("-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-module-dependency-dir"),
    *("-objc-isystem", "-objcxx-isystem", "-opt-record-file", "-resource-dir"),
    *("-serialize-diagnostic-file", "-split-dwarf-file", "-split-dwarf-output"),
    *("-source-date-epoch", "-stack-usage-file", "-vfsoverlay", "-working-directory"),
)

# Options with the value in the same argument.
_WITH_JOINED_VALUE = (
    *("-D", "-I", "-U", "-iquote", "-isystem", "-idirafter", "--embed-dir=", "-coverage-"),
    *("-fcoverage-compilation-dir=", "-fcoverage-prefix-map=", "-fdebug-compilation-dir="),
    *("-fdebug-prefix-map=", "-fmacro-prefix-map=", "-fmodule-file=", "-fmodule-map-file="),
    *("-fmodules-cache-path=", "-fprebuilt-module-path=", "-ftime-trace=", "-object-file-name="),
    *("-stats-file=",),
)

_ALONE = ("-H", "-MG", "-MP", "-MV", "-module-file-deps", "-sys-header-deps")

# The driver quotes every argument of -### and escapes these three; shlex would leave `\$` as it is.
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_COMMAND = re.compile(r'^ "(?:[^"\\]|\\.)*"(?: "(?:[^"\\]|\\.)*")*$', re.DOTALL | re.MULTILINE)
_LINKER = re.compile(r"(^|[/.-])(lld|ld)(-\d+)?(\.exe)?$")
_ESCAPED = re.compile(r'\\(["\\$])')


def driver_commands(text: str) -> Iterator[tuple[str, ...]]:
    r"""The commands in what ``clang -###`` prints, the program first.

    >>> list(driver_commands('version 22\n "/bin/clang" "-cc1" "a b"\n "/bin/ld" "\\$x"'))
    [('/bin/clang', '-cc1', 'a b'), ('/bin/ld', '$x')]
    """
    for line in _COMMAND.findall(text):
        yield tuple(_ESCAPED.sub(r"\1", match) for match in _QUOTED.findall(line))


def parse_driver_output(text: str) -> list[tuple[str, ...]]:
    r"""Return the ``-cc1`` commands in what ``clang -###`` prints, without the program.

    >>> parse_driver_output('version 22\n "/bin/clang" "-cc1" "-D" "A=\\$1"\n "/bin/ld" "-o"')
    [('-cc1', '-D', 'A=$1')]
    """
    return [command[1:] for command in driver_commands(text) if command[1:2] == ("-cc1",)]


def linker_arguments(text: str) -> tuple[str, ...]:
    r"""Return the arguments of the link in what ``clang -###`` prints, without the program.

    >>> linker_arguments('version 22\n "/bin/clang" "-cc1" "-O2"\n "/bin/ld.lld" "-pie" "a.o"')
    ('-pie', 'a.o')

    Returns:
        The arguments, or none where nothing is linked.
    """
    links = [command[1:] for command in driver_commands(text) if _LINKER.search(command[0])]
    return links[-1] if links else ()


def embedded_command(command: Sequence[str], source: str) -> tuple[str, ...]:
    """Drop input, output, language and warnings from a ``-cc1`` command.

    Args:
        command: as the driver gives it: starts with ``-cc1``, ends with ``-x LANGUAGE SOURCE``.
        source: the input, as it stands in the command.
    """
    kept = list(command)
    if kept[-1:] == [source]:
        kept.pop()
    return tuple(_without(kept, with_value=("-o", "-x"), joined=("-W", "-fembed-bitcode")))


def portable_command(command: Sequence[str]) -> tuple[str, ...]:
    """Drop what names this machine and cannot matter when compiling from IR.

    >>> portable_command(["-cc1", "-Oz", "-I", "src", "-resource-dir", "/usr/lib/clang/22"])
    ('-cc1', '-Oz')
    """
    kept = _without(command, with_value=_WITH_VALUE, joined=_WITH_JOINED_VALUE, alone=_ALONE)
    return tuple(kept)


def _without(
    command: Sequence[str],
    *,
    with_value: tuple[str, ...],
    joined: tuple[str, ...],
    alone: tuple[str, ...] = (),
) -> Iterator[str]:
    arguments = iter(command)
    for argument in arguments:
        if argument == "-mllvm":
            # Its value is an option of LLVM, which may look like one of these.
            yield argument
            yield from (value for value in (next(arguments, None),) if value is not None)
        elif argument in with_value:
            next(arguments, None)
        elif argument not in alone and not argument.startswith(joined):
            yield argument
