"""How a module is compiled: the choices of a clang command line that change the code.

Size optimisation itself stands in the bitcode: clang puts ``optsize`` and ``minsize`` on every
function it compiles with -Os and -Oz. What remains for the back end is the pipeline's level, the
vectorisers, unrolling, and the relocation and code model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.errors import OptionsError

__all__ = ["OPT_LEVELS", "CompileOptions"]

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
        run_passes: off, code is generated from the module as it is.

    Raises:
        OptionsError: a value that the field cannot have.
    """

    opt_level: str | None = None
    relocation_model: str = "pic"
    code_model: str = "default"
    vectorize_loops: bool | None = None
    vectorize_slp: bool | None = None
    unroll_loops: bool | None = None
    run_passes: bool = True

    def __post_init__(self) -> None:
        if self.opt_level is not None:
            _check("opt_level", self.opt_level, OPT_LEVELS)
        _check("relocation_model", self.relocation_model, _RELOCATION_MODELS)
        _check("code_model", self.code_model, _CODE_MODELS)

    def with_level(self, opt_level: str | None) -> CompileOptions:
        """These options at another level, with that level's own switches; ``None`` keeps all.

        Raises:
            OptionsError: there is no such level.
        """
        if opt_level is None:
            return self
        return CompileOptions(
            opt_level, self.relocation_model, self.code_model, run_passes=self.run_passes
        )

    def settings(self) -> dict[str, Any]:
        """The fields by name, as JSON values, for requests and records."""
        return asdict(self)

    @classmethod
    def from_command(cls, command: Sequence[str]) -> CompileOptions:
        """The options of a recorded ``clang -cc1`` command line.

        Raises:
            OptionsError: it is not one of ``-cc1``, or names a model that LLVM does not have.

        >>> CompileOptions.from_command(["-cc1", "-Oz", "-vectorize-slp"]).vectorize_loops
        False
        """
        if not command or command[0] != "-cc1":
            found = command[0] if command else "nothing"
            raise OptionsError(f"command line: expected -cc1 first, found {found!r}")
        levels = [_cc1_level(argument) for argument in command if argument.startswith("-O")]
        options = cls(
            opt_level=levels[-1] if levels else "O0",
            relocation_model=_model(command, "-mrelocation-model", _CC1_RELOCATION, "pic"),
            code_model=_model(command, "-mcmodel", _CC1_CODE, "default"),
            vectorize_loops="-vectorize-loops" in command,
            vectorize_slp="-vectorize-slp" in command,
            run_passes=_NO_PASSES.isdisjoint(command),
        )
        for argument in command:
            if argument in {"-funroll-loops", "-fno-unroll-loops"}:
                options = replace(options, unroll_loops=argument == "-funroll-loops")
        return options


def _cc1_level(argument: str) -> str:
    _check("level", argument, tuple(_CC1_LEVELS))
    return _CC1_LEVELS[argument]


def _model(command: Sequence[str], option: str, known: Mapping[str, str], default: str) -> str:
    value = None
    for argument, following in zip(command, [*command[1:], ""], strict=True):
        if argument == option:
            value = following
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
    if value is None:
        return default
    _check(option, value, tuple(known))
    return known[value]


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise OptionsError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
