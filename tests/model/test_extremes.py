"""Values at which C, the CPU or a formula as it stands would trap, overflow or say nonsense."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mlgo_gym.model._model import compile_model
from tests.model.agreement import Array, buffers
from tests.model.make_models import FOLDER

# In a process of its own, which the CPU ends where the quotient is asked of it.
DIVIDE = """
import sys
import numpy as np
from mlgo_gym.model import compile_model
native = compile_model(sys.argv[1], trusted=True)
least = np.iinfo(np.int32).min
by_name = {
    "x": np.array([[least, least + 1, 7, 0, -7]] * 3, np.int32),
    "y": np.array([-1, -1, -1, -1, 2], np.int32),
}
answer = np.zeros((3, 5), np.int32)
with native.bind([by_name[each.spec.name] for each in native.inputs], [answer]) as bound:
    print(bound.call(), answer.tolist())
"""


def evaluated(name: str, given: Array) -> dict[str, Array]:
    """The outputs of a model of one input."""
    native = compile_model(FOLDER / f"{name}.tflite", trusted=True)
    (values,), answers = buffers(native.inputs), buffers(native.outputs)
    values[...] = given
    with native.bind([values], answers) as bound:
        assert bound.call() == 0
    return {port.spec.name: answer for port, answer in zip(native.outputs, answers, strict=True)}


def test_the_one_quotient_that_overflows() -> None:
    """It wraps around, as all integers do."""
    command = [sys.executable, "-c", DIVIDE, str(FOLDER / "div_int32.tflite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row = [-(2**31), 2**31 - 1, -7, 0, -3]
    assert (done.returncode, done.stdout) == (0, f"0 {[row] * 3}\n")


def test_floats_beyond_an_integer_become_the_nearest() -> None:
    given = np.array([3e9, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan], np.float32)
    found = evaluated("cast_float32", given)
    for name in ("int32", "int64"):
        ends = np.iinfo(name)
        expected = [min(max(int(each), ends.min), ends.max) for each in given[:4].tolist()]
        assert found[name].tolist() == [*expected, ends.max, ends.min, 0]


@pytest.mark.parametrize("place", [0, 9, 20])
def test_softmax_of_large_logits(place: int) -> None:
    """Their exponentials are infinite, or all 0; what counts is how far they are apart."""
    given = np.full((3, 4, 21), -1e3, np.float32)
    given[0] = 1e3
    given[0, :, place] += 2
    given[1, :, place] += 2
    given[2, :, place] = 1e3
    (found,) = evaluated("softmax", given).values()
    exponentials = np.exp(given.astype(np.float64) - given.max(axis=-1, keepdims=True))
    expected = exponentials / exponentials.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)
