"""Meters: what a program is measured by, from outside; nothing is put into it.

Instructions are counted by valgrind's cachegrind, which runs the program on a processor of its
own making: the same program gives the same count whatever else the machine does. `Cost` is an
estimate of cycles, with caches and branches simulated: each instruction is one, each miss of a
first cache and each branch that is mispredicted 10 more, each miss of the last cache 100 more, as
KCachegrind's cycle estimation has it. The caches are always those of `_CACHES`, not the machine's.
Seconds are of the CPU, of the program alone; programs that are compared take turns. Where code lies
in memory can move them by more than what a policy changes, so each program is linked several times.
"""

from __future__ import annotations

import itertools
import os
import platform
import random
import re
import shutil
import statistics
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from corpus_tools.clang import find_clang
from corpus_tools.workloads import Workload
from mlgo_gym.base import EnvironmentSetupError, InternalError, OptionsError
from mlgo_gym.corpus import function_symbols, read_elf
from mlgo_gym.lab.programs._program import Program
from mlgo_gym.lab.programs._running import Way, end_programs, run_program

_CACHES: Final = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64")
_SLOWDOWN: Final = 100
_TOOL_BYTES: Final = 2 << 30
_WARM_UPS, _REPEATS, _REPEATS_OF_LAYOUTS = 1, 20, 3
_NAMES: Final = MappingProxyType(
    {
        "I refs": ("instructions",),
        "I1 misses": ("instruction_misses",),
        "LLi misses": ("instruction_last_misses",),
        "D refs": ("accesses", "loads", "stores"),
        "D1 misses": ("data_misses",),
        "LLd misses": ("data_last_misses",),
        "Branches": ("branches",),
        "Mispredicts": ("mispredicts",),
    }
)
"""Cachegrind's names of its counts, and ours: the sum first, then its parts."""
_COUNT: Final = re.compile(r"^==\d+== (\w[\w ]*):(.*)$", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^fn=(.+)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d[\d,]*")
_ARCHITECTURES: Final = MappingProxyType({"x86_64": "amd64", "aarch64": "arm64"})
COUNTS_LOGGED: Final = "/proc/self/fd/{log}"
"""Where counts go that are to be in a run's log."""
_FOLDERS: Final = ("libexec/valgrind", "lib/valgrind", "lib64/valgrind")

_OPTIONS: Final = (
    *("--dump-instr=yes", "--dump-line=no", "--compress-pos=no", "--compress-strings=no"),
)
_COST: Final = re.compile(rb"^(0x[0-9a-f]+) (\d+)$", re.MULTILINE)
_CALL: Final = re.compile(rb"^calls=.*\n.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """A meter's reading of a program.

    Attributes:
        value: in the meter's unit; less is better.
        samples: what it is the middle of, of a meter that repeats: of each run, or the median of
            each layout.
        again: as many of the same program, of whichever is the first: what they differ by is noise.
        layouts: how many layouts of the program were measured.
        details: what else was counted, by name.

    >>> Reading(702_312_004).value
    702312004
    """

    value: float
    samples: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    layouts: int = 1
    details: Mapping[str, int] = field(default_factory=dict)


class Meter(ABC):
    """Measures programs of one workload against each other.

    Attributes:
        name: what it is called.
        unit: of its readings.
        depends_on_layout: where code lies in memory changes what it says.

    >>> sorted(METERS)
    ['accesses', 'cost', 'instructions', 'seconds', 'size']
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    depends_on_layout: ClassVar[bool] = False

    @abstractmethod
    def read(
        self, workload: Workload, programs: Sequence[Program], *, jobs: int = 1
    ) -> list[Reading]:
        """Run programs that one workload describes, and measure each.

        Args:
            workload: what they are given, and what they must do.
            programs: which.
            jobs: how many run at once, where that changes nothing.

        Raises:
            WorkloadError: one of them did something else than it must.
            EnvironmentSetupError: a tool is missing.
        """


class Size(Meter):
    """The bytes of code of the corpus's modules in the program."""

    name: ClassVar[str] = "size"
    unit: ClassVar[str] = "bytes"

    def read(
        self,
        workload: Workload,  # noqa: ARG002
        programs: Sequence[Program],
        *,
        jobs: int = 1,  # noqa: ARG002
    ) -> list[Reading]:
        return [Reading(each.text_bytes) for each in programs]


class Instructions(Meter):
    """The instructions that the program executes, counted by cachegrind without its caches."""

    name: ClassVar[str] = "instructions"
    unit: ClassVar[str] = "instructions"
    options: ClassVar[tuple[str, ...]] = ("--cache-sim=no",)

    def read(
        self, workload: Workload, programs: Sequence[Program], *, jobs: int = 1
    ) -> list[Reading]:
        valgrind_tool()
        with ThreadPoolExecutor(jobs) as threads:
            counts = threads.map(partial(_known_counts, workload, options=self.options), programs)
            try:
                return [Reading(self.value(each), details=each) for each in counts]
            except (KeyboardInterrupt, SystemExit):
                end_programs()  # the pool waits for them
                raise

    def value(self, counts: Mapping[str, int]) -> int:
        """Return the value read off the counts of a run (`count`)."""
        return counts["instructions"]


class Cost(Instructions):
    """Cycles, estimated: ``Ir + 10 (I1m + D1m + Bm) + 100 (ILm + DLm)``."""

    name: ClassVar[str] = "cost"
    unit: ClassVar[str] = "estimated cycles"
    options: ClassVar[tuple[str, ...]] = ("--cache-sim=yes", "--branch-sim=yes", *_CACHES)

    def value(self, counts: Mapping[str, int]) -> int:
        first = counts["instruction_misses"] + counts["data_misses"]
        last = counts["instruction_last_misses"] + counts["data_last_misses"]
        return counts["instructions"] + 10 * (first + counts["mispredicts"]) + 100 * last


class Accesses(Cost):
    """The loads and stores that the program executes, counted as `Cost` is."""

    name: ClassVar[str] = "accesses"
    unit: ClassVar[str] = "loads and stores"

    def value(self, counts: Mapping[str, int]) -> int:
        return counts["accesses"]


class Seconds(Meter):
    """The seconds of the CPU that the program takes.

    Of programs with several layouts, the geometric mean over the layouts of the median of three
    runs; of others the median of all runs. Runs take turns, in an order that is drawn each round,
    after one round that does not count. All are on one processor, one at a time; a first program
    without further layouts runs twice a round.
    """

    name: ClassVar[str] = "seconds"
    unit: ClassVar[str] = "seconds"
    depends_on_layout: ClassVar[bool] = True

    def __init__(self, repeats: int | None = None) -> None:
        self._repeats = repeats
        self._random = random.Random(0)  # noqa: S311 (the order of runs is no secret)

    def read(
        self,
        workload: Workload,
        programs: Sequence[Program],
        *,
        jobs: int = 1,  # noqa: ARG002 (they would disturb each other)
    ) -> list[Reading]:
        if any(each.layouts for each in programs):
            return self._of_layouts(workload, programs)
        paths = [each.path for each in (*programs, programs[0])]
        *own, again = self._runs(workload, paths, self._repeats or _REPEATS)
        return [
            Reading(statistics.median(each), each, () if place else again)
            for place, each in enumerate(own)
        ]

    def _of_layouts(self, workload: Workload, programs: Sequence[Program]) -> list[Reading]:
        places = [[each.path, *each.layouts] for each in programs]
        paths = list(itertools.chain.from_iterable(places))
        runs = iter(self._runs(workload, paths, self._repeats or _REPEATS_OF_LAYOUTS))
        medians = [tuple(statistics.median(next(runs)) for _ in each) for each in places]
        return [
            Reading(statistics.geometric_mean(each), each, layouts=len(each)) for each in medians
        ]

    def _runs(
        self, workload: Workload, paths: Sequence[Path], repeats: int
    ) -> list[tuple[float, ...]]:
        """The seconds of each program's runs."""
        cpu = max(os.sched_getaffinity(0))
        samples: list[list[float]] = [[] for _ in paths]
        for round_ in range(_WARM_UPS + repeats):
            order = list(range(len(paths)))
            self._random.shuffle(order)
            for index in order:
                run = run_program(workload, paths[index], cpu=cpu)
                samples[index] += [run.cpu_s] if round_ >= _WARM_UPS else []
        return [tuple(each) for each in samples]


METERS: Final[Mapping[str, type[Meter]]] = MappingProxyType(
    {each.name: each for each in (Size, Instructions, Cost, Accesses, Seconds)}
)
"""The meters of programs, by name."""


def meter_named(name: str) -> Meter:
    """The meter of a name.

    Raises:
        OptionsError: there is none.

    >>> meter_named("cost").unit
    'estimated cycles'
    """
    if name not in METERS:
        raise OptionsError(f"meter: expected one of {', '.join(METERS)}, found {name!r}")
    return METERS[name]()


def check_tools(names: Iterable[str]) -> None:
    """Check that the tools for linking programs, and for the named meters, are installed.

    Raises:
        ToolchainError: there is no clang.
        EnvironmentSetupError: there is no valgrind.

    >>> check_tools(["size"])
    """
    find_clang()
    if any(issubclass(METERS[name], Instructions) for name in names):
        valgrind_tool()


def count(workload: Workload, program: Program, options: tuple[str, ...]) -> dict[str, int]:
    """Return cachegrind's counts of one run, by name."""
    log = run_program(workload, program.path, way_of(options)).log
    return _counts(log.decode(errors="replace"))


_known_counts: Final = lru_cache(maxsize=1 << 12)(count)


def executed_functions(workload: Workload, program: Program) -> frozenset[str]:
    """The names of the functions that a program executes, as its symbol table has them."""
    way = way_of(("--cache-sim=no", "--demangle=no"), counts=COUNTS_LOGGED, log="2")
    log = run_program(workload, program.path, way).log
    return frozenset(_FUNCTION.findall(log.decode(errors="replace")))


def valgrind_tool(name: str = "cachegrind") -> Path:
    """A tool that counts, which is part of valgrind."""
    tool = f"{name}-{_ARCHITECTURES.get(platform.machine(), platform.machine())}-linux"
    if found := shutil.which("valgrind"):
        folders = [Path(found).resolve().parent.parent / each for each in _FOLDERS]
        for folder in folders:
            if (folder / tool).is_file():
                return folder / tool
    raise EnvironmentSetupError(
        "valgrind: expected it, to count instructions, found none; on Debian or Ubuntu: "
        "apt-get install valgrind"
    )


def way_of(
    options: Sequence[str],
    *,
    name: str = "cachegrind",
    counts: str = "/dev/null",
    log: str = "{log}",
) -> Way:
    """How a tool of valgrind's runs a program; counts and messages go to files or descriptors."""
    tool = valgrind_tool(name)
    own = ("--command-line-only=yes", "--vgdb=no", f"--{name}-out-file={counts}")
    return Way(
        prefix=(str(tool), f"--tool={name}", *own, f"--log-fd={log}", *options),
        executable=(tool,),
        readable=(tool.parent,),
        environment={"VALGRIND_LAUNCHER": str(tool), "VALGRIND_LIB": str(tool.parent)},
        slowdown=_SLOWDOWN,
        more_bytes=_TOOL_BYTES,
    )


def _counts(log: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for what, numbers in _COUNT.findall(log):
        names = _NAMES.get(" ".join(what.split()), ())
        found = (int(each.replace(",", "")) for each in _NUMBER.findall(numbers))
        counts |= dict(zip(names, found, strict=False))
    if "instructions" not in counts:
        raise InternalError(f"cachegrind: expected its counts, found {log[-300:]!r}")
    return counts


class ExecutedFunction:
    """How often the instructions of a function are executed.

    Args:
        size_bytes: the size of its code.
        counts: how often, by the bytes from the function's start to the instruction.

    >>> ExecutedFunction(8, {0: 2, 4: 10}).within(0, 4)
    2
    """

    def __init__(self, size_bytes: int, counts: Mapping[int, int]) -> None:
        self.size_bytes: Final = size_bytes
        self._at: NDArray[np.int64] = np.array(sorted(counts), np.int64)
        numbers = [counts[each] for each in self._at.tolist()]
        self._sums: NDArray[np.int64] = np.cumsum([0, *numbers], dtype=np.int64)

    def within(self, start: int, end: int) -> int:
        """The executed instructions from a byte of the function to the one before another."""
        first, last = np.searchsorted(self._at, [start, end])
        return int(self._sums[last] - self._sums[first])


def executed_code(workload: Workload, program: Program) -> dict[str, ExecutedFunction]:
    """The functions of a program that have a name of their own, and how often all is executed.

    Several functions of one name, as static ones of several modules, cannot be told apart and are
    left out.

    Raises:
        WorkloadError: it did something else than it must.
        EnvironmentSetupError: valgrind is missing.
    """
    way = way_of(_OPTIONS, name="callgrind", counts=COUNTS_LOGGED, log="2")
    log = run_program(workload, program.path, way).log
    counts = Counter[int]()
    for address, count in _COST.findall(_CALL.sub(b"", log)):
        counts[int(address, 16)] += int(count)
    elf = read_elf(program.path.read_bytes())
    places: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for symbol in function_symbols(elf) if elf else ():
        places[str(symbol.name)].add((int(symbol.value), int(symbol.size)))
    found = {}
    for name, known in places.items():
        if len(known) == 1:
            ((start, size),) = known
            inside = range(start, start + size)
            found[name] = ExecutedFunction(
                size, {at - start: counts[at] for at in inside if at in counts}
            )
    return found
