"""Questions to clang's driver about a command of a build (``clang -###``).

Even with ``-###`` the driver runs programs (to find GPUs, those of a folder that a command names)
and reads files that a command names. ``driver_options.txt`` lists the options that it is given,
which decide the code of a CPU, and those that are left out, since they are about sources, headers,
messages and output, which mean nothing once there is bitcode. Any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.allowed.llvm import refusal_of_llvm
from corpus_tools.allowed.spelling import Argument, Spellings
from corpus_tools.errors import ExtractionError

_GIVEN, _LEFT_OUT = (
    frozenset(re.split(r",\s+", part.strip()))
    for part in re.split(
        r"^[a-z ]+:$",
        (Path(__file__).parent / "driver_options.txt").read_text(encoding="ascii"),
        flags=re.MULTILINE,
    )[1:]
)
_CPU: Final = (
    r"(x86_64h?|i[3-7]86|aarch64(_be|_32)?|arm64(e|ec|_32)?|(arm|thumb)[\w.]*|riscv(32|64)(be)?"
    r"|(powerpc|ppc)(64)?(le)?|mips(isa\w*|n32|64)?(r6)?(el)?|s390x|systemz|loongarch(32|64)"
    r"|sparc(v9|el)?|sparc64|wasm(32|64)|hexagon|m68k|msp430|avr|lanai|xcore|ve|bpf(eb|el)?|csky"
    r"|arc|xtensa)"
)
# Of the vendors and systems, some stand for GPUs whatever the CPU is.
_SYSTEM: Final = (
    r"(pc|unknown|none|w64|apple|ibm|sun|suse|redhat|alpine|poky|oe|openwrt|buildroot|scei|sie"
    r"|linux|gnu\w*|musl\w*|android\w*|ohos|elf|eabi\w*|darwin[\d.]*|macosx?[\d.]*|ios[\d.]*|tvos[\d.]*"
    r"|watchos[\d.]*|simulator|macabi|windows|msvc[\d.]*|mingw32|cygwin|uefi|freebsd[\d.]*|netbsd[\d.]*"
    r"|openbsd[\d.]*|dragonfly[\d.]*|solaris[\d.]*|aix[\d.]*|zos|haiku|fuchsia|hurd|wasi\w*|emscripten"
    r"|rtems|ps[45])"
)
_TRIPLE: Final = re.compile(f"{_CPU}(-{_SYSTEM})*")
_LANGUAGE: Final = re.compile(
    r"c|c\+\+(-module)?|objective-c(\+\+)?|((objective-)?c(\+\+)?-)?cpp-output|ir"
)
_LINKER: Final = re.compile(
    r"(.*/)?(ld|ld64|lld|bfd|gold|mold)([.-](lld|bfd|gold|\d+))*", re.DOTALL
)
_WITH_CHOICES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "--target=*": _TRIPLE,
        "-target VALUE": _TRIPLE,
        "-x VALUE": _LANGUAGE,
        "-x*": _LANGUAGE,
        "-fuse-ld=*": _LINKER,
        "--ld-path=*": _LINKER,
    }
)
_OPTIONS: Final = Spellings(_GIVEN | _LEFT_OUT | set(_WITH_CHOICES))
_SOURCES: Final = frozenset(
    {
        *("-D VALUE", "-D*", "-U VALUE", "-U*", "-undef", "-I VALUE", "-I*", "-include VALUE"),
        *("-imacros VALUE", "-isystem VALUE", "-isystem*", "-iquote VALUE", "-iquote*"),
        *("-idirafter VALUE", "-idirafter*", "-isysroot VALUE", "--sysroot VALUE", "--sysroot=*"),
        *("-nostdinc", "-nostdinc++", "-nostdlibinc", "-cxx-isystem VALUE", "-stdlib=*"),
        *("--stdlib=*", "-fconstexpr-*", "-ftemplate-*", "-fbracket-depth=*", "-frandom-seed=*"),
        *("--param VALUE", "--param=*", "-fverbose-asm", "-fno-verbose-asm", "-nobuiltininc"),
        *("-include-pch VALUE", "-fpch-instantiate-templates", "-ivfsoverlay VALUE", "-F VALUE"),
        *("-F*", "-iprefix VALUE", "-iwithprefix VALUE", "-iwithprefixbefore VALUE"),
        *("-canonical-prefixes", "-no-canonical-prefixes", "-fprofile-use", "-fprofile-use=*"),
        *("-fprofile-instr-use", "-fprofile-instr-use=*", "-fprofile-sample-use=*"),
        *("-fauto-profile=*", "-fsanitize-ignorelist=*", "-fsanitize-blacklist=*"),
        *("-fno-sanitize-ignorelist", "-fsanitize-coverage-allowlist=*"),
        *("-fsanitize-coverage-ignorelist=*",),
    }
)
"""Options, of those left out where there is bitcode, that change what a source means."""
_PASSED_ON: Final = frozenset({"-Xclang VALUE", "-Xassembler VALUE", "-Wa,*", "-fno-integrated-as"})
"""Options that are another tool's, or bring one in."""
_OF_LINKS: Final = frozenset(
    {
        *("-Wl,*", "-Xlinker VALUE", "-fuse-ld=*", "--ld-path=*", "-L VALUE", "-L*", "-l VALUE"),
        *("-l*", "-R*", "-T VALUE", "-T*", "-e VALUE", "-u VALUE", "-rpath VALUE"),
    }
)
"""Options that mean nothing without a link."""
_UNSAID: Final = frozenset(
    {
        *("--", "-o VALUE", "-o*", "--output VALUE", "--output=*", "-MD", "-MMD", "-MP", "-MG"),
        *("-MV", "-MF VALUE", "-MF*", "-MQ VALUE", "-MT VALUE", "-MJ VALUE", "-MJ*", "-W*", "-w"),
        *("-pipe", "-pedantic", "--pedantic", "-pedantic-errors", "-fdiagnostics-*"),
        *("-fno-diagnostics-*", "-fcolor-diagnostics", "-fno-color-diagnostics"),
        *("-fdebug-prefix-map=*", "-ffile-prefix-map=*", "-fmacro-prefix-map=*"),
        *("-fdebug-compilation-dir=*", "-ffile-compilation-dir=*", "-fmessage-length=*"),
        *("-serialize-diagnostics VALUE", "--serialize-diagnostics VALUE", "-dumpdir VALUE"),
        *("-fcoverage-prefix-map=*", "-fcoverage-compilation-dir=*", "-Qn", "-Qy", "-H", "-v"),
        *("-fdebug-compilation-dir VALUE", "-Qunused-arguments", "--start-no-unused-arguments"),
        *("--end-no-unused-arguments", "-fansi-escape-codes", "-fcaret-diagnostics", "-ftabstop=*"),
        *("-fno-caret-diagnostics", "-fcrash-diagnostics*", "-fno-crash-diagnostics", "-fshow-*"),
        *("-fno-show-*", "-ferror-limit=*", "-fmax-errors=*", "-fmacro-backtrace-limit=*"),
        *("-fspell-checking", "-fno-spell-checking", "-ftime-report*", "-ftime-trace*"),
        *("-fproc-stat-report*", "-gen-cdb-fragment-path VALUE", "-fstack-usage", "-time"),
        *("-save-temps", "-save-temps=*", "--save-temps", "--save-temps=*", "-fembed-bitcode*"),
        *("-fsave-optimization-record*", "-fno-save-optimization-record"),
        *("-foptimization-record-*",),
    }
)
"""Options about files besides the object, and about messages."""
_OF_MACROS: Final = re.compile("-W(no-)?deprecated|-f(file|macro)-prefix-map=.*", re.DOTALL)
"""Of these, what changes a macro: ``__DEPRECATED`` or ``__FILE__``."""
_LEFT_UNSAID: Final = _UNSAID | _OF_LINKS
_SAFE: Final = (_GIVEN | _SOURCES | _WITH_CHOICES.keys()) - _PASSED_ON
_XCLANG: Final = "-Xclang VALUE"
_OF_FRONT_END: Final = frozenset({"-include-pch", "-include"})
"""Behind ``-Xclang``, and their values too: what CMake has for a precompiled header."""
_SAFE_OF_FRONT_END: Final = frozenset(f"{_XCLANG} {each}" for each in _OF_FRONT_END)
_WITHOUT_EFFECT: Final = re.compile(
    "-Wp,-MM?D,[^,]+|-Wa,--noexecstack|-fmodule-(name|map-file|output)=.*"
    r"|-fmodules-(strict-)?decluse|-Xclang-fembed-bitcode(=\w+)?",
    re.DOTALL,
)
"""Lists of headers, a note of the assembler's, the interface of a module of C++20, layers, which
Bazel has clang check, and bitcode for a corpus."""
_IMPORTS: Final = re.compile("-fmodule-file=[^=]+=.+", re.DOTALL)
"""The interface of another module of C++20."""
_DEFINES: Final = re.compile("-Wp(,-[DU][^,]+)+", re.DOTALL)
"""Options that go to the preprocessor and no further, as makefiles have them."""
_SUFFIXES: Final = r"c|cc|cp|cpp|cxx|c\+\+|C|CC|CPP|CXX|cppm|ccm|cxxm|c\+\+m|ixx|m|mm|M|i|ii|mi|mii"
_SOURCE: Final = re.compile(rf"[^-@].*\.({_SUFFIXES})", re.DOTALL)
_INPUT: Final = re.compile(
    rf"[^-@].*\.({_SUFFIXES}|bc|ll|s|S|o|obj|lo|a|lib|so|so\.[\d.]+)", re.DOTALL
)


