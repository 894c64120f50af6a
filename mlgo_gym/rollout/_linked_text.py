"""Linked text: the code of a package's objects as a linker keeps it, each COMDAT group once.

Inline functions and instances of templates are in every object that uses them. Inlining them away
in one object saves nothing as long as another has them; the sum of the objects' sizes says
otherwise.

Of all groups of one name a linker takes the first, here in the order of the corpus. `LinkedText`
leaves out padding, and what a linker may drop or fold: that is in `LinkedTextGc` and
`LinkedTextIcf`, which take sections apart (`rollout._link`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import InternalError, ModuleError
from mlgo_gym.llvm import (
    CompilationResult,
    CompileOptions,
    Compiler,
    each,
    options_of,
)
from mlgo_gym.rollout._link import ElfObject, Link
from mlgo_gym.rollout._measures import (
    KeptObjectUnit,
    Measure,
    MeasureSetting,
    ObjectUnit,
    Result,
    Unit,
)

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one object.

    Attributes:
        text_bytes: all of it.
        comdat_bytes: what of it is in each COMDAT group, by the group's name.

    >>> Code(text_bytes=10, comdat_bytes={}).text_bytes
    10
    """

    text_bytes: int
    comdat_bytes: Mapping[str, int] = field(repr=False)

    @classmethod
    def of(cls, result: CompilationResult) -> Code:
        """The code that came out of a compilation."""
        groups = result.comdat_text_bytes().items()
        # Results of other processes are shorter where a name is one object.
        return cls(result.text_size_bytes, {sys.intern(name): size for name, size in groups})

    @property
    def own_bytes(self) -> int:
        """The code in no group, which a linker keeps in any case."""
        return self.text_bytes - sum(self.comdat_bytes.values())


def linked_text_bytes(package: Sequence[Code]) -> int:
    """The code of objects that are linked together, in a linker's order, in bytes.

    >>> linked_text_bytes([Code(100, {"f": 30}), Code(80, {"f": 32, "g": 8})])
    148
    """
    return sum(each.own_bytes for each in package) + sum(_kept(package).values())


def linked_text_shares(package: Sequence[Code]) -> NDArray[Any]:
    """The part of each object in `linked_text_bytes`: float64 ``[objects]``, in bytes.

    What is kept of a COMDAT group is shared equally by the objects that have it: which of them
    comes first is chance.

    >>> linked_text_shares([Code(100, {"f": 30}), Code(80, {"f": 32, "g": 8})])
    array([85., 63.])
    """
    kept = _kept(package)
    owners = Counter(name for each in package for name in each.comdat_bytes)
    return np.array(
        [
            each.own_bytes + sum(kept[name] / owners[name] for name in each.comdat_bytes)
            for each in package
        ]
    )


def _kept(package: Sequence[Code]) -> dict[str, int]:
    kept: dict[str, int] = {}
    for code in package:
        for name, size in code.comdat_bytes.items():
            kept.setdefault(name, size)
    return kept


