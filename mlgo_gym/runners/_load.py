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
from mlgo_gym.base import ModelError, OptionsError, TensorSpec, read_bounded, write_atomically
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners.grpc._address import Address

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
    """Return a function that makes runners of a mode.

    Args:
        model: a folder or file, or the name of a shipped model; with ``interactive``, the host's
            address (``HOST:PORT`` or ``unix:PATH``).
        mode: one of `MODES`.
        trusted: run the model's files in this process, whoever made them.
        token: with ``interactive``, the host's bearer token.
        certificate: with ``interactive``, in PEM the host's certificate, or that of who signed it,
            where it speaks TLS.

    Raises:
        OptionsError: there is no such mode, or what is given is no address of a host.

    >>> from mlgo_gym.problems import InliningForSize
    >>> make = runner_factory("inlining-for-size", "release")
    >>> with make(InliningForSize().layout.specs, InliningForSize.advice) as runner:
    ...     int(runner.evaluate()[0]) in (0, 1)
    True
    """
    if mode not in MODES:
        raise OptionsError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    if mode == "interactive":
        Address(model)
    settings: dict[str, object] = {"token": token, "credentials": certificate}
    if mode in IN_PROCESS:
        from mlgo_gym.model import find_model  # noqa: PLC0415 (slow to import)

        model, settings = find_model(model), {"trusted": trusted}
    return RunnerOfMode(mode, model, settings)


def check_model(model: str, mode: str, *, trusted: bool = False) -> None:
    """See that a model's files are those of one, whatever it answers.

    Args:
        model: a folder or file, or the name of a shipped model.
        mode: one of `IN_PROCESS`.
        trusted: load the model's files in this process, whoever made them.

    Raises:
        ModelError: they are not.
    """
    from mlgo_gym.model import find_model  # noqa: PLC0415 (slow to import)

    path = Path(find_model(model))
    if mode == RELEASE:
        from mlgo_gym.runners._model_runners import load_native  # noqa: PLC0415

        load_native(path, trusted=trusted)
        return
    from mlgo_gym.model import graph_file  # noqa: PLC0415
    from mlgo_gym.runners._interpreter import ChildInterpreter  # noqa: PLC0415

    with graph_file(path, trusted=trusted) as graph:
        ChildInterpreter(graph, model).close()


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
        settings = dict(self.settings)
        if self.mode not in IN_PROCESS:
            return RunnerOfMode, (self.mode, self.model, settings)
        path = Path(self.model)
        frozen = _frozen(path) if self.mode == RELEASE else None
        if frozen:  # what may run here may run there, where this user has no key
            settings["trusted"] = _loads(frozen, trusted=bool(settings["trusted"]))
        files = [frozen, frozen.with_suffix(".o")] if frozen == path else _files(path)
        root = path if path.is_dir() else path.parent
        return _unpacked, (self.mode, str(path.relative_to(root)), _read(root, files), settings)


def _frozen(path: Path) -> Path | None:
    """The description of a frozen model, where it is one."""
    from mlgo_gym.model import find_description  # noqa: PLC0415 (slow to import)

    return path if path.suffix == ".json" else find_description(path)


def _loads(frozen: Path, *, trusted: bool) -> bool:
    """See that a frozen model may run on this machine, and can."""
    from mlgo_gym.model import load_frozen  # noqa: PLC0415 (slow to import)

    load_frozen(frozen, trusted=trusted)
    return True


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def _read(root: Path, files: Sequence[Path]) -> tuple[tuple[str, bytes], ...]:
    """Files by their names in a folder.

    Raises:
        ModelError: one cannot be read, or they are too large.
    """
    found: list[tuple[str, bytes]] = []
    left = MAX_SENT_BYTES
    for each in files:
        try:
            data = read_bounded(each, left)
        except OSError as error:
            raise ModelError(str(root), f"{each.name}: cannot be sent: {error.strerror}") from error
        found.append((str(each.relative_to(root)), data))
        left -= len(data)
    return tuple(found)


def _unpacked(
    mode: str, within: str, files: tuple[tuple[str, bytes], ...], settings: Mapping[str, object]
) -> RunnerOfMode:
    """Load a model that came with its files.

    Raises:
        ModelError: it is frozen, and this CPU lacks what it needs.
    """
    path = _folder_of(files) / within
    if mode == RELEASE and (frozen := _frozen(path)):
        _loads(frozen, trusted=bool(settings["trusted"]))
    return RunnerOfMode(mode, str(path), settings)


@functools.cache
def _folder_of(files: tuple[tuple[str, bytes], ...]) -> Path:
    """Write files to a folder that lives until this process ends."""
    folder = _FOLDERS.enter_context(scratch_folder())
    for within, data in files:
        path = folder / within
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    return folder
