"""Collecting a profile: a corpus's workloads, instrumented, run, and their counts added up.

Modules are instrumented as they are in the corpus, before any optimisation, and their code is not
optimised, so that a program is some ten times slower than otherwise. It runs in the sandbox that
all workloads run in, and hands its counts over through a descriptor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from corpus_tools.errors import CompileError
from corpus_tools.profdata import LINK_FLAGS, ProfileTools
from corpus_tools.scratch import scratch_folder
from corpus_tools.workloads import Workload
from mlgo_gym.base import ModuleError, ProfileError
from mlgo_gym.corpus import Corpus, Module
from mlgo_gym.lab.programs._file import ProfileFile, counters_of
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.lab.programs._running import Way, run_program, wrong

_COUNTED: Final = Way(
    environment={"LLVM_PROFILE_FILE": "/proc/self/fd/{log}"},
    slowdown=20,
    more_bytes=1 << 28,
)


@dataclass(frozen=True, slots=True)
class Collected:
    """A profile, and how it was collected.

    Attributes:
        profile: the counts of one run of each workload, added up.
        unstable: how many functions have other counts in another run, by workload.
        atomic: counters were exact where threads share them.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> collect_profile(Corpus.load(SAMPLE_CORPUS)).warnings
    []
    """

    profile: ProfileFile
    unstable: Mapping[str, int]
    atomic: bool

    @property
    def warnings(self) -> list[str]:
        """Its faults, in words."""
        why = (
            "what they execute differs, too"
            if self.atomic
            else "threads that share counters lose counts, unless they are atomic"
        )
        return [
            f"workload {name!r}: expected the same counts of two runs, found others in "
            f"{functions} functions; {why}"
            for name, functions in self.unstable.items()
        ]


def collect_profile(
    corpus: Corpus,
    names: Sequence[str] = (),
    *,
    atomic: bool = False,
    jobs: int = 1,
) -> Collected:
    """Run a corpus's workloads with instrumented modules, and add up how often their code ran.

    Each runs twice, which shows whether its counts can be relied on.

    Args:
        corpus: whose.
        names: which workloads; all, where none are named.
        atomic: counters are exact where threads share them; otherwise increments get lost.
        jobs: how many modules are instrumented at once.

    Raises:
        WorkloadError: a workload cannot be used, or its program does something else than it must.
        ModuleError: clang cannot instrument a module, or it has counts already.
        ToolchainError: a tool of LLVM's is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> collect_profile(Corpus.load(SAMPLE_CORPUS)).profile.name
    'that of json'
    """
    with Programs(corpus, names) as programs, scratch_folder() as folder:
        tools = ProfileTools.find(programs.clang)
        tools.check_runtime()
        linked = dict.fromkeys(
            itertools.chain.from_iterable(map(programs.modules, programs.workloads))
        )
        instrument = partial(tools.instrument, atomic=atomic)

        def make(item: tuple[int, str]) -> Path:
            number, name = item
            return _instrumented(corpus[name], instrument, folder / f"module.{number}.o")

        with ThreadPoolExecutor(jobs) as threads:
            objects = dict(zip(linked, threads.map(make, enumerate(linked)), strict=True))
        profiles, unstable = [], {}
        for name, workload in programs.workloads.items():
            path = folder / f"{name}.profdata"
            first, second = (
                ProfileFile(f"that of {name}", _merged(tools, name, [each]))
                for each in _ran_twice(workload, programs, objects, folder)
            )
            if first.data != second.data and (differing := _differing(first, second)):
                unstable[name] = differing
            path.write_bytes(first.data)
            profiles.append(path)
        name = ", ".join(programs.workloads)
        profile = ProfileFile(f"that of {name}", _merged(tools, name, profiles))
        return Collected(profile, unstable, atomic)


def _instrumented(module: Module, instrument: Callable[[Path, str], bytes], made: Path) -> Path:
    """The object of a module."""
    if module.has_profile:  # by which other edges would get counters than without
        problem = "expected a module without a profile, found one with counts"
        raise ModuleError(module.name, problem)
    bitcode = made.with_suffix(".bc")
    bitcode.write_bytes(module.data)
    try:
        made.write_bytes(instrument(bitcode, module.name))
    except CompileError as error:
        raise ModuleError(module.name, f"cannot be instrumented: {error}") from error
    bitcode.unlink()
    return made


def _ran_twice(
    workload: Workload, programs: Programs, objects: Mapping[str, Path], folder: Path
) -> list[Path]:
    """The raw profiles of two runs."""
    linked = [objects[name] for name in programs.modules(workload.name)]
    found = []
    with programs.linked_objects(workload, linked, LINK_FLAGS) as program:
        for number in range(2):
            counted = run_program(workload, program, _COUNTED).log
            if not counted:
                problem = "expected counts at its end, found none: it ends without exit()"
                raise wrong(workload, problem)
            found.append(folder / f"{workload.name}.{number}.profraw")
            found[-1].write_bytes(counted)
    return found


def _differing(first: ProfileFile, second: ProfileFile) -> int:
    """How many functions have other counts in the second profile."""
    one, other = counters_of(first), counters_of(second)
    return sum(one.get(each) != other.get(each) for each in one.keys() | other.keys())


def _merged(tools: ProfileTools, name: str, profiles: Sequence[Path]) -> bytes:
    try:
        return tools.merge(profiles)
    except CompileError as error:
        raise ProfileError(f"that of {name}", f"cannot be merged: {error}") from error
