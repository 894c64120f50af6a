"""Runners by the name of their mode, as commands ask for them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from mlgo_gym.errors import OptionsError
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners.grpc._address import Address
from mlgo_gym.tensor_spec import TensorSpec

MODES: Final = ("release", "under-training", "interactive")
"""``release`` compiles a model directory, or loads a frozen model; ``under-training`` runs a model
directory in TFLite; ``interactive`` asks a gRPC host."""


def runner_factory(model: str, mode: str) -> RunnerFactory:
    """What makes runners of a mode.

    Args:
        model: a folder or file; with ``interactive``, the host's address (``HOST:PORT`` or
            ``unix:PATH``).
        mode: one of `MODES`.

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
    makers = {"release": _release, "under-training": _under_training, "interactive": _interactive}
    return functools.partial(makers[mode], model)


# Each mode needs packages of its own, so each is imported when it is used.


def _release(model: str, inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
    from mlgo_gym.runners._release import ReleaseModeModelRunner  # noqa: PLC0415

    return ReleaseModeModelRunner(model, inputs, output)


def _under_training(model: str, inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
    from mlgo_gym.runners._under_training import ModelUnderTrainingRunner  # noqa: PLC0415

    return ModelUnderTrainingRunner(model, inputs, output)


def _interactive(model: str, inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
    from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner  # noqa: PLC0415

    return GrpcInteractiveModelRunner(model, inputs, output)
