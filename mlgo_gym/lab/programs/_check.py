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
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.lab.programs._running import compare_output, run_program, wrong
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


def _checked(workload: Workload, programs: Programs) -> Checked:
    other = programs.compiled(workload, {InliningForSize(): _never})
    with programs.linked(workload) as first, programs.linked(workload, other) as second:
        runs = [run_program(workload, each.path, check_output=False) for each in (first, second)]
        outputs = [each.stdout_sha256 for each in runs]
        if outputs[0] != outputs[1]:
            raise wrong(
                workload,
                "expected the same standard output of two plain builds, found that of SHA-256 "
                f"{outputs[0]} as LLVM compiles it, {outputs[1]} with nothing inlined",
            )
        compare_output(workload, runs[0])
        counts = [count(workload, first, Instructions.options)["instructions"] for _ in range(2)]
        names = programs.modules(workload.name)
        reach = Reach(programs)
        reached = tuple(name for name in names if reach.is_reached(name, workload))
        return Checked(workload.name, runs[0].cpu_s, (counts[0], counts[1]), len(names), reached)
