"""Runners by the name of their mode, as commands ask for them."""

from __future__ import annotations

import atexit
import functools
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpus_tools.scratch import scratch_folder
from mlgo_gym.errors import ModelError, OptionsError
from mlgo_gym.files import read_bounded, write_atomically
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners.grpc._address import Address
from mlgo_gym.tensor_spec import TensorSpec

_CLASSES: Final = {
    "release": "mlgo_gym.runners:ReleaseModeModelRunner",
    "under-training": "mlgo_gym.runners:ModelUnderTrainingRunner",
    "interactive": "mlgo_gym.runners.grpc:GrpcInteractiveModelRunner",
}
"""Where the class of each mode stands; each needs packages of its own, and is loaded when used."""

RELEASE: Final = "release"
IN_PROCESS: Final = (RELEASE, "under-training")
"""The modes that run a model's files in this process, without a host."""

MAX_SENT_BYTES: Final = 1 << 28
"""The most that the files of a model may have together that goes to another machine."""

_FOLDERS: Final = ExitStack()
atexit.register(_FOLDERS.close)

MODES: Final = tuple(_CLASSES)
"""``release`` compiles a model directory, or loads a frozen model; ``under-training`` runs a model
directory in TFLite; ``interactive`` asks a gRPC host."""


def runner_factory(
    model: str,
    mode: str,
    *,
    trusted: bool = False,
    token: str | None = None,
    certificate: bytes | None = None,
) -> RunnerFactory:
    """What makes runners of a mode.

    Args:
        model: a folder or file; with ``interactive``, the host's address (``HOST:PORT`` or
            ``unix:PATH``).
        mode: one of `MODES`.
        trusted: run the model's files in this process, whoever made them.
        token: with ``interactive``, the host's bearer token.
        certificate: with ``interactive``, in PEM the host's certificate, or that of who signed it,
            where it speaks TLS.

    Raises:
        OptionsError: there is no such mode, or what is given is no address of a host.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.problems import InliningForSize
    >>> make = runner_factory(find_model("inlining-for-size"), "release")
    >>> with make(InliningForSize.sent(), InliningForSize.advice) as runner:
    ...     int(runner.evaluate()[0]) in (0, 1)
    True
    """
    if mode not in MODES:
        raise OptionsError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    if mode == "interactive":
        Address(model)
    settings: dict[str, object] = {"token": token, "credentials": certificate}
    if mode in IN_PROCESS:
        settings = {"trusted": trusted}
    return RunnerOfMode(mode, model, settings)


@dataclass(frozen=True, slots=True)
class RunnerOfMode:
    """Makes runners of a mode for a model; `runner_factory` makes it."""

    mode: str
    model: str
    settings: Mapping[str, object]

    def __call__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
        kind = pkgutil.resolve_name(_CLASSES[self.mode])
        runner: MLModelRunner = kind(self.model, inputs, output, **self.settings)
        return runner

    def __reduce__(self) -> tuple[Callable[..., RunnerOfMode], tuple[object, ...]]:
        """A copy has the model's files with it, and needs none of this machine's."""
        if self.mode not in IN_PROCESS:
            return RunnerOfMode, (self.mode, self.model, dict(self.settings))
        path = Path(self.model)
        return _unpacked, (self.mode, path.name, files_of_model(path), dict(self.settings))


def files_of_model(path: Path) -> dict[str, bytes]:
    """The files of a model, by their names in its folder; of one file, by ``""``.

    Raises:
        ModelError: one cannot be read.
    """
    found = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    files: dict[str, bytes] = {}
    for each in found:
        name = "" if each == path else str(each.relative_to(path))
        left = MAX_SENT_BYTES - sum(map(len, files.values()))
        try:
            files[name] = read_bounded(each, left)
        except OSError as error:
            raise ModelError(str(path), f"{each.name}: cannot be sent: {error.strerror}") from error
    return files


def _unpacked(
    mode: str, name: str, files: Mapping[str, bytes], settings: Mapping[str, object]
) -> RunnerOfMode:
    """The same for a model that came with all of its files."""
    return RunnerOfMode(mode, str(_folder_of(name, tuple(files.items()))), settings)


@functools.cache
def _folder_of(name: str, files: tuple[tuple[str, bytes], ...]) -> Path:
    """Where a model's files are, until this process ends."""
    folder = _FOLDERS.enter_context(scratch_folder())
    for within, data in files:
        path = folder / name / within
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    return folder / name
