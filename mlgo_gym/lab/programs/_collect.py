"""Collecting a profile: a corpus's workloads, instrumented, run, and their counts added up.

Modules are instrumented as they are in the corpus, before any optimisation, and their code is not
optimised, so that a program is some ten times slower than otherwise. It runs in the sandbox that
all workloads run in, and hands its counts over through a descriptor.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from corpus_tools.errors import CompileError
from corpus_tools.manifest import Manifest, write_json
from corpus_tools.profdata import LINK_FLAGS, ProfileTools
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.scratch import scratch_folder
from corpus_tools.staging import INFO_NAME, WORKLOAD_FILES, WORKLOADS, digests_of, staged_corpus
from corpus_tools.workloads import Workload
from mlgo_gym.base import ModuleError, ProfileError, read_bounded
from mlgo_gym.corpus import Corpus, Module, corpus_info
from mlgo_gym.curation import describe_module
from mlgo_gym.lab.programs._profiles import ProfileFile, counters_of, summary_of_profile
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.lab.programs._running import Way, run_program, wrong
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Compiler, Jobs, each

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


@dataclass(frozen=True, slots=True)
class Attached:
    """The outcome of attaching counts to the functions of modules.

    Attributes:
        counted: how many got counts.
        unknown: how many the profile does not know, which is so of code in no program that ran.
        mismatched: how many the profile knows with another control flow: it is of another build.

    >>> Attached(3, 1, 0) + Attached(1, 0, 1)
    Attached(counted=4, unknown=1, mismatched=1)
    """

    counted: int = 0
    unknown: int = 0
    mismatched: int = 0

    def __add__(self, other: Attached) -> Attached:
        return Attached(
            self.counted + other.counted,
            self.unknown + other.unknown,
            self.mismatched + other.mismatched,
        )


def attach_profile(
    corpus: Corpus,
    profile: ProfileFile,
    output: Path | str,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Attached]:
    """Write a corpus with a profile's counts in its bitcode; it appears whole or not at all.

    Names, command lines, workloads and what is known of the origin stay.

    Args:
        corpus: whose modules.
        profile: of these modules as they are, before optimisation.
        output: the new corpus.
        jobs: how many modules are worked on at once.
        timeout_s: how long LLVM may take for one, in seconds.
        progress: called when a module is done.

    Returns:
        What became of each module's functions.

    Raises:
        ModuleError: a module has a profile already, or LLVM refuses it.
        ProfileError: LLVM cannot read the profile, or no function gets counts of it.
        OutputError: the new corpus cannot be written there.
        ToolchainError: a tool of LLVM's is missing.

    >>> Attached(counted=10).mismatched
    0
    """
    tools = ProfileTools.find()
    with (
        staged_corpus(Path(output)) as staged,
        profile.at_hand() as counts,
        scratch_folder() as folder,
    ):
        summary_of_profile(profile)  # LLVM reads it

        def attach(compiler: Compiler, name: str) -> Attached:
            module = corpus[name]
            found, bitcode = _annotated(compiler, module, tools, counts, folder)
            made = staged / f"{name}.bc"
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(bitcode)
            return found

        compiler = partial(Compiler, timeout_s=timeout_s)
        found: dict[str, Attached] = {}
        with closing(each(corpus.names, attach, compiler, jobs=jobs, in_order=True)) as running:
            for done in running:
                found[done.item] = done.value
                progress()
        _check_fits(profile, corpus, found)
        _copy_rest(corpus, profile, staged)
    return found


def _annotated(
    compiler: Compiler, module: Module, tools: ProfileTools, counts: Path, folder: Path
) -> tuple[Attached, bytes]:
    before = describe_module(compiler, module)
    if before.profile.kind is not None:
        raise ModuleError(
            module.name, f"expected a module without a profile, found one: {before.profile.kind}"
        )
    bitcode = folder / f"{module.sha256}.bc"
    bitcode.write_bytes(module.data)
    try:
        annotated = tools.annotate(bitcode, counts, module.name)
    except CompileError as error:
        raise ModuleError(module.name, f"cannot be given counts: {error.last_line}") from error
    after = describe_module(compiler, Module(module.name, annotated.bitcode))
    counted = after.profile.functions_with_counts
    unknown = len(after.bodies) - counted - annotated.mismatches
    return Attached(counted, unknown, annotated.mismatches), annotated.bitcode


def _check_fits(profile: ProfileFile, corpus: Corpus, found: dict[str, Attached]) -> None:
    total = sum(found.values(), Attached())
    if not total.counted:
        raise ProfileError(
            profile.name,
            f"expected counts of functions of corpus {str(corpus.folder)!r}, found none: "
            f"{total.mismatched} have another control flow there, {total.unknown} are not in it",
        )


def _copy_rest(corpus: Corpus, profile: ProfileFile, staged: Path) -> None:
    for name in corpus:
        command = corpus.folder / f"{name}.cmd"
        if command.is_file():
            data = read_bounded(command, LARGEST_TEXT_BYTES)
            (staged / f"{name}.cmd").write_bytes(data)
    info: dict[str, Any] = corpus_info(corpus.folder)
    info |= {"profile": {"sha256": hashlib.sha256(profile.data).hexdigest()}}
    folder = (corpus.folder / WORKLOADS).resolve()
    for path in sorted(folder.rglob("*")):
        # What a link leads to elsewhere is nothing of the corpus's.
        if path.is_file() and path.resolve().is_relative_to(folder):
            made = staged / WORKLOADS / path.relative_to(folder)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(read_bounded(path, LARGEST_TEXT_BYTES))
    if (staged / WORKLOADS).is_dir():
        info[WORKLOAD_FILES] = digests_of(staged / WORKLOADS)
    Manifest(corpus.names, corpus.has_thinlto, corpus.global_command).write(staged)
    write_json(staged / INFO_NAME, info)
