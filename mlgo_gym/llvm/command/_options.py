"""How a module is compiled: the choices of a clang command line that change the code.

Much of a command stands in the bitcode already, such as the ``optsize`` and ``minsize`` that clang
puts on every function it compiles with -Os and -Oz. `corpus_tools.allowed.cc1_table` says of each
option of clang where it takes effect, and which the embedded compiler does not honour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from corpus_tools.allowed.cc1_table import LISTED_OPTION, PROFILE_OPTIONS, TABLE, Effect, Row
from corpus_tools.allowed.spelling import Argument as FoundArgument
from corpus_tools.allowed.spelling import Spellings
from mlgo_gym.base import OptionsError
from mlgo_gym.llvm._target import (
    CODE_MODELS,
    OPT_LEVELS,
    Target,
    check_choice,
    check_llvm_options,
)
from mlgo_gym.llvm.command._own_options import known_llvm_options, refusal

# Two spellings of one option (clang/include/clang/Options/Options.td).
_NO_PASSES: Final = frozenset({"-disable-llvm-passes", "-disable-llvm-optzns"})
_CC1_LEVELS: Final = MappingProxyType(
    {f"-{level}": level for level in OPT_LEVELS}
    | {"-O": "O1", "-Og": "O1", "-O4": "O3", "-Ofast": "O3"}
)
_CC1_RELOCATION: Final = MappingProxyType(
    {"pic": "pic", "static": "static", "dynamic-no-pic": "dynamicnopic"}
)
_CODE_MODEL: Final = "-mcmodel="
_CC1_CODE: Final = MappingProxyType({"tiny": "small"} | {model: model for model in CODE_MODELS})
_ROWS: Final = MappingProxyType({row.option: row for row in TABLE})
_SPELLINGS: Final = Spellings(_ROWS)


_NOT_CODE: Final = ("data_sections", "addrsig")


def settings_of_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that code depends on, of a compilation's.

    >>> settings_of_code({"opt_level": "Oz", "addrsig": True})
    {'opt_level': 'Oz'}
    """
    return {name: value for name, value in settings.items() if name not in _NOT_CODE}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options that decide the code, apart from the module itself.

    Attributes:
        opt_level: one of `ALL_LEVELS`, which decides on LLVM's pipeline. ``Os+attributes`` and
            ``Oz+attributes`` mark functions for size first, as clang's front end does; the others
            change no attributes. ``None`` reads the level off them: Oz where one is ``minsize``, Os
            where one is ``optsize``, otherwise O2.
        relocation_model: ``pic``, ``static`` or ``dynamicnopic``.
        code_model: ``default`` is clang's, the small one.
        vectorize_loops: ``None`` is clang's choice for the level: on for O2, O3 and Os.
        vectorize_slp: ``None`` is clang's choice for the level: on for O2, O3, Os and Oz.
        unroll_loops: ``None`` is clang's choice for the level: on from O2, Os and Oz included.
        cpu: LLVM's name of the CPU of what has no attribute ``target-cpu``; empty: a generic one.
        features: of that CPU, such as ``+avx2,-sse4a``.
        abi: LLVM's name of the ABI; empty: the target's own.
        llvm_options: options of LLVM's own, such as ``-inline-threshold=5``.
        run_passes: off, code is generated from the module as it is.
        function_sections: each function has a section of its own, which a linker can drop.
        data_sections: each global variable has one.
        addrsig: the object names the symbols whose address is significant; a linker that folds
            safely (``--icf=safe``) leaves these alone.
        not_honoured: the options of the module's command line that the embedded compiler does not
            honour, each with what comes of it; see ``docs/reference/commands.md``.

    Raises:
        OptionsError: a value that the field cannot have, or an option of LLVM's own that is not
            passed on (`llvm.command._own_options`).

    >>> CompileOptions(opt_level="O2").with_level("Oz").opt_level
    'Oz'
    """

    opt_level: str | None = None
    relocation_model: str = "pic"
    code_model: str = "default"
    vectorize_loops: bool | None = None
    vectorize_slp: bool | None = None
    unroll_loops: bool | None = None
    cpu: str = ""
    features: str = ""
    abi: str = ""
    llvm_options: tuple[str, ...] = ()
    run_passes: bool = True
    function_sections: bool = False
    data_sections: bool = False
    addrsig: bool = False
    not_honoured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.target()
        known = known_llvm_options() if self.llvm_options else {}
        check_llvm_options(self.llvm_options, partial(refusal, known=known))

    def with_level(self, opt_level: str | None) -> CompileOptions:
        """These options at another level, with that level's own switches; ``None`` keeps all."""
        if opt_level is None:
            return self
        return replace(
            self, opt_level=opt_level, vectorize_loops=None, vectorize_slp=None, unroll_loops=None
        )

    def with_sections(self) -> CompileOptions:
        """These options for a linker that drops and folds functions.

        As with ``-ffunction-sections -fdata-sections -faddrsig``.

        >>> CompileOptions().with_sections().function_sections
        True
        """
        return replace(self, function_sections=True, data_sections=True, addrsig=True)

    def settings(self) -> dict[str, Any]:
        """The fields by name, as JSON values, for records."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def target(self) -> Target:
        """Return the settings that a worker is sent, without LLVM's own options."""
        return Target(**{each.name: getattr(self, each.name) for each in fields(Target)})

    @classmethod
    def from_command(cls, command: Sequence[str], *, has_profile: bool = False) -> CompileOptions:
        """The options of a recorded ``clang -cc1`` command line.

        Args:
            command: starts with ``-cc1``.
            has_profile: the bitcode carries the profile that the command names, if it names one.

        Raises:
            OptionsError: it is not one of ``-cc1``, or names a model that LLVM does not have.
            EnvironmentSetupError: it has options of LLVM's own, and LLVM cannot be asked for its.

        >>> CompileOptions.from_command(["-cc1", "-Oz", "-vectorize-slp"]).vectorize_loops
        False
        >>> CompileOptions.from_command(["-cc1", "-Oz", "-falign-loops=32"]).not_honoured
        ('-falign-loops=: loops are aligned as LLVM does by itself',)
        """
        arguments = list(read_arguments(command))
        last = {each.name: each.value for each in arguments}
        chosen = [each.value for each in arguments if each.name == "-mllvm"]
        passed, refused = _llvm_options(chosen)
        return cls(
            opt_level=_known("level", f"-O{last['-O']}", _CC1_LEVELS) if "-O" in last else "O0",
            relocation_model=_known(
                "-mrelocation-model", last.get("-mrelocation-model", "pic"), _CC1_RELOCATION
            ),
            code_model=_code_model(arguments),
            vectorize_loops="-vectorize-loops" in last,
            vectorize_slp="-vectorize-slp" in last,
            unroll_loops=_unroll_loops(arguments),
            cpu=last.get("-target-cpu", ""),
            features=",".join(each.value for each in arguments if each.name == "-target-feature"),
            abi=last.get("-target-abi", ""),
            llvm_options=passed,
            run_passes=_NO_PASSES.isdisjoint(last),
            function_sections="-ffunction-sections" in last,
            data_sections="-fdata-sections" in last,
            addrsig="-faddrsig" in last,
            not_honoured=(*not_honoured(arguments, has_profile=has_profile), *refused),
        )


