"""One request to a worker: the questions that LLVM asks meanwhile, the answer, and the deadline."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import (
    CompilationError,
    CompilationTimeoutError,
    CompilerCrashError,
    EnvironmentSetupError,
    InternalError,
    ModuleError,
    PolicyError,
    UsageError,
)
from mlgo_gym.corpus import Module
from mlgo_gym.llvm._branches import fork_worker
from mlgo_gym.llvm._limits import lack_of_memory
from mlgo_gym.llvm._request import (
    Asking,
    CancelRequest,
    LoadRequest,
    Request,
    request_to_json,
)
from mlgo_gym.llvm._timing import Timing
from mlgo_gym.llvm._worker_process import Worker, WorkerDiedError, describe_exit
from mlgo_gym.problems import Fit, Layout, Problem, SentPolicy
from mlgo_gym.stream import Channel, Header, Observation, open_bytes, path_of, read_events

_LIFTED: Final = "timeout_s or --timeout lifts the limit"
_READING: Final = re.compile(r"Could not find (incbin|include) file ('.*')$", re.MULTILINE)


class _Asked:
    """A problem that LLVM asks about, and what has come of it.

    Attributes:
        fit: the way between LLVM's header, once that has come, and the problem.
        kept: what was answered in the worker and is kept, with the answers.
    """

    def __init__(
        self, problem: Problem, places: tuple[int, int], sent: SentPolicy | None = None
    ) -> None:
        self.problem: Final = problem
        self.channel = Channel(self._take_header, places)
        self.fit: Fit | None = None
        self.kept: list[tuple[Observation, bytes]] = []
        self._sent = sent

    def branch(self, channel: Channel) -> _Asked:
        """The same in a branch, which goes on over a channel of its own."""
        branch = copy.copy(self)
        branch.channel, branch.kept = channel, []
        return branch

    def asking(self) -> Asking:
        """Return what the worker is told of it."""
        key, keeps = (self._sent.key, self._sent.keep) if self._sent else ("", False)
        return Asking(self.channel.base, key, keeps, self.problem.layout.derived)

    def next_observation(self) -> Observation | None:
        """The next observation that has come whole, as the problem documents it."""
        observation = self.channel.next_observation()
        return self.fit.observation(observation) if observation and self.fit else None

    def reply(self, advice: bytes) -> None:
        """Send LLVM the raw tensor of an answer."""
        self.channel.reply(self.fit.advice(advice) if self.fit else advice)

    def _take_header(self, header: Header) -> None:
        self.fit = Fit(self.problem.layout, header)


class Exchange:
    """One request to a worker about one module, and the questions that come back.

    Poll, and wait where nothing has come, until it is over; answer each question. Every wait
    counts against the deadline. Where something fails, it is over and the worker is killed; where
    it ends well, the worker can serve the next.

    Attributes:
        owns_worker: the worker is this exchange's alone, and is killed when it ends.
        question: the observation that waits for an answer, and the problem that it belongs to.
        advice: the raw tensors of the answers so far, those that were given in the worker included.
        timing: when LLVM asked and had its answers, where somebody wants to know it.
        answer: what the worker answered to the request, and the bytes with it.
    """

    def __init__(
        self,
        worker: Worker,
        module: Module,
        timeout_s: float,
        problems: Sequence[Problem] = (),
        inside: Mapping[Problem, SentPolicy] = MappingProxyType({}),
        *,
        keep_stderr: bool = False,
        owns_worker: bool = False,
    ) -> None:
        self._files = _placed_files(problems, worker.places, module)
        self.worker = worker
        self.owns_worker = owns_worker
        self.remaining_s = timeout_s
        self.question: tuple[Problem, Observation] | None = None
        self.advice: list[bytes] = []
        self.answer: tuple[dict[str, Any], bytes] | None = None
        self.timing: Timing | None = None
        self.is_over = False
        self._module = module
        self._timeout_s = timeout_s
        self._asked: dict[Problem, _Asked] = {}
        self._raised = ""
        self._stderr = ""
        try:
            for problem, places in zip(problems, worker.places, strict=False):
                self._ask(_Asked(problem, places, inside.get(problem)))
            worker.stderr.keep(keep_stderr)
        except BaseException:
            self.abort()
            raise

    def advisor_options(self) -> tuple[str, ...]:
        """LLVM's options that make it ask over the channels, and read the problems' files."""
        options = [
            option
            for each in self._asked.values()
            for option in each.problem.advisor_options(each.channel.base)
        ]
        return (*options, *(f"{option}={path_of(place)}" for option, place, _ in self._files))

    def asking(self) -> tuple[Asking, ...]:
        """The problems, as a `CompileRequest` has them."""
        return tuple(each.asking() for each in self._asked.values())

    def header(self, problem: Problem) -> Header | None:
        """LLVM's header for a problem, once it has come."""
        return self._asked[problem].channel.header if problem in self._asked else None

    def take_kept(self, problem: Problem) -> Sequence[tuple[Observation, bytes]]:
        """Return what was answered in the worker and kept since the last call."""
        if (asked := self._asked.get(problem)) is None:
            return ()
        taken, asked.kept = asked.kept, []
        return taken

    def send(self, request: Request) -> None:
        """Send the request, with the module's bytes."""
        try:
            with contextlib.ExitStack() as ours:
                ends = [end for each in self._asked.values() for end in each.channel.take_handed()]
                ends += [open_bytes(data) for *_, data in self._files]
                for end in ends:
                    ours.callback(os.close, end)
                self.worker.send(request_to_json(request), self._module.data, ends)
        except BaseException:
            self.abort()
            raise

    def load(self, request: LoadRequest, data: bytes) -> str:
        """Have the worker load who answers there; why it cannot, in words."""
        self.worker.send(request_to_json(request), data)
        answer, _ = self._wait_for_answer()
        if "raised" in answer:
            return str(answer["raised"])
        self.worker.loaded = frozenset(answer["loaded"])
        return ""

    def run(self, request: Request) -> tuple[dict[str, Any], bytes]:
        """Send a request over which LLVM asks nothing, and wait for the answer."""
        self.send(request)
        return self._wait_for_answer()

    def cancel(self, at_most_s: float) -> None:
        """Have the worker come to an end, within so many seconds at most."""
        self.worker.send(request_to_json(CancelRequest()))
        self.remaining_s = min(self.remaining_s, at_most_s)

    def poll(self) -> bool:
        """Whether a question waits, or it is over; never waits."""
        if self.question is None and not self.is_over:
            try:
                while not self.is_over and (frame := self.worker.take_frame()) is not None:
                    self._take(*frame)
                if not self.is_over:
                    self.question = self._next_question()
                if self.question and self.timing:
                    self.timing.asked()
            except BaseException:
                self.abort()
                raise
            if self._raised:
                raised, self._raised = self._raised, ""
                raise PolicyError(raised)
        return self.question is not None or self.is_over

    def wait(self, timeout_s: float) -> None:
        """Take in what comes; wait so many seconds at most where nothing does."""
        start = monotonic()
        try:
            readable = self.worker.wait(timeout_s)
            self.remaining_s -= monotonic() - start
            for each in self._asked.values():
                place = each.channel.fileno()
                if place in readable and not each.channel.receive():
                    self.worker.unwatch(place)
        except WorkerDiedError as error:
            raise self._failure(error) from error
        except BaseException:
            self.abort()
            raise
        if self.remaining_s <= 0:
            raise self._failure(TimeoutError())

    def reply(self, problem: Problem, advice: bytes) -> None:
        """Answer the question, a problem's, with the raw tensor of the advice."""
        if self.question and self.timing:
            self.timing.answered(problem, self.question[1], advice)
        self.question = None
        self.advice.append(advice)
        self._asked[problem].reply(advice)

    def fork(self, problem: Problem, *, keep_stderr: bool = False) -> Exchange:
        """Clone the worker while it waits for advice on a problem, the only one."""
        asked = self._asked[problem]
        try:
            worker, channel = fork_worker(self.worker, asked.channel, self.remaining_s)
        except (WorkerDiedError, TimeoutError) as error:
            raise self._failure(error) from error
        branch = Exchange(
            worker, self._module, self._timeout_s, keep_stderr=keep_stderr, owns_worker=True
        )
        branch._ask(asked.branch(channel))
        branch.remaining_s = self.remaining_s
        branch.question, branch.advice = self.question, list(self.advice)
        return branch

    def take_stderr(self) -> str:
        """Return the text that LLVM has printed since the last call, until it was over."""
        if not self.is_over:
            return self.worker.stderr.take()
        taken, self._stderr = self._stderr, ""
        return taken

    def abort(self) -> None:
        """End it wherever it is; safe to call twice."""
        if not self.is_over:  # LLVM may still be waiting for advice that will never come
            self.worker.kill()
        self._end()

    def _ask(self, asked: _Asked) -> None:
        self._asked[asked.problem] = asked
        self.worker.watch(asked.channel.fileno())

    def _wait_for_answer(self) -> tuple[dict[str, Any], bytes]:
        while not self.poll():
            self.wait(self.remaining_s)
        if self.answer is None:
            raise InternalError(f"module {self._module.name!r}: an answer without anything in it")
        return self.answer

    def _next_question(self) -> tuple[Problem, Observation] | None:
        for each in self._asked.values():
            if (observation := each.next_observation()) is not None:
                return each.problem, observation
        return None

    def _take(self, answer: dict[str, Any], payload: bytes) -> None:
        """Take in what the worker says: in the middle of a compilation, or at the end of it."""
        match answer:
            case {"handed": about}:  # from now on LLVM asks here
                self._take_answered(about, payload)
                return
            case {"raised": words} if self._asked:
                self._raised = words
                return
        payload = self._take_answered(answer.pop("inside", []), payload)
        self._end()
        match answer:
            case {"error": words}:
                raise ModuleError(self._module.name, words)
            case {"unusable": words}:
                raise EnvironmentSetupError(words)
        self.worker.verified.add(self._module.sha256)
        self.answer = answer, payload

    def _take_answered(self, about: Sequence[Mapping[str, Any]], payload: bytes) -> bytes:
        """Take the answers given in the worker off the end of the bytes; return the rest."""
        sizes = (sum(each["advice"]) + each["stream"] + each["times"] for each in about)
        start = len(payload) - sum(sizes)
        rest, file = payload[:start], io.BytesIO(payload[start:])
        for asked, each in zip(self._asked.values(), about, strict=False):
            advice = [file.read(size) for size in each["advice"]]
            self.advice += advice
            if each["stream"]:
                observations = _observations(asked.problem.layout, file.read(each["stream"]))
                kept = list(zip(observations, advice, strict=True))
                asked.kept += kept
                times = file.read(each["times"])
                if self.timing:
                    self.timing.answered_inside(asked.problem, kept, times)
        return rest

    def _failure(self, error: WorkerDiedError | TimeoutError) -> CompilationError | ModuleError:
        self.abort()
        name, tail = self._module.name, self.worker.stderr.tail()
        if isinstance(error, WorkerDiedError):
            status, tail = error.exit_status, error.stderr_tail
            words = "\n".join(tail)
            if reading := _READING.search(words):
                what = f"found .{reading[1]} {reading[2]}; mlgo_gym allows none"
                return ModuleError(name, f"expected assembly that reads no file, {what}")
            lack = lack_of_memory(words, self.worker.limits)
            message = lack or f"LLVM ended with {describe_exit(status)}"
            return CompilerCrashError(name, message, exit_status=status, stderr_tail=tail)
        asked = f" after {len(self.advice)} decisions" if self._asked else ""
        message = f"LLVM took more than its {self._timeout_s:g} s{asked}; {_LIFTED}"
        return CompilationTimeoutError(name, message, exit_status=None, stderr_tail=tail)

    def _end(self) -> None:
        """The worker is gone, or another's from now on."""
        self.question = None
        if self.is_over:
            return
        self.is_over = True
        for each in self._asked.values():
            self.worker.unwatch(each.channel.fileno())
            each.channel.close()
        if self.owns_worker and not self.worker.is_reaped:
            self.worker.kill()
        self._stderr = self.worker.stderr.take()
        self.worker.stderr.keep(False)


def _placed_files(
    problems: Sequence[Problem], places: Sequence[tuple[int, int]], module: Module
) -> list[tuple[str, int, bytes]]:
    """The files that LLVM reads for problems: the option of each, its descriptor there, its bytes.

    They take the places behind those of the problems' channels.
    """
    files = [file for problem in problems for file in problem.files().items()]
    left = [place for pair in places[len(problems) :] for place in pair]
    if len(problems) > len(places) or len(files) > len(left):
        with_files = f" with {len(files)} files" if files else ""
        raise UsageError(
            f"module {module.name!r}: expected at most {len(places)} problems, "
            f"found {len(problems)}{with_files}"
        )
    return [(option, place, data) for (option, data), place in zip(files, left, strict=False)]


def _observations(layout: Layout, stream: bytes) -> Iterator[Observation]:
    """Return LLVM's observations in a layout."""
    fit: Fit | None = None
    for event in read_events(io.BytesIO(stream)):
        match event:
            case Header():
                fit = Fit(layout, event)
            case Observation() if fit:
                yield fit.observation(event)
