"""Collecting a profile: a corpus's workloads, instrumented, run once each, their counts added up.

Modules are instrumented as they are in the corpus, before any optimisation, and their code is not
optimised, so that a program is some ten times slower than otherwise. It runs in the sandbox that
all workloads run in, and hands its counts over through a descriptor.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from corpus_tools.errors import CompileError
from corpus_tools.profdata import LINK_FLAGS, ProfileTools
from corpus_tools.scratch import scratch_folder
from corpus_tools.workloads import Workload
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import ModuleError, ProfileError
from mlgo_gym.profiles._file import ProfileFile
from mlgo_gym.workloads._program import Programs
from mlgo_gym.workloads._running import Way, run_program, wrong

_COUNTED: Final = Way(
    environment={"LLVM_PROFILE_FILE": "/proc/self/fd/{log}"},
    slowdown=20,
    more_bytes=1 << 28,
)


def collect_profile(
    corpus: Corpus,
    names: Sequence[str] = (),
    *,
    atomic: bool = False,
    jobs: int = 1,
) -> ProfileFile:
    """Run a corpus's workloads with instrumented modules, and add up how often their code ran.

    Args:
        corpus: whose.
        names: which workloads; all, where none are named.
        atomic: counters are exact where threads share them; otherwise increments get lost.
        jobs: how many modules are instrumented at once.

    Raises:
        WorkloadError: a workload cannot be used, or its program does something else than it must.
        ModuleError: clang cannot instrument a module.
        ToolchainError: a tool of LLVM's is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> collect_profile(Corpus.load(SAMPLE_CORPUS)).name
    'that of json'
    """
    with Programs(corpus, names) as programs, scratch_folder() as folder:
        tools = ProfileTools.find(programs.clang)
        tools.check_runtime()
        linked = itertools.chain.from_iterable(map(programs.modules, programs.workloads))
        objects = _instrumented(corpus, list(dict.fromkeys(linked)), tools, folder, jobs, atomic)
        raw = [
            _ran(workload, programs, objects, folder) for workload in programs.workloads.values()
        ]
        name = f"that of {', '.join(programs.workloads)}"
        try:
            return ProfileFile(name, tools.merge(raw))
        except CompileError as error:
            raise ProfileError(name, f"cannot be merged: {error}") from error


def _instrumented(
    corpus: Corpus,
    names: Sequence[str],
    tools: ProfileTools,
    folder: Path,
    jobs: int,
    atomic: bool,
) -> dict[str, Path]:
    """The objects of modules, by their names."""

    def instrument(item: tuple[int, str]) -> Path:
        number, name = item
        bitcode, made = folder / f"module.{number}.bc", folder / f"module.{number}.o"
        bitcode.write_bytes(corpus[name].data)
        try:
            made.write_bytes(tools.instrument(bitcode, name, atomic=atomic))
        except CompileError as error:
            raise ModuleError(name, f"cannot be instrumented: {error}") from error
        bitcode.unlink()
        return made

    with ThreadPoolExecutor(jobs) as threads:
        return dict(zip(names, threads.map(instrument, enumerate(names)), strict=True))


def _ran(workload: Workload, programs: Programs, objects: Mapping[str, Path], folder: Path) -> Path:
    """The raw profile of one run."""
    linked = [objects[name] for name in programs.modules(workload.name)]
    with programs.linked_objects(workload, linked, LINK_FLAGS) as program:
        counted = run_program(workload, program, _COUNTED).log
    if not counted:
        raise wrong(workload, "expected counts at its end, found none: it ends without exit()")
    path = folder / f"{workload.name}.profraw"
    path.write_bytes(counted)
    return path
