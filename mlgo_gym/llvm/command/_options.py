"""How a module is compiled: the choices of a clang command line that change the code.

Much of a command stands in the bitcode already: clang puts ``optsize`` and ``minsize`` on every
function it compiles with -Os and -Oz, for one. `llvm.command._cc1_table` says of each option of
clang where it takes effect, and which the embedded compiler does not honour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm.command._cc1 import Argument, not_honoured, read_arguments
from mlgo_gym.llvm.command._own_options import known_llvm_options, refusal
from mlgo_gym.llvm.process._request import Target

OPT_LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Oz")
"""Clang's optimisation levels, as they are spelled here: without the dash."""

_RELOCATION_MODELS: Final = ("pic", "static", "dynamicnopic")
_CODE_MODELS: Final = ("default", "small", "kernel", "medium", "large")
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
_CC1_CODE: Final = MappingProxyType({"tiny": "small"} | {model: model for model in _CODE_MODELS})


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What decides the code besides the module itself.

    Attributes:
        opt_level: one of `OPT_LEVELS`; ``None`` reads it off the functions' attributes: Oz where
            one is ``minsize``, Os where one is ``optsize``, otherwise O2.
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
        not_honoured: the options of the module's command line that the embedded compiler does not
            honour, each with what comes of it; see ``docs/commands.md``.

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
    not_honoured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.opt_level is not None:
            check_choice("opt_level", self.opt_level, OPT_LEVELS)
        check_choice("relocation_model", self.relocation_model, _RELOCATION_MODELS)
        check_choice("code_model", self.code_model, _CODE_MODELS)
        known = known_llvm_options() if self.llvm_options else {}
        for option in self.llvm_options:  # from wherever they come: a trace may be a stranger's
            if reason := refusal(option, known):
                raise OptionsError(f"llvm_options: {option}: {reason}")

    def with_level(self, opt_level: str | None) -> CompileOptions:
        """These options at another level, with that level's own switches; ``None`` keeps all."""
        if opt_level is None:
            return self
        return replace(
            self, opt_level=opt_level, vectorize_loops=None, vectorize_slp=None, unroll_loops=None
        )

    def settings(self) -> dict[str, Any]:
        """The fields by name, as JSON values, for records."""
        return asdict(self)

    def target(self) -> Target:
        """What a worker is told of them, but for LLVM's own options."""
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
        >>> CompileOptions.from_command(["-cc1", "-Oz", "-ffunction-sections"]).not_honoured
        ('-ffunction-sections: functions share .text, where padding counts and jumps are shorter',)
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
            not_honoured=(*not_honoured(arguments, has_profile=has_profile), *refused),
        )


def _llvm_options(chosen: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that are passed on to LLVM, and those that are not, with the reason."""
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


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise unless a setting has one of the values that there are."""
    if value not in known:
        raise OptionsError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
