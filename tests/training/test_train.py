"""Training by name: what there is no trainer for, and what is left out."""

from __future__ import annotations

import errno
import hashlib
import pickle  # noqa: TID251 - what is pickled here is our own
import shutil
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.errors import (
    CompilerCrashError,
    MlgoGymError,
    ModuleError,
    OptionsError,
    TraceError,
    TrainingError,
)
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.training._data import check_lasting, describe
from mlgo_gym.training._train import Watcher, imported, train
from tests.conftest import free_descriptors


class Kept(Watcher):
    """All that a watcher is told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.stages: list[str] = []

    def doing(self, what: str) -> None:
        self.stages.append(what)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_a_trainer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as error:
        train("ppo", SAMPLE_CORPUS, output=tmp_path / "run")
    assert str(error.value) == (
        "trainer: expected one of clone, imitate, advantage, group, evolution, found 'ppo'"
    )
    assert not (tmp_path / "run").exists()


def test_keywords_and_budgets_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nosuch'"):
        train("clone", SAMPLE_CORPUS, output=tmp_path / "run", nosuch=1)  # type: ignore[call-arg]
    for minutes in (0, -1, float("nan")):
        with pytest.raises(OptionsError, match="budget_minutes: expected a number above 0"):
            train("clone", SAMPLE_CORPUS, output=tmp_path / "run", budget_minutes=minutes)


def test_what_is_left_out_is_said_once(tmp_path: Path) -> None:
    """Two packages have the same broken module, and nothing else."""
    (tmp_path / "broken.c.bc").write_bytes(b"no bitcode")
    broken = Corpus(tmp_path, ("broken.c",))
    watcher = Kept()
    with pytest.raises(TrainingError, match="expected modules to train on, found none"):
        train(
            "advantage",
            {"a": broken, "b": broken, "c": broken},
            output=tmp_path / "run",
            hold_out_packages=["c"],
            watcher=watcher,
        )
    assert watcher.stages == ["survey"]
    assert watcher.warnings == [
        "module 'broken.c': LLVM bitcode parsing error\nInvalid bitcode signature; left out"
    ]


def test_a_module_that_cannot_be_read_now(tmp_path: Path) -> None:
    """The card of a model would have another hash, and the run's folder another configuration."""
    (tmp_path / "a.c.bc").write_bytes(b"no bitcode")
    packages = Packages.of({"mine": Corpus(tmp_path, ("a.c",))})
    with free_descriptors(0), pytest.raises(ModuleError) as error:
        describe(packages)
    path = str(tmp_path / "a.c.bc")
    said = f"module 'a.c': cannot read {path!r}: Too many open files"
    assert str(error.value) == said
    with pytest.raises(TrainingError) as left:
        check_lasting(Failure(error.value, "mine"))
    assert str(left.value) == f"mine: {said}; this may pass, start again"
    (tmp_path / "a.c.bc").unlink()
    with pytest.raises(ModuleError) as missing:
        packages[ModuleKey("mine", "a.c")]
    check_lasting(Failure(missing.value))
    nothing = hashlib.sha256().hexdigest()
    assert describe(packages) == {
        "modules": {"mine": 1},
        "sha256": nothing,
        "options_sha256": nothing,
    }


def test_a_run_is_not_gone_on_with_at_another_level(tmp_path: Path) -> None:
    """The bitcode is the same; the command line beside it is not."""
    name = "json_write.c"
    for suffix in (".bc", ".cmd"):
        shutil.copy(SAMPLE_CORPUS / f"{name}{suffix}", tmp_path)
    packages = Packages.of({"mine": Corpus(tmp_path, (name,))})
    before = describe(packages)
    command = (tmp_path / f"{name}.cmd").read_bytes()
    (tmp_path / f"{name}.cmd").write_bytes(command.replace(b"-Oz", b"-O3"))
    after = describe(packages)
    assert {key for key in before if before[key] != after[key]} == {"options_sha256"}


@pytest.mark.parametrize("is_sent", [False, True])
def test_what_may_pass_is_known_by_the_number(*, is_sent: bool) -> None:
    """Whatever the message says before or behind it, and also if it comes from another process."""

    def sent(error: MlgoGymError) -> Failure:
        return Failure(pickle.loads(pickle.dumps(error)) if is_sent else error)  # noqa: S301

    full = ModuleError("a.c", "no room for it; timeout_s or --timeout lifts the limit")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    wrapped = TraceError("a.trace", "unreadable")
    wrapped.__cause__ = full
    words = ("error: Cannot open outbound file: No space left on device",)
    crash = CompilerCrashError("a.c", "LLVM ended", exit_status=1, stderr_tail=words)
    for error in (full, wrapped, crash):
        with pytest.raises(TrainingError, match="this may pass, start again"):
            check_lasting(sent(error))
    check_lasting(sent(ModuleError("a.c", "it says: No space left on device")))


def test_a_part_of_training_that_is_not_there() -> None:
    """It is no missing extra."""
    with pytest.raises(ModuleNotFoundError) as error:
        imported("nothing")
    assert error.value.name == "mlgo_gym.training._nothing"