class LinkedText(Measure):
    """The code that a linker keeps of a module, with the package's other objects as they are.

    It is what the module has in no COMDAT group, and of each group that no object before it has,
    what is kept: its own copy, or else that of the next object. Where another module's choice
    changes nothing, two scores differ as the linked package does.

    Args:
        package: the code of the package's objects by module, in a linker's order.

    >>> LinkedText({"a": Code(100, {"f": 30}), "b": Code(80, {"f": 32})}).key
    'linked_text_bytes'
    """

    unit: type[Unit] = ObjectUnit
    key: str = "linked_text_bytes"
    title: str = "linked"
    meaning: str = "bytes of code that a linker keeps for the module"

    def __init__(self, package: Mapping[str, Code]) -> None:
        self._package: Final = dict(package)
        self._owners: dict[str, list[tuple[int, int]]] = {}
        for place, code in enumerate(self._package.values()):
            for name, size in code.comdat_bytes.items():
                self._owners.setdefault(name, []).append((place, size))
        self._places: Final = {name: place for place, name in enumerate(self._package)}

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> LinkedText:
        """Compile the package's objects; modules that cannot be compiled have no code."""
        return cls(_of_package(setting, _code_of))

    def context(self) -> dict[str, str]:
        """The hash of the package's code."""
        about = {name: [c.text_bytes, dict(c.comdat_bytes)] for name, c in self._package.items()}
        return {"package_sha256": hashlib.sha256(json.dumps(about).encode()).hexdigest()}

    def score(self, result: Result) -> float:
        """The bytes that a linker keeps for the module.

        Raises:
            ModuleError: the package has no such module.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        place = self._places.get(result.module)
        if place is None:
            raise ModuleError(result.module, "expected a module of the package that is linked")
        new, old = Code.of(result), self._package[result.module]
        names = old.comdat_bytes.keys() | new.comdat_bytes.keys()
        return new.own_bytes + sum(self._kept_bytes(name, place, new) for name in names)

    def _kept_bytes(self, group: str, place: int, new: Code) -> int:
        others = [owner for owner in self._owners.get(group, ()) if owner[0] != place]
        if others and others[0][0] < place:
            return 0
        if group in new.comdat_bytes:
            return new.comdat_bytes[group]
        return others[0][1] if others else 0


class SectionsUnit(KeptObjectUnit):
    """A module that is compiled as for a linker that drops and folds functions.

    That is with ``-ffunction-sections -fdata-sections -faddrsig``, whatever its command says.
    """

    @classmethod
    def options_for(cls, options: CompileOptions) -> CompileOptions:
        """Add the sections."""
        return options.with_sections()


class LinkedTextGc(Measure):
    """The code that a linker keeps of a module after ``--gc-sections``.

    The package's other objects are as they are. Two scores of a module differ as the linked package
    does (`linked_sizes`).

    Args:
        package: the objects of the package by module, in the linker's order.
        exports: patterns of the symbols that are exported, as in `linked_sizes`.

    Raises:
        ModuleError: an object is not ELF.

    >>> LinkedTextGc({}).key
    'linked_text_gc_bytes'
    """

    unit: type[Unit] = SectionsUnit
    unit_in_mix: ClassVar[type[Unit]] = SectionsUnit
    key: str = "linked_text_gc_bytes"
    title: str = "linked, gc"
    meaning: str = "bytes of code that a linker keeps of the module after --gc-sections"
    folds: ClassVar[bool] = False

    def __init__(self, package: Mapping[str, bytes], exports: Sequence[str] = ("*",)) -> None:
        self._exports: Final = tuple(exports)
        self._package: Final = {name: _read(name, data) for name, data in package.items()}
        self._places: Final = {name: place for place, name in enumerate(package)}
        self._digest: Final = hashlib.sha256(b"".join(package.values())).hexdigest()
        self._shares: Final = self._linked(self._package) if package else np.zeros(0)
        self._known: dict[tuple[str, str], float] = {}

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> LinkedTextGc:
        """Compile the package's objects."""
        return cls(setting.once(_objects), setting.exports)

    def context(self) -> dict[str, str]:
        """The hash of the package's objects, and what a program exports."""
        exports = {} if self._exports == ("*",) else {"exports": " ".join(self._exports)}
        return {"objects_sha256": self._digest, **exports}

    def score(self, result: Result) -> float:
        """The bytes that are kept of the module, and what it makes the others keep.

        Raises:
            ModuleError: the package has no such module, or its object is not ELF.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        known = result.module, result.object_sha256
        if known not in self._known:
            self._known[known] = self._score(result.module, result.object_bytes)
        return self._known[known]

    def _score(self, module: str, data: bytes | None) -> float:
        if data is None:
            raise InternalError(f"{self.key}: expected a result with its object, found {module!r}")
        place = self._places.get(module)
        if place is None:
            raise ModuleError(module, "expected a module of the package that is linked")
        change = self._linked(self._package | {module: _read(module, data)}).sum()
        return max(0.0, float(self._shares[place] + change - self._shares.sum()))

    def _linked(self, package: Mapping[str, ElfObject]) -> NDArray[Any]:
        return Link(list(package.values()), self._exports).shares(folded=self.folds)


class LinkedTextIcf(LinkedTextGc):
    """The code that a linker keeps of a module after ``--gc-sections --icf=safe``.

    >>> LinkedTextIcf({}).key
    'linked_text_icf_bytes'
    """

    key: str = "linked_text_icf_bytes"
    title: str = "linked, icf"
    meaning: str = "bytes of code that a linker keeps of the module after --gc-sections --icf=safe"
    folds: ClassVar[bool] = True


def _objects(setting: MeasureSetting) -> dict[str, bytes]:
    return _of_package(setting, _object_of)


def _of_package(
    setting: MeasureSetting, work: Callable[[MeasureSetting, Compiler, str], _Made]
) -> dict[str, _Made]:
    """Return what comes of each module of the package that can be compiled."""
    compiler = partial(Compiler, timeout_s=setting.timeout_s)
    made = partial(work, setting)
    done = each(setting.corpus, made, compiler, jobs=setting.jobs, in_order=True)
    return {one.item: one.value for one in done if not one.error}


def _code_of(setting: MeasureSetting, compiler: Compiler, name: str) -> Code:
    return Code.of(_compiled(setting, compiler, name))


def _object_of(setting: MeasureSetting, compiler: Compiler, name: str) -> bytes:
    return _compiled(setting, compiler, name, with_sections=True).object_bytes or b""


def _compiled(
    setting: MeasureSetting, compiler: Compiler, name: str, *, with_sections: bool = False
) -> CompilationResult:
    module = setting.corpus[name]
    options = options_of(module, setting.opt_level)
    options = options.with_sections() if with_sections else options
    problem, policy = setting.policy or (None, None)
    return compiler.compile_module(
        module, options, problem=problem, policy=policy, keep_object=with_sections
    )


def _read(module: str, data: bytes) -> ElfObject:
    try:
        return ElfObject.read(data)
    except ValueError as error:
        raise ModuleError(module, f"linked_text_gc, linked_text_icf: {error}") from error
