"""One request to a worker: the questions that LLVM asks meanwhile, the answer, and the deadline."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
    MAX_ANSWERERS,
    CancelRequest,
    LoadRequest,
    Request,
    request_to_json,
)
from mlgo_gym.llvm._timing import Timing
from mlgo_gym.llvm._worker_process import Worker, WorkerDiedError, describe_exit
from mlgo_gym.problems import Fit, Problem, SentPolicy
from mlgo_gym.stream import Channel, Header, Observation, open_bytes, path_of, read_events

_LIFTED: Final = "timeout_s or --timeout lifts the limit"
_READING: Final = re.compile(r"Could not find (incbin|include) file ('.*')$", re.MULTILINE)


class Exchange:
    """One request to a worker about one module, and the questions that come back.

    Poll, and wait where nothing has come, until it is over; answer each question. Every wait
    counts against the deadline. Where something fails, it is over and the worker is killed; where
    it ends well, the worker can serve the next.

    Attributes:
        owns_worker: the worker is this exchange's alone, and is killed when it ends.
        question: the observation that waits for an answer, and the problem that it belongs to.
        advice: the raw tensors of the answers so far, those that were given in the worker included.
        kept: of each problem, what was answered in the worker and is kept, with the answers.
        timing: when LLVM asked and had its answers, where somebody wants to know it.
        answer: what the worker answered to the request, and the bytes with it.
        headers: what LLVM has said that it sends.
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
        files = [file for problem in problems for file in problem.files().items()]
        if len(problems) + -(-len(files) // 2) > len(worker.places):
            with_files = f" with {len(files)} files" if files else ""
            raise UsageError(
                f"module {module.name!r}: expected at most {len(worker.places)} problems, "
                f"found {len(problems)}{with_files}"
            )
        self.worker = worker
        self.owns_worker = owns_worker
        self.remaining_s = timeout_s
        self.question: tuple[Problem, Observation] | None = None
        self.advice: list[bytes] = []
        self.answer: tuple[dict[str, Any], bytes] | None = None
        self.is_over = False
        self._module = module
        self._timeout_s = timeout_s
        self._asks = bool(problems)
        self._problems = tuple(problems)
        self._inside = inside
        self._raised = ""
        self._stderr = ""
        self._channels: dict[Problem, Channel] = {}
        self._fits: dict[Problem, Fit] = {}
        self.headers: dict[Problem, Header] = {}
        self.kept: dict[Problem, list[tuple[Observation, bytes]]] = {}
        self.timing: Timing | None = None
        places = [place for pair in worker.places[len(problems) :] for place in pair]
        self._files = [
            (f"{option}={path_of(place)}", data)
            for (option, data), place in zip(files, places, strict=False)
        ]
        try:
            for problem, pair in zip(problems, worker.places, strict=False):
                self._open(problem, Channel(partial(self._fit, problem), pair))
            worker.keep_stderr(keep_stderr)
        except BaseException:
            self.abort()
            raise

    def advisor_options(self) -> tuple[str, ...]:
        """LLVM's options that make it ask over the channels, and read the problems' files."""
        asking = (
            option
            for problem, channel in self._channels.items()
            for option in problem.advisor_options(channel.base)
        )
        return (*asking, *(option for option, _ in self._files))

    def asking(self) -> tuple[tuple[str, str, bool, tuple[str, ...]], ...]:
        """Return the fields of each problem in a `CompileRequest`."""
        return tuple(
            (channel.base, sent.key, sent.keep, problem.derives)
            if (sent := self._inside.get(problem))
            else (channel.base, "", False, problem.derives)
            for problem, channel in self._channels.items()
        )

    def send(self, request: Request) -> None:
        """Send the request, with the module's bytes."""
        try:
            with contextlib.ExitStack() as ours:
                ends = [end for each in self._channels.values() for end in each.take_handed()]
                ends += [open_bytes(data) for _, data in self._files]
                self._files.clear()
                for end in ends:
                    ours.callback(os.close, end)
                self.worker.send(request_to_json(request), self._module.data, ends)
        except BaseException:
            self.abort()
            raise

    def load(self, request: LoadRequest, data: bytes) -> str:
        """Have the worker load who answers there; why it cannot, in words."""
        self.worker.send(request_to_json(request), data)
        while not self.poll():
            self.wait(self.remaining_s)
        loaded = self.worker.loaded  # as the worker itself has them
        loaded.pop(request.key, None)
        if not request.is_for_once:
            loaded[request.key] = None
        while len(loaded) > MAX_ANSWERERS:
            del loaded[next(iter(loaded))]
        return str((self.answer or ({}, b""))[0].get("raised", ""))

    def run(self, request: Request) -> tuple[dict[str, Any], bytes]:
        """Send a request over which LLVM asks nothing, and wait for the answer."""
        self.send(request)
        while not self.poll():
            self.wait(self.remaining_s)
        if self.answer is None:
            raise InternalError(f"module {self._module.name!r}: an answer without anything in it")
        return self.answer

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
            for channel in self._channels.values():
                if channel.fileno() in readable and not channel.receive():
                    self.worker.unwatch(channel.fileno())
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
        self._channels[problem].reply(self._fits[problem].advice(advice))

    def fork(self, problem: Problem, *, keep_stderr: bool = False) -> Exchange:
        """Clone the worker while it waits for advice on a problem, the only one."""
        own = self._channels[problem]
        try:
            worker, channel = fork_worker(self.worker, own, self.remaining_s)
        except (WorkerDiedError, TimeoutError) as error:
            raise self._failure(error) from error
        branch = Exchange(
            worker, self._module, self._timeout_s, keep_stderr=keep_stderr, owns_worker=True
        )
        branch._open(problem, channel)
        branch.remaining_s, branch._asks = self.remaining_s, self._asks
        branch._fits = self._fits
        branch.question, branch.advice = self.question, list(self.advice)
        return branch

    def take_stderr(self) -> str:
        """Return the text that LLVM has printed since the last call, until it was over."""
        if not self.is_over:
            return self.worker.take_stderr()
        taken, self._stderr = self._stderr, ""
        return taken

    def abort(self) -> None:
        """End it wherever it is; safe to call twice."""
        if not self.is_over:  # LLVM may still be waiting for advice that will never come
            self.worker.kill()
        self._end()

    def _open(self, problem: Problem, channel: Channel) -> None:
        self._channels[problem] = channel
        self.worker.watch(channel.fileno())

    def _fit(self, problem: Problem, header: Header) -> None:
        self.headers[problem] = header
        self._fits[problem] = Fit(problem, header)

    def _next_question(self) -> tuple[Problem, Observation] | None:
        for problem, channel in self._channels.items():
            if (observation := channel.next_observation()) is not None:
                return problem, self._fits[problem].observation(observation)
        return None

    def _take(self, answer: dict[str, Any], payload: bytes) -> None:
        if "handed" in answer:  # from now on LLVM asks here
            self._take_answered(answer["handed"], payload)
            return
        if "raised" in answer and self._asks:
            self._raised = answer["raised"]
            return
        payload = self._take_answered(answer.pop("inside", []), payload)
        self._end()
        if "error" in answer:
            raise ModuleError(self._module.name, answer["error"])
        if "unusable" in answer:
            raise EnvironmentSetupError(answer["unusable"])
        self.worker.verified.add(self._module.sha256)
        self.answer = answer, payload

    def _take_answered(self, about: Sequence[Mapping[str, Any]], payload: bytes) -> bytes:
        """Take the answers given in the worker off the end of the bytes; return the rest."""
        sizes = (sum(each["advice"]) + each["stream"] + each["times"] for each in about)
        start = len(payload) - sum(sizes)
        rest, file = payload[:start], io.BytesIO(payload[start:])
        for problem, each in zip(self._problems, about, strict=False):
            advice = [file.read(size) for size in each["advice"]]
            self.advice += advice
            if each["stream"]:
                asked = _observations(problem, file.read(each["stream"]))
                kept = list(zip(asked, advice, strict=True))
                self.kept.setdefault(problem, []).extend(kept)
                times = file.read(each["times"])
                if self.timing:
                    self.timing.answered_inside(problem, kept, times)
        return rest

    def _failure(self, error: WorkerDiedError | TimeoutError) -> CompilationError | ModuleError:
        self.abort()
        name, tail = self._module.name, self.worker.stderr_tail()
        if isinstance(error, WorkerDiedError):
            status, tail = error.exit_status, error.stderr_tail
            words = "\n".join(tail)
            if reading := _READING.search(words):
                what = f"found .{reading[1]} {reading[2]}; mlgo_gym allows none"
                return ModuleError(name, f"expected assembly that reads no file, {what}")
            lack = lack_of_memory(words, self.worker.limits)
            message = lack or f"LLVM ended with {describe_exit(status)}"
            return CompilerCrashError(name, message, exit_status=status, stderr_tail=tail)
        asked = f" after {len(self.advice)} decisions" if self._asks else ""
        message = f"LLVM took more than its {self._timeout_s:g} s{asked}; {_LIFTED}"
        return CompilationTimeoutError(name, message, exit_status=None, stderr_tail=tail)

    def _end(self) -> None:
        """The worker is gone, or another's from now on."""
        for channel in self._channels.values():
            self.worker.unwatch(channel.fileno())
            channel.close()
        self._channels.clear()
        self.question = None
        if self.is_over:
            return
        self.is_over = True
        if self.owns_worker and not self.worker.is_reaped:
            self.worker.kill()
        self._stderr = self.worker.take_stderr()
        self.worker.keep_stderr(False)


def _observations(problem: Problem, stream: bytes) -> Iterator[Observation]:
    """Return LLVM's observations, as the problem documents them."""
    fit: Fit | None = None
    for event in read_events(io.BytesIO(stream)):
        match event:
            case Header():
                fit = Fit(problem, event)
            case Observation() if fit:
                yield fit.observation(event)