def _llvm_options(chosen: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split LLVM's options into those that are passed on and those refused, with reasons."""
    known = known_llvm_options() if chosen else {}
    reasons = {option: refusal(option, known) for option in chosen}
    passed = tuple(f"-{option.lstrip('-')}" for option in chosen if reasons[option] is None)
    refused = tuple(f"-mllvm {option}: {reason}" for option, reason in reasons.items() if reason)
    return passed, refused


def _code_model(arguments: Sequence[Argument]) -> str:
    # Rows of the table that are not honoured hold the model in their names.
    models = [
        f"{each.name}{each.value}".removeprefix(_CODE_MODEL)
        for each in arguments
        if each.name.startswith(_CODE_MODEL)
    ]
    return _known(_CODE_MODEL.removesuffix("="), models[-1], _CC1_CODE) if models else "default"


def _unroll_loops(arguments: Sequence[Argument]) -> bool | None:
    switches = {"-funroll-loops": True, "-fno-unroll-loops": False}
    chosen = [switches[each.name] for each in arguments if each.name in switches]
    return chosen[-1] if chosen else None


def _known(name: str, value: str, known: Mapping[str, str]) -> str:
    check_choice(name, value, tuple(known))
    return known[value]


@dataclass(frozen=True, slots=True)
class Argument:
    """One option of a command, and its row of the table; without one, its name goes up to ``=``."""

    name: str
    value: str
    row: Row | None

    @property
    def effect(self) -> Effect:
        """How it takes effect; unknown options count as not honoured."""
        return self.row.effect if self.row else Effect.NOT_HONOURED


def read_arguments(command: Sequence[str]) -> Iterator[Argument]:
    """The options of a command, in its order.

    Arguments that follow an unknown option and do not look like options are its values.

    >>> [(each.name, each.value) for each in read_arguments(["-cc1", "-Oz", "-target-cpu", "z13"])]
    [('-O', 'z'), ('-target-cpu', 'z13')]
    """
    if not command or command[0] != "-cc1":
        found = command[0] if command else "nothing"
        raise OptionsError(f"command line: expected -cc1 first, found {found!r}")
    for each in _SPELLINGS.read(command[1:]):
        text = each.words[0]
        if text.startswith(LISTED_OPTION):
            items = text.removeprefix(LISTED_OPTION).split(",")
            yield from map(_argument, _SPELLINGS.read([f"{LISTED_OPTION}{item}" for item in items]))
        elif text.startswith("-"):
            yield _argument(each)


def not_honoured(arguments: Sequence[Argument], *, has_profile: bool = False) -> tuple[str, ...]:
    """List the options that the embedded compiler leaves out, with their consequences."""
    carried = PROFILE_OPTIONS if has_profile else ()
    lacking = (each for each in arguments if each.effect is Effect.NOT_HONOURED)
    return tuple(dict.fromkeys(_described(each) for each in lacking if each.name not in carried))


def _argument(found: FoundArgument) -> Argument:
    if found.spelling:
        row = _ROWS[found.spelling]
        return Argument(row.name, found.value, row)
    name, equals, value = found.value.partition("=")
    return Argument(name + equals, value, None)


def _described(argument: Argument) -> str:
    # A value that is a path differs from module to module; what is missing is the same.
    value = argument.value if argument.name == LISTED_OPTION else ""
    note = argument.row.note if argument.row else "not known to mlgo_gym"
    return f"{argument.name}{value}: {note}"
