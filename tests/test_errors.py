"""Every error can be sent to another process: it comes back with its class, message and data."""

from __future__ import annotations

import copy
import inspect
import pickle  # noqa: TID251 - what is pickled here is our own
import subprocess
import sys

import pytest

from mlgo_gym import errors
from mlgo_gym.errors import CompilationError, DecisionLimitError, MlgoGymError

NAMES = ("model", "module", "trace", "profile", "dataset", "message")
CLASSES = [getattr(errors, name) for name in errors.__all__]


def _made(kind: type[MlgoGymError]) -> MlgoGymError:
    values: dict[str, object] = {"exit_status": -6, "stderr_tail": ("LLVM ERROR: a", "b")}
    values |= {name: f"a {name}" for name in NAMES}
    wanted = inspect.signature(kind.__init__).parameters
    own = {name: value for name, value in values.items() if name in wanted}
    return kind(**own) if own else kind("what went wrong")


@pytest.mark.parametrize("kind", CLASSES, ids=errors.__all__)
def test_pickle(kind: type[MlgoGymError]) -> None:
    error = _made(kind)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301
        assert type(found) is kind
        assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_a_class_is_pickled_by_its_name() -> None:
    """Cloudpickle, which Ray uses, copies a class whose module is not loaded."""
    program = (
        "import cloudpickle, sys; from mlgo_gym.base import ModuleError; "
        "sys.stdout.buffer.write(cloudpickle.dumps(ModuleError('a', 'b')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert type(pickle.loads(done.stdout)) is errors.ModuleError  # noqa: S301


def test_data() -> None:
    crash = _made(errors.CompilerCrashError)
    found = pickle.loads(pickle.dumps(crash))  # noqa: S301
    assert isinstance(found, CompilationError)
    assert (found.module, found.exit_status) == ("a module", -6)
    assert found.stderr_tail == ("LLVM ERROR: a", "b")
    assert str(found).endswith("its last words:\n  LLVM ERROR: a\n  b")


def test_copy_and_notes() -> None:
    error = DecisionLimitError("main.c", "took more than its 3 decisions")
    error.add_note("in row 2")
    found = copy.copy(error)
    assert (str(found), found.module, found.__notes__) == (str(error), "main.c", ["in row 2"])


def test_all_classes_are_listed() -> None:
    found = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    classes = {name for name, each in found.items() if issubclass(each, Exception)}
    assert classes == set(errors.__all__)
