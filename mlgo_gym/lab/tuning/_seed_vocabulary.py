"""Vocabularies of IR2Vec out of corpora: seed embeddings by TransE.

Bordes et al., Translating Embeddings for Modeling Multi-relational Data (2013): every name and
every relation is a vector, and of each triplet that there is, head and relation add up to nearly
the tail, nearer by a margin than where another name stands in for head or tail. Each different
triplet is taken once an epoch, by a weight that grows with the logarithm of how often it is there,
so that what is rare is learnt, too. Names' vectors have length 1; a name that no triplet has is
zeros, and counts for nothing.

Triplets say which opcode follows which, has which type and takes what. ``llvm-ir2vec triplets``
(``llvm/tools/llvm-ir2vec`` in LLVM's tree) prints, for a module::

    MAX_RELATION=3
    HEAD TAB TAIL TAB RELATION
    ...

where relation 0 leads from an opcode to its type, 1 to the opcode that comes next, and 2, 3, ... to
the kinds of its first argument, its second, ...; ``llvm-ir2vec entities`` prints which number is
which name of a vocabulary.

Modules may be a stranger's. The tool gets their bytes in a pipe, behind the fence of clang's
driver: it can start nothing and write nothing but its answer. That, its memory and its time are
bounded.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from corpus_tools.bitcode import is_bitcode
from corpus_tools.children import Guarded, bound, start_alone
from mlgo_gym.base import EnvironmentSetupError, ModuleError, OptionsError, TrainingError
from mlgo_gym.corpus import Module, Packages, check_not_final
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    LLVM_MAJOR,
    Jobs,
    Limits,
    each,
    lack_of_memory,
    peak_bytes,
)
from mlgo_gym.problems import ARGUMENTS, MAX_DIMENSION, OPCODES, SECTIONS, TYPES, Vocabulary
from mlgo_gym.rollout import Failure
from mlgo_gym.training import check_lasting, describe, successes

MAX_OUTPUT_BYTES: Final = 1 << 28
"""The longest answer of the tool; a million instructions are about 40 MiB."""
LAST_RELATION: Final = 33
"""The relation of the 32nd argument and of all behind it: a call may have any number."""
DEADLINE_S: Final = 60.0
"""The time in which the tool has to say what it is."""
CANDIDATES: Final = (f"llvm-ir2vec-{LLVM_MAJOR}", "llvm-ir2vec")

_VERSION: Final = re.compile(r"LLVM version (\d+)(\.[\d.]+)")
_CHUNK_BYTES: Final = 1 << 20
_WORDS: Final = 2000
_SET_VARIABLES: Final = MappingProxyType({"LC_ALL": "C", "LLVM_DISABLE_SYMBOLIZATION": "1"})

Triplet = tuple[int, int, int]
"""Head, tail and relation."""

_NAMES: Final = dict(zip(SECTIONS, (OPCODES, TYPES, ARGUMENTS), strict=True))
_MARGIN: Final = 1.0
_LEARNING_RATE: Final = 0.01
_BATCH: Final = 128
_DIGITS: Final = 5
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class TripletTool:
    """LLVM's ``llvm-ir2vec``: where it is, its LLVM's version, and which number is which name."""

    path: Path
    version: str
    names: Mapping[int, str]

    @classmethod
    def find(cls) -> TripletTool:
        """The first of `CANDIDATES` on PATH."""
        program = next(filter(None, map(shutil.which, CANDIDATES)), None)
        if program is None:
            raise _missing("none")
        version = _VERSION.search(_said(program, "--version"))
        if version is None or int(version[1]) != LLVM_MAJOR:
            raise _missing(f"{program} of {version[0] if version else 'no known LLVM'}")
        lines = (line.split("\t") for line in _said(program, "entities").splitlines()[1:])
        names = {int(number): name for name, number in lines}
        return cls(Path(program), version[1] + version[2], MappingProxyType(names))


def _missing(found: str) -> EnvironmentSetupError:
    return EnvironmentSetupError(
        f"vocabulary: expected llvm-ir2vec of LLVM {LLVM_MAJOR} on PATH, found {found}; on Debian "
        f"or Ubuntu: apt-get install llvm-{LLVM_MAJOR}"
    )


def _said(program: str, argument: str) -> str:
    try:
        return subprocess.run(
            [program, argument], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise _missing(f"{program}, which does not run: {error}") from error


class TripletRun:
    """Runs the tool on one module after the other: what a worker keeps."""

    def __init__(self, program: Path, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._limits = Limits(peak_bytes(None))
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def interrupt(self) -> None:
        """End what is under way."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Nothing is kept."""

    def count(self, module: Module) -> Counter[Triplet]:
        """The triplets of a module, and how often each is there."""
        if not is_bitcode(module.data):
            raise ModuleError(module.name, "expected bitcode, found something else")
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as words:
            status = self._run(module, output, words)
            if status:
                words.seek(0)
                text = words.read(_WORDS).decode("utf-8", "replace").strip()
                raise ModuleError(module.name, self._reason(status, text))
            output.seek(0)
            return _counted(output, module.name)

    def _run(self, module: Module, output: IO[bytes], words: IO[bytes]) -> int:
        def start() -> subprocess.Popen[bytes]:
            return Guarded(
                [str(self._program), "triplets", "-"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=words,
                env={**os.environ, **_SET_VARIABLES},
            )

        with start_alone(self._program, start) as process:
            self._process = process
            try:
                bound(process.pid, self._bounds())
                if not self._is_over:
                    process.communicate(module.data, self._timeout_s)
            except subprocess.TimeoutExpired as error:
                reason = f"not done within {self._timeout_s:g} s; --timeout lifts the limit"
                raise ModuleError(module.name, f"llvm-ir2vec: {reason}") from error
            finally:
                process.kill()
                self._process = None
        return process.returncode

    def _bounds(self) -> dict[int, int]:
        """What it may take: it reads what it is not to trust."""
        return {
            resource.RLIMIT_DATA: int(self._limits.peak_bytes),
            resource.RLIMIT_FSIZE: MAX_OUTPUT_BYTES,
            resource.RLIMIT_CORE: 0,
        }

    def _reason(self, status: int, words: str) -> str:
        if status == -signal.SIGXFSZ:
            most = f"{MAX_OUTPUT_BYTES} bytes"
            return f"llvm-ir2vec: expected at most {most} of triplets, found more"
        if lack := lack_of_memory(words, self._limits):
            return f"llvm-ir2vec: {lack}"
        first = words.partition("\n")[0]  # of a crash, what follows has addresses
        return f"llvm-ir2vec ended with status {status}: {first}"


def _counted(file: IO[bytes], module: str) -> Counter[Triplet]:
    counts: Counter[Triplet] = Counter()
    file.readline()  # the number of relations
    while lines := file.readlines(_CHUNK_BYTES):
        for line, count in Counter(lines).items():
            try:
                head, tail, relation = map(int, line.split(b"\t"))
            except ValueError as error:
                raise ModuleError(module, f"llvm-ir2vec: no triplet: {line[:40]!r}") from error
            counts[head, tail, min(relation, LAST_RELATION)] += count
    return counts


_Floats = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SeedConfig:
    """How a vocabulary is trained.

    Attributes:
        dimension: how many numbers a vector has.
        epochs: how often each different triplet is taken.
        seed: of everything random.
    """

    dimension: int = 75
    epochs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSION:
            expected = f"a number from 1 to {MAX_DIMENSION}"
            raise OptionsError(f"dimension: expected {expected}, found {self.dimension}")
        if self.epochs < 1:
            raise OptionsError(f"epochs: expected a number above 0, found {self.epochs}")


@dataclass(frozen=True, slots=True)
class TrainedVocabulary:
    """A vocabulary's file, as LLVM takes it, and a card that says how it was made."""

    data: bytes
    card: Mapping[str, Any]


def train_vocabulary(
    packages: Packages,
    config: SeedConfig,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warn: Callable[[str], None] = lambda _: None,
    doing: Callable[[str], None] = lambda _: None,
) -> TrainedVocabulary:
    """Train a vocabulary on the modules of corpora, as they are there.

    The same modules and settings make the same bytes again, whatever the jobs.

    Args:
        packages: the modules.
        config: how it is trained.
        jobs: how many modules are read at once.
        timeout_s: for the tool's work on one module.
        warn: told what could not be read; the others go on.
        doing: told what is done.
    """
    check_not_final(packages, "to train on")
    tool = TripletTool.find()
    left_out: list[str] = []

    def leave_out(failure: Failure) -> None:
        check_lasting(failure)
        message = str(failure)
        left_out.append(message)
        warn(f"{message}; left out")

    counts = _count(packages, tool, leave_out, doing, jobs=jobs, timeout_s=timeout_s)
    if not counts:
        raise TrainingError(f"vocabulary: expected triplets, found none in {len(packages)} modules")
    made = _TransE(counts, config)
    for epoch in range(config.epochs):
        loss = made.epoch()
        doing(f"epoch {epoch + 1}: loss {loss:.3f}")
    data = _written(made, tool.names)
    card = {
        "command": shlex.join(["mlgo-gym", *sys.argv[1:]]),
        "llvm_version": tool.version,
        "trained_on": describe(packages),
        "left_out": sorted(left_out),
        "triplets": sum(counts.values()),
        "different_triplets": len(counts),
        "method": "TransE",
        **asdict(config),
        "mean_rank": round(made.mean_rank(), 3),
        "sha256": Vocabulary.parse(data, "vocabulary").sha256,
    }
    return TrainedVocabulary(data, card)


def _count(
    packages: Packages,
    tool: TripletTool,
    warn: Callable[[Failure], None],
    doing: Callable[[str], None],
    **how: Any,
) -> Counter[Triplet]:
    """The triplets of all modules between names that a vocabulary has."""
    state = partial(TripletRun, tool.path, how.pop("timeout_s"))
    total: Counter[Triplet] = Counter()
    read, size = packages.file, packages.size_bytes
    found = each(packages, TripletRun.count, state, read=read, size=size, **how)
    for done, (_, counts) in enumerate(successes(found, warn), 1):
        total.update(counts)
        doing(f"{done} of {len(packages)} modules")
    known = {name for names in _NAMES.values() for name in names}
    numbers = {number for number, name in tool.names.items() if name in known}
    return Counter({key: n for key, n in total.items() if {key[0], key[1]} <= numbers})


def _written(made: _TransE, names: Mapping[int, str]) -> bytes:
    """LLVM's JSON; rounded, so that it does not depend on how a CPU adds up the last digit."""
    rounded = np.round(made.vectors, _DIGITS) + 0.0  # no negative zeros
    found = {
        names[number]: vector.tolist() for number, vector in zip(made.numbers, rounded, strict=True)
    }
    zeros = [0.0] * made.vectors.shape[1]
    sections = {
        section: {name: found.get(name, zeros) for name in known}
        for section, known in _NAMES.items()
    }
    return json.dumps(sections, allow_nan=False).encode()


class _TransE:
    """The vectors, and the triplets that move them.

    Attributes:
        numbers: of the names that triplets have, in order.
        vectors: of these, in rows.
    """

    def __init__(self, counts: Mapping[Triplet, int], config: SeedConfig) -> None:
        triplets = np.array(sorted(counts))
        numbers, places = np.unique(triplets[:, :2], return_inverse=True)
        self.numbers: list[int] = numbers.tolist()
        self._heads, self._tails = places.reshape(-1, 2).T
        relations, self._relations = np.unique(triplets[:, 2], return_inverse=True)
        self._is_known = np.zeros((len(relations), len(numbers), len(numbers)), bool)
        self._is_known[self._relations, self._heads, self._tails] = True
        weights = 1 + np.log([counts[head, tail, each] for head, tail, each in triplets.tolist()])
        self._weights: _Floats = weights / weights.mean()
        self._random = np.random.default_rng(config.seed)
        shapes = ((len(each), config.dimension) for each in (numbers, relations))
        self.vectors, self._translations = (
            _unit(self._random.uniform(-1, 1, shape)) for shape in shapes
        )

    def epoch(self) -> float:
        """Take every triplet once, in a random order; the loss is a weighted mean."""
        order = self._random.permutation(len(self._heads))
        losses = [
            self._step(order[start : start + _BATCH]) for start in range(0, len(order), _BATCH)
        ]
        self.vectors = _unit(self.vectors)
        return sum(losses) / len(order)

    def mean_rank(self) -> float:
        """Return the mean rank of the right tail by distance among wrong ones; 1 is best.

        The mean is over the triplets as often as they weigh.
        """
        expected = self.vectors[self._heads] + self._translations[self._relations]
        distances = np.linalg.norm(expected[:, None] - self.vectors, axis=2)
        own = np.take_along_axis(distances, self._tails[:, None], 1)
        is_nearer = (distances < own) & ~self._is_known[self._relations, self._heads]
        return float(np.average(1 + is_nearer.sum(axis=1), weights=self._weights))

    def _step(self, batch: _Indices) -> float:
        """Move what a batch of triplets is of; the sum of its losses."""
        self.vectors = _unit(self.vectors)
        heads, tails, relations = (
            each[batch] for each in (self._heads, self._tails, self._relations)
        )
        other = self._random.integers(len(self.vectors), size=len(batch))
        is_head = self._random.random(len(batch)) < 0.5
        wrong_heads, wrong_tails = np.where(is_head, other, heads), np.where(is_head, tails, other)
        pull, near = self._towards(heads, relations, tails)
        push, far = self._towards(wrong_heads, relations, wrong_tails)
        losses = _MARGIN + near - far
        counts = (losses > 0) & ~self._is_known[relations, wrong_heads, wrong_tails]
        weights = self._weights[batch] * counts
        pull, push = (_LEARNING_RATE * weights[:, None] * each for each in (pull, push))
        for places, moved in ((heads, -pull), (tails, pull), (wrong_heads, push)):
            np.add.at(self.vectors, places, moved)
        np.add.at(self.vectors, wrong_tails, -push)
        np.add.at(self._translations, relations, push - pull)
        return float((weights * losses).sum())

    def _towards(
        self, heads: _Indices, relations: _Indices, tails: _Indices
    ) -> tuple[_Floats, _Floats]:
        """From tails, the direction in which head and relation are, and how far."""
        apart = self.vectors[heads] + self._translations[relations] - self.vectors[tails]
        distances = np.linalg.norm(apart, axis=1)
        return apart / np.maximum(distances, _TINY)[:, None], distances


def _unit(vectors: _Floats) -> _Floats:
    lengths: _Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, _TINY)
