"""Runners by the name of their mode, as commands ask for them."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_gym.errors import OptionsError
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
