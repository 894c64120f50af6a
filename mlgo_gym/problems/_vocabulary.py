"""Vocabularies of IR2Vec: what LLVM adds up for each instruction of a function.

One is a JSON file (``llvm/lib/Analysis/models/seedEmbeddingVocab75D.json`` in LLVM's tree)::

    {"Opcodes": {"Add": [0.1, ...], ...}, "Types": {"IntegerTy": [...], ...},
     "Arguments": {"Constant": [...], ...}}

with one vector of one dimension for each name. An embedding of a function is the sum over its
instructions: the opcode's vector, half of that of the type, and a fifth of that of each argument
(``llvm/lib/Analysis/IR2Vec.cpp``). What a vocabulary does not name counts for nothing.

It may be a stranger's. It is read within bounds, and LLVM, which ends the process over what it does
not like, is handed the numbers that were read, written anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import SHIPPED, OptionsError, parse_json, read_bounded

SECTIONS: Final = ("Opcodes", "Types", "Arguments")
MAX_BYTES: Final = 1 << 23
"""The largest file that is read; LLVM's own has 91 kB."""
MAX_DIMENSION: Final = 4096
_LARGEST: Final = 1e30
"""Far from where sums leave the range of a float32."""
_SHOWN: Final = 40

# fmt: off
OPCODES: Final = (
    "Ret", "Br", "Switch", "IndirectBr", "Invoke", "Resume", "Unreachable", "CleanupRet",
    "CatchRet", "CatchSwitch", "CallBr", "FNeg", "Add", "FAdd", "Sub", "FSub", "Mul", "FMul",
    "UDiv", "SDiv", "FDiv", "URem", "SRem", "FRem", "Shl", "LShr", "AShr", "And", "Or", "Xor",
    "Alloca", "Load", "Store", "GetElementPtr", "Fence", "AtomicCmpXchg", "AtomicRMW", "Trunc",
    "ZExt", "SExt", "FPToUI", "FPToSI", "UIToFP", "SIToFP", "FPTrunc", "FPExt", "PtrToInt",
    "PtrToAddr", "IntToPtr", "BitCast", "AddrSpaceCast", "CleanupPad", "CatchPad", "ICmp", "FCmp",
    "PHI", "Call", "Select", "UserOp1", "UserOp2", "VAArg", "ExtractElement", "InsertElement",
    "ShuffleVector", "ExtractValue", "InsertValue", "LandingPad", "Freeze",
)
TYPES: Final = (
    "FloatTy", "VoidTy", "LabelTy", "MetadataTy", "VectorTy", "TokenTy", "IntegerTy",
    "FunctionTy", "PointerTy", "StructTy", "ArrayTy", "UnknownTy",
)
ARGUMENTS: Final = ("Function", "Pointer", "Constant", "Variable")
# fmt: on

