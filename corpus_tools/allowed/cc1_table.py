"""The embedded compiler's understanding of the options of ``clang -cc1``: one table.

A module of a corpus is bitcode as clang's front end left it. Of the options that it was compiled
with, many have done their work by then and stand in the bitcode as attributes and module flags.
The rest speak to the back end (``clang/lib/CodeGen/BackendUtil.cpp``); of those some reach the
embedded LLVM and some cannot, since llvmlite does not hand out ``llvm::TargetOptions``, LLVM's
instrumentation passes or clang's registered callbacks.

A row is spelled as in the command line, see `corpus_tools.allowed.spelling`. What has no row counts
as not honoured. ``docs/reference/commands.md`` shows the table, and
``tests/llvm/command/test_cc1_table.py`` compiles with each option and compares the code with
clang's.

A real clang that compiles a module again is given the rows that are pure, and no other
(`corpus_tools.replay`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LISTED_OPTION: Final = "-fsanitize="
"""Its value is a list, each item of which counts as an option of its own."""

PROFILE_OPTIONS: Final = frozenset({"-fprofile-instrument-use=", "-fprofile-instrument-use-path="})
"""Options that name a profile that bitcode may carry: the front end attaches its own kind."""


class Effect(StrEnum):
    """How an option takes effect when a module is compiled from its bitcode."""

    BITCODE = "in the bitcode"
    COMPILER = "honoured"
    OTHER = "not code"
    NOT_HONOURED = "not honoured"
    FRONT_END = "front end"


@dataclass(frozen=True, slots=True)
class Row:
    """One option, or all that start alike: how it takes effect, and what comes of it.

    Attributes:
        is_pure: with it, clang runs, loads, reads and writes no more than without.
    """

    option: str
    effect: Effect
    note: str
    is_pure: bool = False

    @property
    def name(self) -> str:
        """The text that an argument is or starts with."""
        return self.option.partition(" ")[0].removesuffix("*")


def _rows(effect: Effect, options: Mapping[str, str], *, is_pure: bool = False) -> tuple[Row, ...]:
    """Rows of one effect: for each note its options, with commas between them."""
    return tuple(
        Row(option, effect, note, is_pure)
        for note, text in options.items()
        for option in re.split(r",\s+", text.strip())
    )


_HONOURED: Final = {
    "level of the pipeline and of code generation": "-O*",
    "relocation model of the target machine": "-mrelocation-model VALUE",
    "code model of the target machine": "-mcmodel=*",
    "CPU of the target machine; attribute target-cpu": "-target-cpu VALUE",
    "features of the target machine; attribute target-features": "-target-feature VALUE",
    "ABI of the target machine; flag target-abi": "-target-abi VALUE",
    "loop vectoriser of the pipeline": "-vectorize-loops",
    "SLP vectoriser of the pipeline": "-vectorize-slp",
    "unrolling and interleaving of the pipeline": "-funroll-loops, -fno-unroll-loops",
    "a section of its own for each function": "-ffunction-sections",
    "a section of its own for each global variable": "-fdata-sections",
    "the object's table of significant addresses": "-faddrsig",
    "no pipeline is run: code is generated from the module as it is": """
        -disable-llvm-passes, -disable-llvm-optzns
    """,
    "passed on to LLVM where it is safe; see below": "-mllvm VALUE",
    "what LLVM does by itself": "-fno-use-init-array, -x VALUE",
    "what the embedded compiler does": "-emit-obj",
    "LLVM's own choice": "-exception-model=dwarf",
}

_IN_BITCODE: Final = {
    "the module's target triple": "-triple VALUE",
    "attribute tune-cpu": "-tune-cpu VALUE",
    "module flags PIC Level, PIE Level": "-pic-level VALUE, -pic-is-pie",
    "attribute and module flag frame-pointer": "-mframe-pointer=*",
    "attribute and module flag uwtable": "-funwind-tables=*",
    "invoke, attribute nounwind": "-fexceptions, -fcxx-exceptions",
    "fast-math flags, attributes such as no-nans-fp-math, strictfp, memory effects of calls": """
        -fmath-errno, -ffp-contract=*, -fno-rounding-math, -frounding-math, -ffast-math,
        -fno-fast-math, -ffinite-math-only, -menable-no-infs, -menable-no-nans, -fapprox-func,
        -funsafe-math-optimizations, -fno-signed-zeros, -mreassociate, -freciprocal-math,
        -complex-range=*, -ffp-exception-behavior=*, -fdenormal-fp-math=*, -fdenormal-fp-math-f32=*,
        -fno-strict-float-cast-overflow, -mlong-double-64, -mlong-double-80, -mlong-double-128,
        -ffloat16-excess-precision=*, -fbfloat16-excess-precision=*
    """,
    "attributes no-builtins, nobuiltin": "-fno-builtin, -ffreestanding",
    "attribute no-builtin-NAME": "-fno-builtin-*",
    "attributes ssp, stack-protector-buffer-size, module flags stack-protector-guard...": """
        -stack-protector VALUE, -stack-protector-buffer-size VALUE, -mstack-protector-guard=*
    """,
    "attribute probe-stack": "-fstack-clash-protection",
    "attributes and module flags of control-flow protection": """
        -fcf-protection=*, -mfunction-return=*, -mindirect-branch-cs-prefix,
        -mbranch-target-enforce, -msign-return-address=*, -msign-return-address-key=*,
        -mbranch-protection-pauth-lr
    """,
    "attribute nonlazybind, module flag RtLibUseGOT": "-fno-plt",
    "visibility, dso_local, unnamed_addr, linkage and TLS model of symbols": """
        -fvisibility=*, -fvisibility-inlines-hidden, -fsemantic-interposition,
        -fhalf-no-semantic-interposition, -ftls-model=*, -fmerge-all-constants, -fcommon,
        -fno-common, -fdirect-access-external-data, -mconstructor-aliases,
        -fno-direct-access-external-data, -ftype-visibility=*, -fapply-global-visibility-to-externs,
        -funique-internal-linkage-names, -femit-all-decls, -fkeep-static-consts,
        -fkeep-persistent-storage-variables, -fvisibility-global-new-delete=*,
        -fvisibility-inlines-hidden-static-local-var
    """,
    "attribute no-jump-tables": "-fno-jump-tables",
    "attributes and metadata of functions, loops and accesses": """
        -fwrapv, -fextend-variable-liveness=*, -no-implicit-float, -mskip-rax-setup, -fsplit-stack,
        -fcx-limited-range, -fms-layout-compatibility=*, -fpcc-struct-return, -freg-struct-return,
        -fno-optimize-sibling-calls, -fwrapv-pointer, -ftrapv, -relaxed-aliasing, -pointer-tbaa,
        -no-pointer-tbaa, -new-struct-path-tbaa, -no-struct-path-tbaa, -fno-strict-return,
        -fno-delete-null-pointer-checks, -fno-escaping-block-tail-calls, -fno-inline,
        -fno-inline-functions, -finline-functions, -finline-hint-functions, -fstrict-enums,
        -fstrict-vtable-pointers, -fforce-emit-vtables, -fno-threadsafe-statics, -fno-assumptions,
        -ffinite-loops, -fno-finite-loops, -fno-assume-sane-operator-new,
        -fassume-nothrow-exception-dtor, -fno-assume-unique-vtables, -disable-O0-optnone,
        -disable-red-zone, -mstackrealign, -mstack-alignment=*, -pg, -mfentry,
        -finstrument-functions, -finstrument-functions-after-inlining,
        -finstrument-function-entry-bare, -fpatchable-function-entry=*,
        -fpatchable-function-entry-offset=*, -fzero-call-used-regs=*, -ftrivial-auto-var-init=*,
        -mspeculative-load-hardening, -fno-use-cxa-atexit, -fshort-enums, -fno-signed-char,
        -fno-wchar, -fwchar-type=*, -fno-signed-wchar, -fms-extensions, -fms-compatibility,
        -fpack-struct=*, -fno-sized-deallocation, -fsized-deallocation, -fno-char8_t, -fno-rtti,
        -fno-rtti-data, -fblocks, -fcoroutines, -fopenmp, -fopenmp-version=*, -fignore-exceptions
    """,
    "attribute of functions": "-function-alignment VALUE, -ftrap-function=*, -mregparm VALUE",
    "attribute function-instrument; LLVM's XRay pass reads it": """
        -fxray-instrument, -fxray-instruction-threshold=*, -fxray-modes=*,
        -fxray-instrumentation-bundle=*
    """,
    "checks and attributes that the front end writes": """
        -fsanitize=alignment, -fsanitize=array-bounds, -fsanitize=bool, -fsanitize=builtin,
        -fsanitize=enum, -fsanitize=float-cast-overflow, -fsanitize=float-divide-by-zero,
        -fsanitize=function, -fsanitize=implicit-*, -fsanitize=integer-divide-by-zero,
        -fsanitize=kcfi, -fsanitize=nonnull-attribute, -fsanitize=null, -fsanitize=nullability-*,
        -fsanitize=object-size, -fsanitize=pointer-overflow, -fsanitize=return,
        -fsanitize=returns-nonnull-attribute, -fsanitize=safe-stack, -fsanitize=shadow-call-stack,
        -fsanitize=shift-base, -fsanitize=shift-exponent, -fsanitize=signed-integer-overflow,
        -fsanitize=unsigned-integer-overflow, -fsanitize=unsigned-shift-base,
        -fsanitize=unreachable, -fsanitize=vla-bound, -fsanitize=vptr
    """,
    "how those checks report": """
        -fsanitize-recover=*, -fsanitize-trap=*, -fsanitize-merge=*, -fsanitize-minimal-runtime,
        -fno-sanitize-memory-param-retval, -fsanitize-cfi-icall-generalize-pointers,
        -fsanitize-kcfi-arity
    """,
    "debug metadata": """
        -debug-info-kind=*, -dwarf-version=*, -gkey-instructions, -ggnu-pubnames, -gcodeview,
        -debug-info-macro, -gno-column-info, -gsrc-hash=*, -fdebug-compilation-dir=*,
        -fdebug-prefix-map=*, -dwarf-debug-flags VALUE, -gtemplate-alias, -gsimple-template-names=*,
        -gpubnames, -gcall-site-info, -gstrict-dwarf
    """,
}

_NOT_CODE: Final = {
    "zeros stay in .bss": "-fno-zero-initialized-in-bss",
    "read by the pass of AddressSanitizer alone": "-fno-sanitize-address-use-odr-indicator",
    "sections have names of their own": "-fno-unique-section-names",
    "data of every size counts as large": "-mlarge-data-threshold=*",
    "debug sections are laid out for no debugger, whole and not compressed": """
        -debugger-tuning=*, -gdwarf64, -gdwarf32, -fdwarf2-cfi-asm, --compress-debug-sections=*,
        -fforce-dwarf-frame, -fno-dwarf-directory-asm, -femit-dwarf-unwind=*, -object-file-name=*
    """,
    "the object lacks the section": "-fstack-size-section, -fbasic-block-address-map",
    "relocations may be of another type": "-mrelax-relocations=no",
    "a note about the stack may be missing or there": "-mnoexecstack",
}

_NOT_CODE_BUT_FILES: Final = {
    "debug sections are laid out for no debugger, whole and not compressed": """
        -split-dwarf-file VALUE, -split-dwarf-output VALUE
    """,
    "the object lacks the section": "-stack-usage-file VALUE, -fembed-bitcode=*",
}

_MISSING: Final = {
    "blocks stay in the section of their function": """
        -fbasic-block-sections=*, -fsplit-machine-functions
    """,
    "data of every size counts as large": "-mcmodel=medium",
    "the small code model is used": "-mcmodel=tiny",
    "thread-local variables are accessed as the target does by default": """
        -femulated-tls, -enable-tlsdesc, -mtls-size=*
    """,
    "loops are aligned as LLVM does by itself": "-falign-loops=*",
    "the assembler chooses the shortest encodings, without padding": "-mrelax-all",
    "LLVM's own assembler is used": "-no-integrated-as, -fno-integrated-as",
    "the vector library is not known to LLVM": "-fveclib=*",
    "exceptions are those of the target's default model": """
        -exception-model=*, -mthread-model VALUE
    """,
    "code for the default float ABI": "-mfloat-abi VALUE, -meabi VALUE",
    "the pass that instruments is not run": """
        -fsanitize=*, -fsanitize-address-*, -fsanitize-memory-*, -fmemory-profile*,
        -fsanitize-coverage-*, -fexperimental-sanitize-metadata=*, -fsanitize-stable-abi
    """,
    "counters of the front end stay unlowered: LLVM aborts": "-fprofile-instrument=clang",
    "the pass that counts or reads profiles is not run": """
        -fprofile-instrument=*, -fprofile-instrument-use=*, -fprofile-instrument-path=*,
        -coverage-data-file=*, -fpseudo-probe-for-profiling, -fprofile-update=*,
        -coverage-version=*, -fdebug-info-for-profiling, -fcoverage-mapping
    """,
    "LLVM's pipeline is run": """
        -fmerge-functions, -floop-interchange, -fexperimental-loop-fusion
    """,
    "compiled by itself, not as a part of a link": """
        -flto, -flto=*, -flto-unit, -fwhole-program-vtables, -fsplit-lto-unit,
        -flto-visibility-public-std, -funified-lto, -ffat-lto-objects
    """,
}

_MISSING_FILES: Final = {
    "the pass that instruments is not run": """
        -fsanitize-coverage-allowlist=*, -fsanitize-coverage-ignorelist=*
    """,
    "the pass that counts or reads profiles is not run": """
        -fprofile-instrument-use-path=*, -fprofile-sample-use=*, -coverage-notes-file=*,
        -fmemory-profile-use=*, -fprofile-remapping-file=*
    """,
    "LLVM's pipeline is run": "-fpass-plugin=*, -load VALUE",
    "compiled by itself, not as a part of a link": "-fthinlto-index=*",
    "an object is made": "-S, -emit-llvm, -emit-llvm-bc, -emit-llvm-only, -emit-codegen-only",
}

_FRONT_END: Final = {
    "input, output and folders": """
        -main-file-name VALUE, -o VALUE, -resource-dir VALUE, -isysroot VALUE,
        -working-directory VALUE, -dumpdir VALUE, -fcoverage-compilation-dir=*,
        -source-date-epoch VALUE, -fmacro-prefix-map=*, -fcoverage-prefix-map=*,
        -fsanitize-system-ignorelist=*, -fsanitize-ignorelist=*, --embed-dir=*, -ivfsoverlay VALUE,
        -vfsoverlay VALUE
    """,
    "headers, macros, modules and dependency files": """
        -D VALUE, -D*, -U VALUE, -U*, -I VALUE, -I*, -F VALUE, -F*, -include VALUE, -imacros VALUE,
        -include-pch VALUE, -idirafter VALUE, -iquote VALUE, -isystem VALUE,
        -internal-isystem VALUE, -iprefix VALUE, -internal-externc-isystem VALUE, -iframework VALUE,
        -iwithsysroot VALUE, -iwithprefix VALUE, -iwithprefixbefore VALUE, -c-isystem VALUE,
        -cxx-isystem VALUE, -objc-isystem VALUE, -objcxx-isystem VALUE, -undef,
        -internal-iframework VALUE, -iframeworkwithsysroot VALUE, -nostdsysteminc,
        -dependency-file VALUE, -dependency-dot VALUE, -MT VALUE, -MQ VALUE, -MP, -MG, -MV, -H,
        -sys-header-deps, -module-file-deps, -nobuiltininc, -nostdinc++, -fmodules, -fmodules-*,
        -fmodule-*, -fprebuilt-module-path=*, -fno-modules-*, -header-include-file VALUE,
        -fskip-odr-check-in-gmf, -fno-pch-timestamp, -iapinotes-modules VALUE,
        -fimplicit-module-maps, -module-dependency-dir VALUE, -Eonly, -fno-implicit-modules
    """,
    "warnings, messages and reports": """
        -W*, -w, -pedantic, -pedantic-errors, -ferror-limit VALUE, -fmessage-length=*,
        -fcolor-diagnostics, -fno-caret-diagnostics, -fdiagnostics-*, -fno-diagnostics-*,
        -fansi-escape-codes, -fshow-*, -fno-show-*, -diagnostic-log-file VALUE,
        -serialize-diagnostic-file VALUE, -verify*, -opt-record-file VALUE,
        -opt-record-format VALUE, -opt-record-passes VALUE, -Rpass=*, -Rpass-missed=*,
        -Rpass-analysis=*, -stats-file=*, -ftime-report*, -ftime-trace*, -print-stats,
        -fno-spell-checking, -fno-elide-type, -Rno-*
    """,
    "how clang itself runs": """
        -cc1, -disable-free, -no-disable-free, -clear-ast-before-backend, -disable-llvm-verifier,
        -discard-value-names, -fno-verbose-asm, -fverbose-asm, -fno-temp-file,
        -mincremental-linker-compatible, -pthread, -fexperimental-new-constant-interpreter
    """,
    "the language": """
        -std=*, -fno-trigraphs, -fgnuc-version=*, -fdeprecated-macro, -fgnu-keywords,
        -fno-gnu-keywords, -fgnu89-inline, -fno-gnu-inline-asm, -fdollars-in-identifiers,
        -fno-dollars-in-identifiers, -fconstexpr-*, -fbracket-depth VALUE, -fno-operator-names,
        -fno-access-control, -faligned-allocation, -faligned-alloc-unavailable, -fchar8_t,
        -fdelayed-template-parsing, -fclang-abi-compat=*, -fencode-extended-block-*,
        -flax-vector-conversions=*, -fpch-*, -fms-compatibility-version=*, -fdeclspec,
        -fcomment-block-commands=*, -fparse-all-comments, -fraw-string-literals, -fcf-runtime-abi=*,
        -fexperimental-library
    """,
}

TABLE: Final[tuple[Row, ...]] = (
    *_rows(Effect.COMPILER, _HONOURED, is_pure=True),
    *_rows(Effect.BITCODE, _IN_BITCODE, is_pure=True),
    *_rows(Effect.OTHER, _NOT_CODE, is_pure=True),
    *_rows(Effect.OTHER, _NOT_CODE_BUT_FILES),
    *_rows(Effect.NOT_HONOURED, _MISSING, is_pure=True),
    *_rows(Effect.NOT_HONOURED, _MISSING_FILES),
    *_rows(Effect.FRONT_END, _FRONT_END),
)
"""All rows; the names of no two are spelled alike."""
