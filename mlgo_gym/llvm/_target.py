"""Settings of a compilation that a worker is sent, checked wherever they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from corpus_tools.allowed.llvm import refusal_of_llvm
from corpus_tools.printable import listed
from mlgo_gym.base import OptionsError

OPT_LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Oz")
"""Clang's optimisation levels, as they are spelled here: without the dash."""

MARKING: Final = "+attributes"
"""Behind Os and Oz: functions are marked for size first, as clang's front end marks them."""
ALL_LEVELS: Final = (*OPT_LEVELS, f"Os{MARKING}", f"Oz{MARKING}")
"""The levels that a module can be compiled at."""

_RELOCATION_MODELS: Final = ("pic", "static", "dynamicnopic")
CODE_MODELS: Final = ("default", "small", "kernel", "medium", "large")
_SWITCHES: Final = ("vectorize_loops", "vectorize_slp", "unroll_loops")
_BOOLEANS: Final = ("run_passes", "function_sections", "data_sections", "addrsig")
_LENGTHS: Final = {"cpu": 256, "features": 1 << 16, "abi": 256}
"""The most characters of each text; x86-64's features in full take 2,000."""
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Target:
    """Settings that decide the code besides the module; see `llvm.command._options`.

    ``None`` as level reads it off the functions' attributes; ``None`` as a switch is what clang
    chooses for the level. Without `run_passes` a module is taken as it is.

    Raises:
        OptionsError: a value that the field cannot have.
    """

    opt_level: str | None
    relocation_model: str
    code_model: str
    vectorize_loops: bool | None
    vectorize_slp: bool | None
    unroll_loops: bool | None
    cpu: str = ""
    features: str = ""
    abi: str = ""
    run_passes: bool = True
    function_sections: bool = False
    data_sections: bool = False
    addrsig: bool = False

    def __post_init__(self) -> None:
        if self.opt_level is not None:
            check_choice("opt_level", self.opt_level, ALL_LEVELS)
        check_choice("relocation_model", self.relocation_model, _RELOCATION_MODELS)
        check_choice("code_model", self.code_model, CODE_MODELS)
        for name in _SWITCHES:
            if getattr(self, name) is not None:
                _check_switch(name, getattr(self, name))
        for name in _BOOLEANS:
            _check_switch(name, getattr(self, name))
        for name, length in _LENGTHS.items():
            _check_text(name, getattr(self, name), length)


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Raise unless a setting has one of the values that there are."""
    if value not in known:
        raise OptionsError(f"{name}: expected one of {listed(known, value)}, found {value!r}")


def check_llvm_options(
    options: Sequence[object], refusal: Callable[[str], str | None] = refusal_of_llvm
) -> None:
    """Raise unless all are options that LLVM is given: those that nothing is said against."""
    if not isinstance(options, tuple):
        raise OptionsError(f"llvm_options: expected a list of options, found {_clipped(options)}")
    for option in options:
        if not isinstance(option, str):
            raise OptionsError(f"llvm_options: expected a text, found {_clipped(option)}")
        if reason := refusal(option):
            raise OptionsError(f"llvm_options: {option}: {reason}")


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionsError(f"{name}: expected true or false, found {_clipped(value)}")


def _check_text(name: str, value: object, length: int) -> None:
    if not isinstance(value, str) or not re.fullmatch(f"[!-~]{{0,{length}}}", value):
        raise OptionsError(
            f"{name}: expected at most {length} characters of ASCII, without spaces, "
            f"found {_clipped(value)}"
        )


def _clipped(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