_Vectors = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary that LLVM computes embeddings by; equal where the files are.

    Attributes:
        name: a preset's, or the path it was read from.
        sha256: the hash of the file that was read, in hexadecimal digits.
        dimension: how many numbers an embedding has.
        data: what LLVM is handed.

    Raises:
        OptionsError: of methods, the file cannot be read, or is no vocabulary; the message says
            where.

    >>> [Vocabulary.of(name).dimension for name in ("ones", "one-hot", "seed-75")]
    [1, 80, 75]
    """

    name: str = field(compare=False)
    sha256: str
    dimension: int
    data: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, given: str | Path | Vocabulary) -> Vocabulary:
        """A vocabulary by a preset's name, or by a file's path; ``./ones`` is a file.

        ``ones`` counts instructions: an embedding is the size of the function. ``one-hot`` counts
        each of `OPCODES`, then each of `TYPES`. ``seed-75`` is trained, and ships.
        """
        if isinstance(given, Vocabulary):
            return given
        if not isinstance(given, str | Path):
            raise OptionsError(
                f"ir2vec: expected a vocabulary's path, or one of {', '.join(PRESETS)}, "
                f"found {given!r}"
            )
        if isinstance(given, str) and given in PRESETS:
            return cls.parse(PRESETS[given](), given)
        try:
            data = read_bounded(Path(given), MAX_BYTES)
        except OSError as error:
            raise OptionsError(f"ir2vec: {given}: cannot be read: {error.strerror}") from error
        return cls.parse(data, str(given))

    @classmethod
    def parse(cls, data: bytes, name: str) -> Vocabulary:
        """The vocabulary that a file holds, which errors call by this name."""
        try:
            value = parse_json(data)
        except ValueError as error:
            raise OptionsError(f"ir2vec: {name}: expected JSON: {error}") from error
        vectors = _sections(value, name)
        dimension = _dimension(vectors, name)
        digest = hashlib.sha256(data).hexdigest()
        return cls(name, digest, dimension, _written(vectors))

    @property
    def counts(self) -> bool:
        """Whether it counts instructions, of one kind or of several."""
        return self.name in _COUNTING

    def settings(self) -> dict[str, str | float]:
        """Return its name, which decides nothing, and its hash, for the record."""
        return {"ir2vec": self.name, "ir2vec_sha256": self.sha256}


def _sections(value: Any, name: str) -> _Vectors:
    if not isinstance(value, dict):
        raise _error(name, f"expected an object with {', '.join(SECTIONS)}", value)
    for section in SECTIONS:
        if not isinstance(value.get(section), dict) or not value[section]:
            found = value.get(section)
            raise _error(f"{name}: {section}", "expected an object of vectors by name", found)
    return {
        section: {
            key: _vector(vector, f"{name}: {section}: {key[:_SHOWN]!r}")
            for key, vector in value[section].items()
        }
        for section in SECTIONS
    }


def _vector(value: Any, where: str) -> list[float]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_DIMENSION:
        found = f"{len(value)} of them" if isinstance(value, list) else value
        raise _error(where, f"expected a list of 1 to {MAX_DIMENSION} numbers", found)
    for each in value:
        is_number = isinstance(each, int | float) and not isinstance(each, bool)
        if not is_number or not abs(each) <= _LARGEST:
            raise _error(where, f"expected numbers of at most {_LARGEST:g}", each)
    return [float(each) for each in value]


def _dimension(vectors: _Vectors, name: str) -> int:
    dimension = len(next(iter(vectors[SECTIONS[0]].values())))
    for section, of in vectors.items():
        for key, vector in of.items():
            if len(vector) != dimension:
                where = f"{name}: {section}: {key[:_SHOWN]!r}"
                raise _error(where, f"expected {dimension} numbers as before", len(vector))
    return dimension


def _error(where: str, expected: str, found: object) -> OptionsError:
    text = found if isinstance(found, str) else repr(found)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return OptionsError(f"ir2vec: {where}: {expected}, found {text}")


def _written(vectors: _Vectors) -> bytes:
    return json.dumps(vectors, allow_nan=False).encode()


def _ones() -> bytes:
    vectors = {
        "Opcodes": {name: [1.0] for name in OPCODES},
        "Types": {name: [0.0] for name in TYPES},
        "Arguments": {name: [0.0] for name in ARGUMENTS},
    }
    return _written(vectors)


def _one_hot() -> bytes:
    places = {name: place for place, name in enumerate((*OPCODES, *TYPES))}

    def vector(name: str, value: float) -> list[float]:
        return [value if place == places[name] else 0.0 for place in range(len(places))]

    vectors = {
        "Opcodes": {name: vector(name, 1.0) for name in OPCODES},
        "Types": {name: vector(name, 1 / _TYPE_WEIGHT) for name in TYPES},
        "Arguments": {name: [0.0] * len(places) for name in ARGUMENTS},
    }
    return _written(vectors)


def _shipped() -> bytes:
    return read_bounded(SHIPPED / _SEED_75, MAX_BYTES)


_TYPE_WEIGHT: Final = 0.5
"""LLVM's ``-ir2vec-type-weight``."""

_COUNTING: Final = ("ones", "one-hot")
_SEED_75: Final = Path("ir2vec") / "seed-75.json"

PRESETS: Final[Mapping[str, Callable[[], bytes]]] = MappingProxyType(
    {"ones": _ones, "one-hot": _one_hot, _SEED_75.stem: _shipped}
)
"""Vocabularies that are found by name: those that count, and the one that ships."""
