"""A program under the JIT, in the sandbox of programs: each run is a process of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.scratch import scratch_folder
from corpus_tools.workloads import compile_workload
from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.lab.programs import ProgramRun, Programs, Way, compare_output, run_program, wrong
from mlgo_gym.lab.tiers._recording import RESTED, Event

_HOST: Final = "mlgo_gym.lab.tiers._host"
_LOADER: Final = Path("/lib64/ld-linux-x86-64.so.2")
_SYSTEM: Final = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc")
_SLOWDOWN: Final = 30
_MORE_BYTES: Final = 4 << 30
_AGAIN: Final = "; its 'main' was called {} times, which not every program bears: try --rounds 1"
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

    Attributes:
        special: functions that can be specialised, the place of an argument, and its values.
        kept: functions that can be pruned, and the number of a block that is kept.
    """

    def __init__(
        self, corpus: Corpus, workload: str, rounds: int = 1, stdout_sha256: str = ""
    ) -> None:
        with Programs(corpus, [workload]) as programs:
            self.workload: Final = programs.workloads[workload]
            modules = {name: corpus[name].data for name in programs.modules(workload)}
            self._clang = programs.clang
        is_sample = corpus.folder == SAMPLE_CORPUS
        package = "sample" if is_sample else corpus.folder.resolve().name
        self.name: Final = f"{package}/{workload}"
        self._rounds = rounds
        self.stdout_sha256 = stdout_sha256
        self.special: list[tuple[int, int, list[int]]] = []
        self.kept: list[tuple[int, int]] = []
        self._objects: list[dict[str, Any]] = []
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
        found = self._run({"tier": 0, "keeps": True}, counting=True, events=True)
        self._objects.append(found.pop("kept_objects"))
        return found

    def watched(self) -> dict[str, Any]:
        """Run it at O0, and note what values its functions' arguments have."""
        return self._run({"tier": 0}, counting=True, events=True, watching=True)

    def counts(self, marks: Sequence[Sequence[int]], version: int = 0) -> dict[str, Any]:
        """Run it, and count what activations that begin in each interval execute.

        Args:
            marks: the call that each interval begins at, then function, kind and power.
            version: of functions' code, as `VERSIONS` has it.
        """
        job = {"tier": version, "marks": marks, "keeps": version == RESTED}
        found = self._run(job, counting=True, events=False)
        if version == RESTED:
            self._objects.append(found.pop("kept_objects"))
        return found

    def executed(self, tier: int = 0, plan: Sequence[Any] = ()) -> dict[str, Any]:
        """Run it under a plan, and count what it executes.

        Args:
            tier: of functions' first code.
            plan: what is done at which event: function, kind and power, and the version of the
                code from there on; `ENTERED` goes on in the loop that runs.
        """
        return self._run({"tier": tier, "plan": plan}, counting=True, events=True)

    def timed(
        self, tier: int = 0, plan: Sequence[Any] = (), behind: Sequence[Any] = ()
    ) -> Observed:
        """Run it without counting.

        Args:
            tier: of functions' first code.
            plan: as `executed` takes it.
            behind: versions of functions that are compiled behind its end, to see what that takes.
        """
        job = {"tier": tier, "plan": plan, "behind": behind}
        found = self._run(job, counting=False, events=True)
        return Observed(found["seconds"], {(f, each): s for f, each, s in found["costs"]})

    def check_calls(self, expected: int, found: int) -> None:
        """See that a run had as many calls as another."""
        if found != expected:
            raise self._other_calls(f"one makes {expected}, another {found}")

    def _other_calls(self, found: str) -> WorkloadError:
        return wrong(self.workload, _OTHER_CALLS.format(found))

    def _split(self, modules: Mapping[str, bytes]) -> dict[str, Any]:
        workload = self.workload
        try:
            sources = compile_workload(workload, self._folder, self._clang, workload.folder)
        except CorpusToolsError as error:
            raise wrong(self.workload, str(error)) from error
        named = {**modules, **{f"source {each.name}": each.read_bytes() for each in sources}}
        words = {name: base64.b64encode(each).decode() for name, each in named.items()}
        found = self._ask(json.dumps({"modules": words}), runs=False)
        if "problem" in found:
            raise wrong(self.workload, found["problem"])
        return found

    def _run(self, job: dict[str, Any], **how: bool) -> dict[str, Any]:
        job |= {"rounds": self._rounds, "exit_status": self.workload.exit_status}
        job |= {"special": self.special, "kept": self.kept}
        if how["counting"] and how["events"] and not how.get("watching"):
            job["given"] = self._objects
        try:
            found = self._ask(json.dumps(how), self._line, json.dumps(job))
        except WorkloadError as error:
            if self._rounds == 1:
                raise
            raise WorkloadError(f"{error}{_AGAIN.format(self._rounds)}") from error
        return found | {"events": [Event(*each) for each in found["events"]]}

    def _compare(self, run: ProgramRun) -> None:
        """See that it wrote what it must; further rounds what they wrote first, at O0."""
        expected = self.workload.stdout_sha256
        if self._rounds > 1:
            expected = self.stdout_sha256 = self.stdout_sha256 or run.stdout_sha256
        compare_output(replace(self.workload, stdout_sha256=expected), run)

    def _ask(self, *lines: str, runs: bool = True) -> dict[str, Any]:
        """Ask the host; where the program runs, check that it does what its workload says."""
        workload = self.workload if runs else replace(self.workload, exit_status=0)
        job = Path(mkdtemp(dir=self._folder)) / "job"  # several may run at once
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
            raise self._other_calls(found["wrong"])
        if runs:
            self._compare(run)
        return found
