"""Development mode of ``mlgo-cc``: a model from disk answers, and LLVM's training log is written.

::

    python -m mlgo_gym.driver._development MODEL LOG CLANG [ARGUMENT ...]

A build of LLVM with TFLite does this inside the compiler
(``llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp``). The log has its header: the 38 features,
the model's extra outputs, ``inlining_default`` and ``inlining_decision``; the score is
``delta_size``, int64 [1]. There LLVM logs what a second network estimates that each decision
changed in bytes of native code. Here the change is measured, on the object: it stands at the last
decision, all others have 0, so that both logs mean the same when they are summed up. Negative is
smaller. Where no object comes out (``-S``, ``-emit-llvm``, ``-flto``, a link) there is no score, as
in LLVM without that network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final

import numpy as np

from corpus_tools.code import code_sections
from corpus_tools.errors import ExtractionError
from corpus_tools.object_file import read_bounded
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.scratch import scratch_folder
from mlgo_gym.driver._jobs import Jobs, is_stream
from mlgo_gym.errors import MlgoGymError, UsageError
from mlgo_gym.files import replacing
from mlgo_gym.policies._models import check_files, settings_of_models
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.runners._interactive import DEFAULT_DEADLINE_S, PipeHost
from mlgo_gym.runners._under_training import ModelUnderTrainingRunner
from mlgo_gym.stream._events import Header
from mlgo_gym.stream._training_log import TrainingLogWriter
from mlgo_gym.tensor_spec import TensorSpec

_PIECE_BYTES: Final = 1 << 20
SCORE: Final = TensorSpec("delta_size", "int64_t", (1,))


@dataclass(frozen=True, slots=True)
class _Decision:
    """The raw tensors of one decision: LLVM's features, the model's extra outputs, both answers."""

    features: bytes
    extra: bytes
    default: bytes
    decision: bytes


class _RecordingRunner(ModelUnderTrainingRunner):
    """A model under training that remembers what it was asked and what it said."""

    def __init__(
        self,
        model: Path,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        records: list[_Decision],
    ) -> None:
        super().__init__(model, inputs, output, trusted=os.environ.get("MLGO_TRUST_CODE") == "1")
        self._records = records
        self._default = [spec.name for spec in self.inputs].index(DEFAULT_ADVICE)

    def evaluate_untyped(self) -> memoryview:
        decision = super().evaluate_untyped()
        tensors = [bytes(self.get_tensor_untyped(index)) for index in range(len(self.inputs))]
        default = tensors.pop(self._default)
        extra = b"".join(each.tobytes() for each in self.extra_outputs().values())
        self._records.append(_Decision(b"".join(tensors), extra, default, bytes(decision)))
        return decision

    def header(self, *, is_scored: bool) -> Header:
        """That of LLVM's development mode, for these inputs and outputs."""
        features = [spec for spec in self.inputs if spec.name != DEFAULT_ADVICE]
        logged = (*features, *self._extra, self.inputs[self._default], self.output)
        return Header(logged, SCORE if is_scored else None)


