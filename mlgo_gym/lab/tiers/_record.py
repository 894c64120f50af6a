"""Recording a program: it is split, and run under a JIT in the sandbox once for each number."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpus_tools.errors import CorpusToolsError
from corpus_tools.scratch import scratch_folder
from corpus_tools.workloads import compile_workload
from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.lab.programs import (
    ProgramRun,
    Programs,
    Way,
    check_machine,
    compare_output,
    run_program,
    wrong,
)
from mlgo_gym.lab.tiers._recording import TIERS, Recording
from mlgo_gym.llvm import embedded_version

_HOST: Final = "mlgo_gym.lab.tiers._host"
_LOADER: Final = Path("/lib64/ld-linux-x86-64.so.2")
_SYSTEM: Final = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc")
_SLOWDOWN: Final = 30
_MORE_BYTES: Final = 4 << 30
_REPEATS: Final = 2
_OTHER_CALLS: Final = (
    "expected the same calls in each run and at each tier, found that {}; it may look at a clock, "
    "or at addresses"
)


def _way() -> Way:
    """The way to run Python, with this package, in the sandbox of programs."""
    folders = {Path(each).resolve() for each in (*sys.path, sys.prefix, sys.base_prefix) if each}
    folders |= {Path(__file__).resolve().parents[3], *map(Path, _SYSTEM)}
    return Way(
        prefix=(sys.executable, "-I", "-m", _HOST, "{log}"),
        executable=(Path(sys.executable).resolve(), _LOADER.resolve()),
        readable=tuple(sorted(each for each in folders if each.is_dir())),
        slowdown=_SLOWDOWN,
        more_bytes=_MORE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Observed:
    """The times of a run under the JIT.

    Attributes:
        seconds: of the processor, in the program's code.
        costs: seconds of the processor to compile functions while it waited, by function and tier.
    """

    seconds: float
    costs: Mapping[tuple[int, int], float]


class JitProgram(AbstractContextManager["JitProgram"]):
    """A program in units of one function, which a JIT compiles while it runs.

    Args:
        corpus: whose modules it is linked of.
        workload: the name of the one that says how it is run.
        rounds: how often ``main`` is called, one call after the other.
        stdout_sha256: what several rounds must write; what the first run does, if empty.

    Raises:
        WorkloadError: the workload cannot be used, or the program cannot be split.
        ToolchainError: there is no clang to compile what drives the modules with.
    """

    def __init__(
        self, corpus: Corpus, workload: str, rounds: int = 1, stdout_sha256: str = ""
    ) -> None:
        with Programs(corpus, [workload]) as programs:
            self.workload: Final = programs.workloads[workload]
            modules = [corpus[name].data for name in programs.modules(workload)]
            self._clang = programs.clang
        is_sample = corpus.folder == SAMPLE_CORPUS
        package = "sample" if is_sample else corpus.folder.resolve().name
        self.name: Final = f"{package}/{workload}"
        self._rounds = rounds
        self.stdout_sha256 = stdout_sha256
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch_folder())
        try:
            self.units: Final = self._split(modules)
        except BaseException:
            self.close()
            raise
        self.functions: Final = tuple(each["name"] for each in self.units["functions"])

    def close(self) -> None:
        """Remove all files."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _line(self) -> str:
        """The units as the host is told them, in each run alike."""
        return json.dumps(self.units, sort_keys=True)

    @property
    def sha256(self) -> str:
        """The hash of the units, in hexadecimal digits."""
        return hashlib.sha256(self._line.encode()).hexdigest()

    def events(self) -> dict[str, Any]:
        """Run it at O0, and note each function's powers of two."""
        return self._run({"tier": 0}, counting=True, events=True)

    def counts(
        self, marks: Sequence[Sequence[int]], tier: int = 0, plan: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Run it, and count what activations that begin in each interval execute.

        Args:
            marks: the call that each interval begins at, then function, kind and power.
            tier: of functions' first code.
            plan: what is compiled at which event: function, kind and power, and the tier.

        Raises:
            WorkloadError: it did something else, or other calls than marked.
        """
        job = {"tier": tier, "marks": marks, "plan": plan}
        return self._run(job, counting=True, events=False)

    def timed(self, tier: int = 0, plan: Sequence[Any] = ()) -> Observed:
        """Run it without counting."""
        found = self._run({"tier": tier, "plan": plan}, counting=False, events=True)
        return Observed(found["seconds"], {(f, tier): s for f, tier, s in found["costs"]})

    def check_calls(self, expected: int, found: int) -> None:
        """See that a run had as many calls as another.

        Raises:
            WorkloadError: it had not.
        """
        if found != expected:
            raise wrong(
                self.workload, _OTHER_CALLS.format(f"one makes {expected}, another {found}")
            )

    def _split(self, modules: Sequence[bytes]) -> dict[str, Any]:
        workload = self.workload
        try:
            sources = compile_workload(workload, self._folder, self._clang, workload.folder)
        except CorpusToolsError as error:
            raise wrong(self.workload, str(error)) from error
        linked = [*modules, *(path.read_bytes() for path in sources)]
        words = [base64.b64encode(each).decode() for each in linked]
        found = self._ask(json.dumps({"modules": words}), runs=False)
        if "problem" in found:
            raise wrong(self.workload, found["problem"])
        return found

    def _run(self, job: dict[str, Any], *, counting: bool, events: bool) -> dict[str, Any]:
        how = {"counting": counting, "events": events}
        job |= {"rounds": self._rounds, "exit_status": self.workload.exit_status}
        return self._ask(json.dumps(how), self._line, json.dumps(job))

    def _compare(self, run: ProgramRun) -> None:
        """See that it wrote what it must; further rounds what they wrote first, at O0."""
        expected = self.workload.stdout_sha256
        if self._rounds > 1:
            expected = self.stdout_sha256 = self.stdout_sha256 or run.stdout_sha256
        compare_output(replace(self.workload, stdout_sha256=expected), run)

    def _ask(self, *lines: str, runs: bool = True) -> dict[str, Any]:
        """Ask the host; where the program runs, check that it does what its workload says."""
        workload = self.workload if runs else replace(self.workload, exit_status=0)
        job = self._folder / "job"
        job.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
        run = run_program(workload, job, _way(), check_output=False)
        try:
            found = json.loads(run.log)
        except ValueError as error:
            raise wrong(
                self.workload,
                "expected to end by 'exit' or at the end of 'main', found that it ended otherwise",
            ) from error
        if not isinstance(found, dict):
            raise wrong(self.workload, f"expected a record, found {type(found).__name__}")
        if found.get("wrong"):
            raise wrong(self.workload, _OTHER_CALLS.format(found["wrong"]))
        if runs:
            self._compare(run)
        return found


def record_program(
    corpus: Corpus,
    workload: str,
    *,
    rounds: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Record a program: its events, its instructions at each tier, and what compiling costs.

    It runs 13 times: for its events, to count at each of four tiers, and to be timed twice at each.

    Args:
        corpus: whose modules it is linked of.
        workload: the name of the one that says how it is run.
        rounds: how often ``main`` is called, one call after the other, as longer inputs do.
        progress: called with what is done next.

    Raises:
        WorkloadError: the workload cannot be used, the program cannot be split, it does something
            else than it must, or its calls are not the same in each run.
        ToolchainError: there is no clang.
        OptionsError: this machine's code is not that of x86-64.

    >>> from mlgo_gym.corpus import SAMPLE_CORPUS
    >>> record_program(Corpus.load(SAMPLE_CORPUS), "json").name
    'sample/json'
    """
    check_machine("tiers")
    progress("splitting it into functions")
    with JitProgram(corpus, workload, rounds) as program:
        progress("looking for events")
        found = program.events()
        marks = marks_of(found["events"])
        tables = []
        for tier, name in enumerate(TIERS):
            progress(f"counting at {name}")
            counted = program.counts(marks, tier)
            program.check_calls(found["calls"], counted["calls"])
            tables.append({(i - 1, f): n for i, f, n in counted["counts"]})
        called = sorted({function for function, *_ in found["events"]})
        seconds, compile_s = [], []
        for tier, name in enumerate(TIERS):
            progress(f"timing {name}")
            runs = [program.timed(tier) for _ in range(_REPEATS)]
            seconds.append(min(each.seconds for each in runs))
            compile_s.append([min(each.costs[f, tier] for each in runs) for f in called])
        per, library = _fitted([sum(each.values()) for each in tables], seconds)
        number = {function: place for place, function in enumerate(called)}
        places = sorted(set().union(*tables))
        counts = [[i, number[f], *(each.get((i, f), 0) for each in tables)] for i, f in places]
        spent = [[i - 1, number[f], n] for i, f, n in found["spent"]]
        units = program.units["functions"]
        return Recording(
            program=program.name,
            rounds=rounds,
            stdout_sha256=program.stdout_sha256 or program.workload.stdout_sha256,
            llvm=embedded_version(),
            program_sha256=program.sha256,
            functions=tuple(program.functions[each] for each in called),
            sizes=np.array([units[each]["instructions"] for each in called], np.int64),
            events=np.array([[number[f], k, p, c] for f, k, p, c in found["events"]], np.int64),
            counts=np.array(counts, np.int64).reshape(-1, 6),
            spent=np.array(spent, np.int64).reshape(-1, 3),
            compile_s=np.array(compile_s),
            seconds_per_instruction=per,
            library_s=library,
        )


def _fitted(instructions: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds per instruction and seconds besides, neither below zero, by least squares."""
    x, y = np.array(instructions, float), np.array(seconds)
    spread = ((x - x.mean()) ** 2).sum()
    per = float(((x - x.mean()) * (y - y.mean())).sum() / spread) if spread else 0.0
    besides = float(y.mean() - per * x.mean())
    if per <= 0 or besides < 0:
        per, besides = float((x * y).sum() / (x * x).sum()), 0.0
    return per, besides


def marks_of(events: Sequence[Sequence[int]]) -> list[list[int]]:
    """The call that each event's interval begins at, then its function, kind and power."""
    return [[call + kind, function, kind, power] for function, kind, power, call in events]
