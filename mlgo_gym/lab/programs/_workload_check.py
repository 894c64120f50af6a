"""Whether a workload is fit to measure by: it does the same however it is built and measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corpus_tools.workloads import Workload
from mlgo_gym.base import CompilationError, InputError, MlgoGymError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs._measures import Reach
from mlgo_gym.lab.programs._meters import Instructions, count
from mlgo_gym.lab.programs._program import Program, Programs
from mlgo_gym.lab.programs._running import ProgramRun, compare_output, run_program, wrong
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Jobs
from mlgo_gym.problems import InliningForSize
from mlgo_gym.stream import Observation


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
        """The fields by name, as JSON values."""
        return asdict(self) | {"error": self.error and str(self.error)}


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

    Raises:
        WorkloadError: it ends otherwise than it must, or runs write different things.
    """
    other = programs.compiled(workload, {InliningForSize(): _never})
    with programs.linked(workload, other) as inlined_nowhere:
        first, second, third = (
            run_program(workload, each.path, check_output=False)
            for each in (plain, plain, inlined_nowhere)
        )
    for run, what, place in (
        (second, "runs", "another time"),
        (third, "plain builds", "with nothing inlined"),
    ):
        if run.stdout_sha256 != first.stdout_sha256:
            raise wrong(
                workload,
                f"expected the same standard output of two {what}, found that of SHA-256 "
                f"{first.stdout_sha256} as LLVM compiles it, {run.stdout_sha256} {place}",
            )
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
