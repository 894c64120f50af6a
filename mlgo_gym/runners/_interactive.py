"""Interactive runners over FIFOs, both ends.

`InteractiveModelRunner` is the compiler's end, a port of
``llvm/lib/Analysis/InteractiveModelRunner.cpp``: it writes the header, contexts and observations
(the stream of `stream._training_log`) and reads the advice. `PipeHost` is the other end: it
answers a compiler, LLVM's own ``opt``, ``llc`` and ``clang`` included, with any runner.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from mlgo_gym.base import InternalError, RunnerError, TensorSpec
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.stream import (
    Channel,
    Header,
    Observation,
    TrainingLogWriter,
    is_readable,
    is_writable,
)

DEFAULT_DEADLINE_S: Final = 300.0
_RETRY_S: Final = 0.01
_LIFTED: Final = "deadline_s lifts the limit"
_POLL_S: Final = 0.1


class InteractiveModelRunner(MLModelRunner):
    """Asks a host at the other end of two FIFOs, as LLVM's own does.

    Unlike LLVM's it never waits without a deadline, and a host that goes away is an error where
    LLVM would read end-of-file for ever.

    Args:
        base: the FIFOs are ``BASE.in``, to the compiler, and ``BASE.out``, from it.
        deadline_s: how long the host may take to open its ends, to read a question, and to answer
            it, in seconds.

    Raises:
        RunnerError: the FIFOs are not there, or the host does not open them, does not read or
            answer in time, or closes its end.

    >>> import threading
    >>> from mlgo_gym.runners import InteractiveModelRunner, PipeHost, ScriptedRunner
    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with PipeHost(lambda inputs, output: ScriptedRunner([1], inputs, output)) as host:
    ...     serving = threading.Thread(target=host.serve, args=(lambda: True,))
    ...     serving.start()
    ...     with InteractiveModelRunner(host.base, [size], size) as runner:
    ...         runner.switch_context("main")
    ...         answer = int(runner.evaluate()[0])
    ...     serving.join()
    >>> answer
    1
    """

    def __init__(
        self,
        base: str | Path,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        *,
        deadline_s: float = DEFAULT_DEADLINE_S,
    ) -> None:
        super().__init__(inputs, output)
        self._base = str(base)
        self._deadline_s = deadline_s
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)
        with contextlib.ExitStack() as stack:
            # LLVM's order. Neither open blocks: the first never does, the second is tried again.
            self._inbound = self._open(".in", os.O_RDONLY)
            stack.callback(os.close, self._inbound)
            self._outbound = self._open(".out", os.O_WRONLY)
            stack.callback(os.close, self._outbound)
            self._outbox = io.BytesIO()
            self._log = TrainingLogWriter(self._outbox, Header(self.inputs, advice=self.output))
            self._send()
            self._has_context = False
            self._resources = stack.pop_all()

    def switch_context(self, name: str) -> None:
        """Tell the host at once that what follows belongs to another context.

        Raises:
            RunnerError: the host has gone, or does not read it in time.
        """
        self._log.start_context(name)
        self._send()
        self._has_context = True

    def close(self) -> None:
        """Close both ends, which the host takes as the end of the stream."""
        super().close()
        self._resources.close()

    def _evaluate(self) -> bytes:
        if not self._has_context:
            self.switch_context("")
        tensors = (self.get_tensor_untyped(index) for index in range(len(self.inputs)))
        self._log.log_observation(b"".join(tensors))
        self._send()
        return self._read_advice()

    def _send(self) -> None:
        """Send what was logged since the last time to the host."""
        left = memoryview(self._outbox.getvalue())
        self._outbox.seek(0)
        self._outbox.truncate()
        deadline = monotonic() + self._deadline_s
        while left:
            if not is_writable(self._outbound, deadline - monotonic()):
                raise self._error(
                    f"expected a host that reads within {self._deadline_s:g} s, found "
                    f"{len(left)} bytes unread; {_LIFTED}"
                )
            try:
                left = left[os.write(self._outbound, left) :]
            except BrokenPipeError as error:
                raise self._error("expected an open host, found that it has gone") from error

    def _read_advice(self) -> bytes:
        advice = b""
        deadline = monotonic() + self._deadline_s
        while len(advice) < self.output.size_bytes:
            if not is_readable(self._inbound, deadline - monotonic()):
                raise self._error(
                    f"expected advice within {self._deadline_s:g} s, found none; {_LIFTED}"
                )
            data = os.read(self._inbound, self.output.size_bytes - len(advice))
            if not data:
                raise self._error("expected advice, found that the host has closed its end")
            advice += data
        return advice

    def _open(self, suffix: str, mode: int) -> int:
        deadline = monotonic() + self._deadline_s
        while True:
            try:
                end = os.open(self._base + suffix, mode | os.O_NONBLOCK)
                if stat.S_ISFIFO(os.fstat(end).st_mode):
                    return end
                os.close(end)
                raise self._error(f"expected a FIFO at {suffix}, found something else")
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise self._error(f"cannot open {suffix}: {error.strerror}") from error
                if monotonic() > deadline:
                    raise self._error(
                        f"expected a host at {suffix} within {self._deadline_s:g} s, found none; "
                        f"{_LIFTED}"
                    ) from error
            time.sleep(_RETRY_S)

    def _error(self, message: str) -> RunnerError:
        return RunnerError(f"interactive runner {self._base!r}: {message}")


class PipeHost(contextlib.AbstractContextManager["PipeHost"]):
    """Answers a compiler over FIFOs with a runner, one stream in its life.

    Make it first, since that makes the FIFOs; start the compiler with `base`; then serve::

        with PipeHost(runner_factory) as host:
            options = [f"-inliner-interactive-channel-base={host.base}"]
            with subprocess.Popen(["opt", "-enable-ml-inliner=release", *options, ...]) as opt:
                host.serve(lambda: opt.poll() is None)

    A compiler that is left without an answer never ends by itself: where `serve` raises, kill it.

    Args:
        runner_factory: makes the runner from what the compiler's header announces.
        deadline_s: how long the compiler may take between one answer and its next word.

    Attributes:
        base: the path that the compiler is told.
        decisions: how many observations have been answered.

    >>> from mlgo_gym.runners import NoInferenceModelRunner
    >>> with PipeHost(NoInferenceModelRunner) as host:
    ...     host.decisions
    0
    """

    def __init__(
        self, runner_factory: RunnerFactory, *, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> None:
        self._factory = runner_factory
        self._deadline_s = deadline_s
        self._runner: MLModelRunner | None = None
        self._channel = Channel(self._start)
        self._context = ""
        self.base: Final = self._channel.base
        self.decisions = 0

    def serve(self, is_alive: Callable[[], bool]) -> int:
        """Answer until the compiler closes its end, or is gone; returns how many observations.

        A compiler that has nothing to ask never opens the channel, so it is asked if it still runs.

        Raises:
            RunnerError: the compiler outran the deadline.
            TrainingLogError: it broke the format, closed its end in the middle of something, or
                asks on without reading the answers.
            MlgoGymError: whatever the runner raises.
        """
        deadline = monotonic() + self._deadline_s
        while True:
            was_alive = is_alive()
            if is_readable(self._channel.fileno(), _POLL_S):
                is_open = self._channel.receive()
                while (observation := self._channel.next_observation()) is not None:
                    self._answer(observation)
                if is_open:
                    deadline = monotonic() + self._deadline_s
                else:
                    self._channel.finish()
                    if self._runner is not None or not was_alive:
                        return self.decisions
                    time.sleep(_POLL_S)  # somebody opened it and said nothing
            elif not was_alive:
                return self.decisions
            if monotonic() > deadline:
                raise RunnerError(
                    f"pipe host {self.base!r}: expected the compiler's next word within "
                    f"{self._deadline_s:g} s, found none after {self.decisions} decisions; "
                    f"{_LIFTED}"
                )

    def close(self) -> None:
        """Close the runner and the channel, and remove the FIFOs; safe to call twice."""
        if self._runner:
            self._runner.close()
        self._channel.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, header: Header) -> None:
        if header.advice is None:
            raise RunnerError(f"pipe host {self.base!r}: expected a header with an advice spec")
        self._runner = self._factory(header.features, header.advice)

    def _answer(self, observation: Observation) -> None:
        if self._runner is None:
            raise InternalError("an observation came before the header")
        if self.decisions == 0 or observation.context != self._context:
            self._context = observation.context
            self._runner.switch_context(observation.context)
        self._runner.fill(observation.payload)
        self._channel.reply(bytes(self._runner.evaluate_untyped()))
        self.decisions += 1
