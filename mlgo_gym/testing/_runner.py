"""The contract of model runners."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mlgo_gym.base import MlgoGymError, SpecError, TensorSpec, UsageError
from mlgo_gym.runners import MLModelRunner, RunnerFactory
from mlgo_gym.testing._contract import ContractError, expect, expect_error

_UNKNOWN: Final = TensorSpec("mlgo_gym_input_that_no_model_knows", "int64_t", (3,))


def check_runner(
    factory: RunnerFactory,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    *,
    needs: str | None = None,
    has_model: bool = True,
    seed: int = 0,
) -> None:
    """Check that the runners of a factory keep `MLModelRunner`'s contract.

    Inputs are filled with small whole numbers, since every scalar type holds them.

    Args:
        factory: makes runners for any inputs that include the given ones.
        inputs: the specs of what is offered.
        output: the spec of the answer.
        needs: the name of an input without which the factory must refuse; ``None`` where it can
            do without any.
        has_model: evaluating gives an answer; false for runners such as `NoInferenceModelRunner`.
        seed: of what the inputs are filled with.

    Raises:
        ContractError: a clause is broken.

    >>> from mlgo_gym.runners import ScriptedRunner
    >>> inputs, output = [TensorSpec("x", "int64_t", (1,))], TensorSpec("y", "int64_t", (1,))
    >>> def factory(inputs, output):
    ...     return ScriptedRunner(lambda values: int(values["x"][0] > 50), inputs, output)
    >>> check_runner(factory, inputs, output)
    """
    check = _Check(factory, tuple(inputs), output, np.random.default_rng(seed))
    check.buffers()
    check.lifetimes()
    check.sizes()
    check.independence()
    if has_model:
        check.answers()
        check.versioning()
    if needs is not None:
        check.missing_input(needs)


@dataclass(frozen=True, slots=True)
class _Check:
    factory: RunnerFactory
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    random: np.random.Generator

    def buffers(self) -> None:
        """Every input has one contiguous, writable buffer of its spec, typed and untyped."""
        with self.factory(self.inputs, self.output) as runner:
            expect("inputs", self.inputs, runner.inputs)
            expect("output", self.output, runner.output)
            for index, spec in enumerate(self.inputs):
                tensor, raw = runner.get_tensor(index), runner.get_tensor_untyped(index)
                expect(f"dtype of {spec.name!r}", spec.dtype, tensor.dtype)
                expect(f"shape of {spec.name!r}", spec.shape, tensor.shape)
                expect(f"contiguity of {spec.name!r}", True, tensor.flags.c_contiguous)
                expect(f"size in bytes of {spec.name!r}", spec.size_bytes, raw.nbytes)
                self._fill(tensor)
                expect(f"untyped view of {spec.name!r}", tensor.tobytes(), raw.tobytes())
            members = {f"f{index}": index for index in range(len(self.inputs))}
            by_enumeration = enum.IntEnum("Feature", members)  # type: ignore[misc]
            for member in by_enumeration:
                expect(
                    "index by enumeration", _address(runner, int(member)), _address(runner, member)
                )

    def answers(self) -> None:
        """Answers fit the spec and repeat; buffers stay where they are and as they are."""
        with self.factory(self.inputs, self.output) as runner:
            addresses = [_address(runner, index) for index in range(len(self.inputs))]
            for context in ("first", "second"):
                runner.switch_context(context)
                before = self._fill_all(runner)
                answer = runner.evaluate()
                expect("dtype of the answer", self.output.dtype, answer.dtype)
                expect("shape of the answer", self.output.shape, answer.shape)
                raw = bytes(runner.evaluate_untyped())
                expect("answer to the same inputs", answer.tobytes(), raw)
                after = [runner.get_tensor(index).tobytes() for index in range(len(self.inputs))]
                expect("inputs after evaluating", before, after)
            moved = [_address(runner, index) for index in range(len(self.inputs))]
            expect("addresses of the buffers", addresses, moved)

    def versioning(self) -> None:
        """An input that the model does not know gets a buffer, and changes nothing."""
        offered = (self.inputs[0], _UNKNOWN, *self.inputs[1:])
        with (
            self.factory(self.inputs, self.output) as old,
            self.factory(offered, self.output) as new,
        ):
            old.switch_context("")
            new.switch_context("")
            self._fill_all(old)
            self._fill(new.get_tensor(1))
            for index in range(len(self.inputs)):
                new.get_tensor(index + (index > 0))[...] = old.get_tensor(index)
            expect(
                "answer with an unknown input", old.evaluate().tobytes(), new.evaluate().tobytes()
            )

    def missing_input(self, name: str) -> None:
        """An input that the model needs and nobody offers is an error that names it."""
        offered = [spec for spec in self.inputs if spec.name != name]
        try:
            self.factory(offered, self.output).close()
        except MlgoGymError as error:
            expect(f"{name!r} in the message {str(error)!r}", True, name in str(error))
        else:
            raise ContractError(f"missing input {name!r}: expected an error, found none")

    def sizes(self) -> None:
        """A packed observation of the right size is taken apart; another is refused."""
        with self.factory(self.inputs, self.output) as runner:
            parts = [self.random.integers(0, 2, spec.size_bytes, np.uint8) for spec in self.inputs]
            payload = b"".join(part.tobytes() for part in parts)
            runner.fill(payload)
            for index, part in enumerate(parts):
                expect(
                    f"input {index} after fill",
                    part.tobytes(),
                    bytes(runner.get_tensor_untyped(index)),
                )
            expect_error(
                "an observation that is too long", SpecError, lambda: runner.fill(payload + b"x")
            )

    def lifetimes(self) -> None:
        """Closing twice is safe; a closed runner answers nothing; views of it stay readable."""
        runner = self.factory(self.inputs, self.output)
        views = [runner.get_tensor(index) for index in range(len(self.inputs))]
        runner.close()
        runner.close()
        expect_error("evaluate after close", UsageError, runner.evaluate)
        del runner
        for view in views:
            view.sum()

    def independence(self) -> None:
        """Two runners of one factory share no buffers."""
        with (
            self.factory(self.inputs, self.output) as one,
            self.factory(self.inputs, self.output) as other,
        ):
            for index in range(len(self.inputs)):
                one.get_tensor(index)[...] = 1
                other.get_tensor(index)[...] = 0
                expect(
                    f"input {index} of the other runner", True, bool(one.get_tensor(index).all())
                )

    def _fill_all(self, runner: MLModelRunner) -> list[bytes]:
        for index in range(len(self.inputs)):
            self._fill(runner.get_tensor(index))
        return [runner.get_tensor(index).tobytes() for index in range(len(self.inputs))]

    def _fill(self, tensor: np.ndarray[Any, Any]) -> None:
        tensor[...] = self.random.integers(0, 100, tensor.shape)


def _address(runner: MLModelRunner, index: int) -> int:
    return int(runner.get_tensor(index).ctypes.data)


def round_trips_us(
    runner: MLModelRunner, count: int, *, warm_up: int = 200
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Time a runner's evaluations of its present inputs: float64 [count], microseconds.

    Evaluations are timed one by one, after some that are not; the inputs stay as they are.

    >>> from mlgo_gym.runners import ScriptedRunner
    >>> inputs, output = [TensorSpec("x", "int64_t", (1,))], TensorSpec("y", "int64_t", (1,))
    >>> round_trips_us(ScriptedRunner(lambda values: 1, inputs, output), 10).shape
    (10,)
    """
    for _ in range(warm_up):
        runner.evaluate_untyped()
    times = np.empty(count, np.float64)
    for index in range(count):
        start_ns = time.perf_counter_ns()
        runner.evaluate_untyped()
        times[index] = (time.perf_counter_ns() - start_ns) / 1000
    return times