@dataclass(slots=True)
class _Session:
    """One command line of clang, its jobs under a model, and its standard input, read once."""

    _model: Path
    _clang: str
    _arguments: Sequence[str]
    _jobs: Jobs
    _source: IO[bytes] | None
    _records: list[_Decision] = field(default_factory=list)
    _runner: _RecordingRunner | None = None

    def run(self) -> int:
        """Compile; returns clang's exit status."""
        timeout_s = float(os.environ.get("MLGO_TIMEOUT", DEFAULT_DEADLINE_S))
        problem = _problem(self._model)
        making = PipeHost(self._make_runner, deadline_s=timeout_s)
        with making as host, scratch_folder() as folder:
            options = [*problem.advisor_options(host.base), *_with_files(problem, folder)]
            flags = [word for option in options for word in ("-mllvm", option)]
            command = [self._clang, *flags, *self._arguments]
            with subprocess.Popen(command, stdin=self._input(), close_fds=False) as process:
                try:
                    host.serve(lambda: process.poll() is None)
                except BaseException:
                    process.terminate()
                    raise
            return process.returncode

    def write(self, path: Path) -> None:
        """Write the log, if LLVM built an advisor; in a folder, under the name of the output."""
        if self._runner is None:
            return
        output = self._jobs.output
        if path.is_dir() and output is not None:
            path /= f"{output.name}-{hashlib.sha256(bytes(output.absolute())).hexdigest()[:16]}.log"
        change = self._change_bytes()
        with replacing(path) as file:
            log = TrainingLogWriter(file, self._runner.header(is_scored=change is not None))
            log.start_context("")
            for number, each in enumerate(self._records, 1):
                log.log_observation(each.features + each.extra + each.default + each.decision)
                if change is not None:
                    log.log_outcome(np.int64(change if number == len(self._records) else 0))

    def _make_runner(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> _RecordingRunner:
        self._runner = _RecordingRunner(self._model, inputs, output, self._records)
        return self._runner

    def _change_bytes(self) -> int | None:
        """How much more code there is than plain clang makes; ``None`` without an object."""
        objects = self._jobs.objects
        if not objects or not all(each.is_file() for each in objects):
            return None
        if stream := self._jobs.stream:
            _warn(f"the log has no scores: expected files, found {stream!r}, which is read once")
            return None
        with scratch_folder() as folder:
            jobs = self._jobs.elsewhere(folder)
            for command in jobs.commands:
                done = subprocess.run(
                    command, stdin=self._input(), stderr=subprocess.DEVNULL, check=False
                )
                if done.returncode:
                    _warn("the log has no scores: plain clang fails")
                    return None
            try:
                return sum(map(_text_bytes, objects)) - sum(map(_text_bytes, jobs.objects))
            except ExtractionError as error:
                _warn(f"the log has no scores: {error}")
                return None

    def _input(self) -> IO[bytes] | None:
        if self._source is not None:
            self._source.seek(0)
        return self._source


def main(arguments: Sequence[str]) -> int:
    model, log, clang, *rest = arguments
    try:
        with scratch_folder() as folder, tempfile.TemporaryFile() as copy:
            rest = [_response_file(word, folder) for word in rest]
            jobs = Jobs.of(clang, rest)
            if len(jobs.optimised) > 1:
                found = ", ".join(map(repr, jobs.optimised))
                raise UsageError(f"development mode: expected one source, found {found}")
            if jobs.reads_standard_input:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            source = copy if jobs.reads_standard_input else None
            session = _Session(Path(model), clang, rest, jobs, source)
            status = session.run()
            if status == 0 and log:
                session.write(Path(log))
    except (MlgoGymError, OSError) as error:
        sys.stderr.write(f"mlgo-cc: error: {error}\n")
        return 1
    return status if status >= 0 else 128 - status


def _problem(model: Path) -> InliningForSize:
    """The problem, as the model's card and the user's settings say."""
    settings = settings_of_models([str(model)], InliningForSize)
    if threshold := os.environ.get("MLGO_SIZE_INCREASE_THRESHOLD"):
        settings["size_increase_threshold"] = float(threshold)
    if vocabulary := os.environ.get("MLGO_IR2VEC"):
        settings["ir2vec"] = vocabulary
    problem = InliningForSize(**settings)
    if not vocabulary:
        check_files(model, problem)
    return problem


def _with_files(problem: InliningForSize, folder: Path) -> Iterator[str]:
    """The options that name files of a problem, which are written for them."""
    for number, (option, data) in enumerate(problem.files().items()):
        path = folder / f"{number}.json"
        path.write_bytes(data)
        yield f"{option}={path}"


def _response_file(word: str, folder: Path) -> str:
    """The word, or for a response file that can be read only once, one with a copy."""
    if not word.startswith("@") or not is_stream(word[1:]):
        return word
    copy = folder / str(len(list(folder.iterdir())))
    with Path(word[1:]).open("rb") as stream:
        pieces = iter(partial(stream.read, _PIECE_BYTES), b"")
        data = b"".join(islice(pieces, LARGEST_TEXT_BYTES // _PIECE_BYTES + 1))
    if len(data) > LARGEST_TEXT_BYTES:
        raise UsageError(f"{word}: expected at most {LARGEST_TEXT_BYTES} bytes, found more")
    copy.write_bytes(data)
    return f"@{copy}"


def _text_bytes(path: Path) -> int:
    return sum(len(each.content) for each in code_sections(read_bounded(path), str(path)))


def _warn(words: str) -> None:
    sys.stderr.write(f"mlgo-cc: warning: {words}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
