"""Runners by the name of their mode, as commands ask for them."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping, Sequence
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

IN_PROCESS: Final = ("release", "under-training")
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
    return functools.partial(_made, _CLASSES[mode], settings, model)


def _made(
    place: str,
    settings: Mapping[str, object],
    model: str,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
) -> MLModelRunner:
    runner: MLModelRunner = pkgutil.resolve_name(place)(model, inputs, output, **settings)
    return runner