def allowed_of_driver(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command for clang's driver: options that decide the code, and inputs.

    >>> allowed_of_driver(["-c", "-O2", "-DX", "-march=native", "--", "a.c"])
    ['-c', '-O2', '-march=native', 'a.c']

    Raises:
        ExtractionError: the command has an option that is neither known to be safe nor known to
            mean nothing here.
    """
    given: list[str] = []
    has_language = False
    for each in _OPTIONS.read(arguments):
        if each.spelling is None and each.value[:1] not in {"-", "@"}:
            # What the driver does not compile, it gives to the linker: nothing is lost without it.
            given += each.words if has_language or _INPUT.fullmatch(each.value) else ()
        elif each.spelling is None or not _fits(each):
            raise ExtractionError(
                f"refused to ask clang: {' '.join(each.words)!r} is not one of the options known "
                "to run nothing and to read nothing; --default_args gives the command instead"
            )
        elif each.spelling not in _LEFT_OUT:
            given += each.words
        has_language = has_language or each.spelling in {"-x VALUE", "-x*"}
    return given


def allowed_of_build(arguments: Sequence[str]) -> list[str]:
    """The arguments that clang's driver is given to compile a command's source once more.

    >>> allowed_of_build(["-c", "-O2", "-DX", "-MD", "-MF", "a.d", "a.c", "-o", "a.o"])
    ['-c', '-O2', '-DX', 'a.c']

    Raises:
        ExtractionError: the command has an option that is not known to do nothing but that.
    """
    given: list[str] = []
    if "-c" not in arguments:
        raise ExtractionError("refused to compile: expected '-c', found none")
    for each in _with_values(_OPTIONS.read(arguments)):
        is_input = each.spelling is None and _SOURCE.fullmatch(each.value)
        if _means_nothing(each):
            continue
        if not (is_input or _is_safe(each)) or any(word[:1] == "@" for word in each.words):
            raise ExtractionError(
                f"refused to compile: {' '.join(each.words)!r} is not one of the options known to "
                "run nothing and to write nothing"
            )
        given += each.words
    return given


def _means_nothing(argument: Argument) -> bool:
    words = "".join(argument.words)
    if _OF_MACROS.fullmatch(words):
        return False
    return argument.spelling in _LEFT_UNSAID or _WITHOUT_EFFECT.fullmatch(words) is not None


def _with_values(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """The arguments; what is behind ``-Xclang`` and names a file is one argument with that."""
    waiting: Argument | None = None
    for each in arguments:
        is_front = each.spelling == _XCLANG
        if waiting is not None and is_front:
            words = (*waiting.words, *each.words)
            yield Argument(f"{_XCLANG} {waiting.value}", each.value, words)
            waiting = None
        elif is_front and each.value in _OF_FRONT_END:
            waiting = each
        else:
            yield from (waiting, each) if waiting else (each,)
            waiting = None
    if waiting:
        yield waiting


def _is_safe(argument: Argument) -> bool:
    """Whether it has no other effect than on the code: it is not passed on to a tool by itself."""
    if argument.spelling in {"-mllvm VALUE", "-mllvm=*"}:
        return refusal_of_llvm(argument.value) is None
    words = "".join(argument.words)
    return (
        any(each.fullmatch(words) for each in (_DEFINES, _IMPORTS, _OF_MACROS))
        or argument.spelling in _SAFE_OF_FRONT_END
        or (argument.spelling in _SAFE and _fits(argument))
    )


def _fits(argument: Argument) -> bool:
    pattern = _WITH_CHOICES.get(argument.spelling or "")
    return pattern is None or pattern.fullmatch(argument.value) is not None
