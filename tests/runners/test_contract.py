"""One suite over every runner: see also the tests of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._base import ScriptedRunner
from mlgo_gym.runners._load import MODES, runner_factory
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc._server import serve_grpc
from mlgo_gym.testing import check_runner

MODEL = Path(__file__).parent.parent / "models" / "inliner"
FEATURES = tuple(each.spec for each in InliningForSize().layout.features)
ADVICE = InliningForSize.advice


def cheap(inputs: Sequence[TensorSpec], output: TensorSpec) -> ScriptedRunner:
    return ScriptedRunner(lambda values: values["cost_estimate"] < 50, inputs, output)


@pytest.fixture(params=["localhost:0", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    wanted = f"unix:{tmp_path}/socket" if request.param == "unix" else str(request.param)
    with serve_grpc(cheap, address=wanted) as host:
        yield host.address


def test_grpc_keeps_the_contract(address: str) -> None:
    check_runner(partial(GrpcInteractiveModelRunner, address, deadline_s=60), FEATURES, ADVICE)


@pytest.mark.parametrize("mode", ["release", "under-training"])
def test_models_keep_the_contract(mode: str) -> None:
    check_runner(runner_factory(str(MODEL), mode), FEATURES, ADVICE, needs="cost_estimate")


def test_every_mode_has_a_factory() -> None:
    factories: list[Callable[..., object]] = [
        runner_factory("unix:/run/host", mode) for mode in MODES
    ]
    assert len(factories) == len(MODES)


def test_a_model_is_no_address() -> None:
    """Said once, before anything is compiled."""
    with pytest.raises(OptionsError) as caught:
        runner_factory("inlining-for-size", "interactive")
    assert str(caught.value) == (
        "gRPC address 'inlining-for-size': expected HOST:PORT, [IPV6]:PORT or unix:PATH"
    )
