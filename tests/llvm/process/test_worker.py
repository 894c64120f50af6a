"""Workers: which llvmlite they take, how they start and how they end."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.llvm._launch import LLVMLITE, check_llvm, check_llvmlite
from mlgo_gym.llvm._worker_process import Worker, WorkerDiedError, describe_exit


@pytest.mark.parametrize("version", ["0.48.0", "0.50.0", "1.0", "0.48.1rc1"])
def test_llvmlite_that_will_do(version: str) -> None:
    check_llvmlite(version)


@pytest.mark.parametrize("version", ["0.47.0", "0.46.1", "0.5", None])
def test_llvmlite_that_will_not_do(version: str | None) -> None:
    with pytest.raises(EnvironmentSetupError) as caught:
        check_llvmlite(version)
    assert str(caught.value) == (
        f"llvmlite: expected version 0.48 or newer, found {version or 'none'}; "
        "run: pip install 'llvmlite>=0.48,<0.51'"
    )


def test_llvm_that_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    check_llvm("22.1.0", "0.50.0")
    check_llvm("22", "0.48.0")
    monkeypatch.setenv("MLGO_ANY_LLVM", "1")
    check_llvm("23.1.0", "0.60.0")


@pytest.mark.parametrize("version", ["20.1.8", "23.1.0", "2.2", "221.0"])
def test_llvm_that_will_not_do(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_ANY_LLVM", "0")
    with pytest.raises(EnvironmentSetupError) as caught:
        check_llvm(version, "0.60.0")
    assert str(caught.value) == (
        f"LLVM: expected version 22, found {version} in llvmlite 0.60.0; "
        "run: pip install 'llvmlite>=0.48,<0.51', or set MLGO_ANY_LLVM=1 to go on at your own risk"
    )


def test_pip_is_asked_for_what_the_package_asks_for() -> None:
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    assert LLVMLITE in tomllib.loads(pyproject.read_text())["project"]["dependencies"]


def test_it_says_what_it_is_and_ends() -> None:
    worker = Worker()
    assert worker.versions["llvm"].startswith("22.")
    worker.close()
    worker.close()
    assert not psutil.pid_exists(worker.pid)


def test_it_is_small_and_has_one_thread() -> None:
    worker = Worker()
    try:
        process = psutil.Process(worker.pid)
        assert process.num_threads() == 1
        loaded = {Path(each.path).name.partition(".")[0] for each in process.memory_maps()}
        assert "libllvmlite" in loaded
        assert "_multiarray_umath" not in loaded  # numpy
    finally:
        worker.close()


def test_the_current_folder_shadows_nothing(
    monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    (own_temporary_folder / "hashlib.py").write_text("raise SystemExit('taken over')\n")
    monkeypatch.chdir(own_temporary_folder)
    Worker().close()
    gone = own_temporary_folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    Worker().close()


def test_a_child_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    broken = own_temporary_folder / "llvmlite"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no LLVM on this machine')\n")
    monkeypatch.syspath_prepend(str(own_temporary_folder))
    with pytest.raises(EnvironmentSetupError) as caught:
        Worker()
    message = str(caught.value)
    assert message == "worker: could not start: ImportError: no LLVM on this machine"


def test_what_it_writes_after_garbage() -> None:
    worker = Worker()
    worker.send({"op": "compile"})  # lacks everything that a request has
    with pytest.raises(WorkerDiedError, match="^worker died with exit status 1$") as caught:
        _wait_for_the_end(worker)
    assert caught.value.stderr_tail[-1].startswith(
        "mlgo_gym.errors.InternalError: request: CompileRequest.__init__() missing 8 required"
    )


def _wait_for_the_end(worker: Worker) -> None:
    for _ in range(10):
        worker.wait(10)


def test_exit_statuses_in_words() -> None:
    assert describe_exit(3) == "exit status 3"
    assert describe_exit(-11) == "signal 11 (SIGSEGV)"
    assert describe_exit(-250) == "signal 250"


def test_importing_loads_no_llvm() -> None:
    script = (
        "import sys, mlgo_gym; print([m for m in sys.modules if m in ('llvmlite', 'tensorflow')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
