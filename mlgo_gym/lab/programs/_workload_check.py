"""Whether a workload is fit to measure by: it does the same however it is built and measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.reading import holds, reason_of
from corpus_tools.staging import WORKLOADS
from corpus_tools.workloads import (
    DESCRIPTION,
    LARGEST_BYTES,
    MOST_INPUT_BYTES,
    Workload,
    load_workloads,
)
from mlgo_gym.base import (
    CompilationError,
    InputError,
    MlgoGymError,
    WorkloadError,
    read_bounded,
    staged_folder,
    write_atomically,
)
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs._measures import Reach
from mlgo_gym.lab.programs._meters import Instructions, count
from mlgo_gym.lab.programs._program import Program, Programs, find_workloads
from mlgo_gym.lab.programs._running import ProgramRun, compare_output, run_program, wrong
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Jobs
from mlgo_gym.problems import InliningForSize
from mlgo_gym.stream import Observation

_UNKNOWN: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings about a workload.

    Attributes:
        workload: its name.
        cpu_s: seconds of the CPU of a run by itself.
        instructions: of two runs under valgrind.
        linked_modules: how many modules are in the program.
        reached: those of which it executes a function.
        error: what is wrong with it.

    >>> Checked("json").reached
    ()
    """

    workload: str
    cpu_s: float = 0.0
    instructions: tuple[int, int] = (0, 0)
    linked_modules: int = 0
    reached: tuple[str, ...] = ()
    error: MlgoGymError | None = None

    def record(self) -> dict[str, Any]:
        """The fields by name, as JSON values; beside an error nothing was measured."""
        if self.error is None:
            return asdict(self)
        return dict.fromkeys(asdict(self)) | {"workload": self.workload, "error": str(self.error)}


def check_workloads(
    corpus: Corpus,
    names: Sequence[str] = (),
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Iterator[Checked]:
    """Build workloads twice, run both, and count one twice.

    One build is LLVM's own, the other inlines nothing: what a program does must not depend on it.

    Args:
        corpus: whose.
        names: which; all, where none are named.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one, in seconds.

    Raises:
        WorkloadError: there is none of a name, or the description is wrong.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> [each.error for each in check_workloads(Corpus.load(SAMPLE_CORPUS))]
    [None]
    """
    with Programs(corpus, names, jobs=jobs, timeout_s=timeout_s) as programs:
        for workload in programs.workloads.values():
            try:
                yield _checked(workload, programs)
            except (CompilationError, InputError) as error:
                yield Checked(workload.name, error=error)


def _never(observation: Observation) -> int:  # noqa: ARG001
    return 0


def check_builds(workload: Workload, programs: Programs, plain: Program) -> ProgramRun:
    """Run a program twice as LLVM compiles it, and once with nothing inlined, and compare.

    What it must write is not looked at.

    Args:
        workload: what it is given.
        programs: what links it again.
        plain: as LLVM compiles it.

    Returns:
        The first run.
    """
    other = programs.compiled(workload, {InliningForSize(): _never})
    with programs.linked(workload, other) as inlined_nowhere:
        first, second, third = (
            run_program(workload, each.path, check_output=False)
            for each in (plain, plain, inlined_nowhere)
        )
    for run, place in ((second, "another time"), (third, "with nothing inlined")):
        if run.stdout_sha256 != first.stdout_sha256:
            found = f"{first.stdout_sha256} as LLVM compiles it, {run.stdout_sha256} {place}"
            raise wrong(workload, f"expected the same standard output, found SHA-256 {found}")
    return first


def _checked(workload: Workload, programs: Programs) -> Checked:
    with programs.linked(workload) as program:
        run = check_builds(workload, programs, program)
        compare_output(workload, run)
        counts = [count(workload, program, Instructions.options)["instructions"] for _ in range(2)]
    names = programs.modules(workload.name)
    reach = Reach(programs)
    reached = tuple(name for name in names if reach.is_reached(name, workload))
    return Checked(workload.name, run.cpu_s, (counts[0], counts[1]), len(names), reached)


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A workload, and the run that it was described by.

    Attributes:
        workload: as its corpus has it from now on.
        run: of its program as LLVM's own heuristics compile it.
    """

    workload: Workload
    run: ProgramRun


def new_workload(
    corpus: Corpus,
    name: str,
    fields: Mapping[str, Any],
    inputs: Iterable[Path] = (),
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> NewWorkload:
    """Run a program made of a corpus's modules, and describe it by what it writes.

    It is built as LLVM compiles it, which runs twice, and with nothing inlined. Only where all
    runs write the same does the corpus get the description and the inputs.

    Args:
        corpus: whose modules are linked.
        name: what the workload is called.
        fields: its table in ``workload.toml``, without ``stdout_sha256``.
        inputs: the sources and files that ``fields`` name, by the last parts of their paths.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one, in seconds.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> new_workload(Corpus.load(SAMPLE_CORPUS), "json", {"about": "parses"})
    Traceback (most recent call last):
    mlgo_gym.errors.WorkloadError: workload 'json': expected a name that is not taken, found that \
of another workload
    """
    folder = corpus.folder / WORKLOADS
    try:
        if name in [each.name for each in load_workloads(folder)]:
            expected = "expected a name that is not taken, found that of another workload"
            raise WorkloadError(f"workload {name!r}: {expected}")
        with staged_folder(folder, None) as staged, _naming(staged, folder):
            if folder.is_dir():
                shutil.copytree(folder, staged, dirs_exist_ok=True)
            for path in map(Path, inputs):
                _copy(path, staged / path.name)
            description = staged / DESCRIPTION
            before = read_bounded(description, LARGEST_BYTES) if description.exists() else b""
            write_atomically(description, before + _table(name, fields, _UNKNOWN))
            with Programs(
                corpus, [name], folder=staged, jobs=jobs, timeout_s=timeout_s
            ) as programs:
                workload = programs.workloads[name]
                with programs.linked(workload) as program:
                    run = check_builds(workload, programs, program)
            write_atomically(description, before + _table(name, fields, run.stdout_sha256))
    except CorpusToolsError as error:
        raise WorkloadError(str(error)) from error
    except OSError as error:
        raise WorkloadError(f"{folder}: cannot be written: {reason_of(error)}") from error
    return NewWorkload(find_workloads(corpus, [name])[name], run)


@contextmanager
def _naming(staged: Path, folder: Path) -> Iterator[None]:
    """Have errors name the folder that is to be, not the one that is written first."""
    try:
        yield
    except (CorpusToolsError, WorkloadError) as error:
        raise WorkloadError(str(error).replace(str(staged), str(folder))) from error


def _copy(path: Path, target: Path) -> None:
    try:
        data = read_bounded(path, MOST_INPUT_BYTES)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {reason_of(error)}") from error
    if target.exists() and not holds(target, data):
        found = "found another file of that name among the corpus's workloads"
        raise WorkloadError(f"{path}: expected a name that is not taken, {found}")
    write_atomically(target, data)


def _table(name: str, fields: Mapping[str, Any], stdout_sha256: str) -> bytes:
    """A workload's table in TOML, whose strings and lists of strings are as JSON has them."""
    values = {**fields, "stdout_sha256": stdout_sha256}
    lines = (f"{key} = {_value(value)}" for key, value in values.items())
    return "\n".join(("", f"[workload.{_value(name)}]", *lines, "")).encode()


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
