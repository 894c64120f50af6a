"""Machine code of others is not run unless somebody says so, whatever way it comes in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym import SAMPLE_CORPUS
from mlgo_gym.errors import OptionsError
from mlgo_gym.evaluation import evaluate
from mlgo_gym.model._freeze import freeze, load_frozen, seal
from mlgo_gym.problems import InliningForSize
from mlgo_gym.runners import ReleaseModeModelRunner, runner_factory
from tests.cli.command import run

MODELS = Path(__file__).parents[1] / "models"
SENT, ADVICE = InliningForSize().layout.specs, InliningForSize.advice
ASK = (
    "model {!r}: expected machine code that this user has frozen on this machine, found another's, "
    "which would run as this user; if you trust it, pass --trust-code (in Python trusted=True, for "
    "mlgo-cc MLGO_TRUST_CODE=1)"
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's key will be; there is none yet."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "mlgo-gym"


@pytest.fixture
def own(state: Path, tmp_path: Path) -> Path:
    """What this user has frozen."""
    freeze(MODELS / "default", tmp_path / "own", name="policy", trusted=True)
    assert state.is_dir()
    return tmp_path / "own"


@pytest.fixture
def strange(own: Path, state: Path) -> Path:
    """The same as it is to somebody with another key."""
    (state / "key").write_bytes(bytes(32))
    return own


def test_what_was_frozen_here_is_loaded_wherever_it_is(own: Path, tmp_path: Path) -> None:
    elsewhere = own.rename(tmp_path / "elsewhere")
    with ReleaseModeModelRunner(elsewhere, SENT, ADVICE) as runner:
        assert runner.evaluate().item() == 0


def refused(load: Callable[[], object], path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        load()
    assert str(caught.value) == ASK.format(str(path))


def test_what_others_froze_is_refused_and_loaded_when_trusted(strange: Path) -> None:
    refused(lambda: load_frozen(strange), strange)
    refused(lambda: load_frozen(strange / "policy.json"), strange / "policy.json")
    refused(lambda: ReleaseModeModelRunner(strange, SENT, ADVICE), strange)
    refused(lambda: runner_factory(str(strange), "release")(SENT, ADVICE), strange)
    refused(lambda: evaluate(strange, SAMPLE_CORPUS), strange)
    assert load_frozen(strange, trusted=True)[0].name == "policy"
    with runner_factory(str(strange), "release", trusted=True)(SENT, ADVICE) as runner:
        assert runner.evaluate().item() == 0


COMMANDS = (
    ("rollout",),
    ("evaluate",),
    ("compile", SAMPLE_CORPUS / "frame_stream.c.bc", "-o", "x.o"),
    ("search", "--output", "traces"),
    ("explain-features",),
    ("dataset", "record", "--output", "data"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_every_command_asks(command: tuple[str | Path, ...], strange: Path, tmp_path: Path) -> None:
    done = run(*command, "--model", strange, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {ASK.format(str(strange))}\n")


def test_a_command_that_is_told_to_trust(strange: Path, tmp_path: Path) -> None:
    source = SAMPLE_CORPUS / "frame_stream.c.bc"
    done = run("compile", source, "-o", "x.o", "--model", strange, "--trust-code", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "x.o").stat().st_size > 0


def _change(folder: Path, **values: Any) -> None:
    path = folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _another_object(folder: Path) -> None:
    (folder / "policy.o").write_bytes(b"\x7fELF")
    _change(folder, object_sha256=hashlib.sha256(b"\x7fELF").hexdigest())


def _another_shape(folder: Path) -> None:
    """What the code is given is not what it was made for."""
    described = json.loads((folder / "policy.json").read_text())
    described["outputs"][0]["spec"]["shape"] = [64]
    _change(folder, outputs=described["outputs"])


@pytest.mark.parametrize(
    "change",
    [
        _another_object,
        _another_shape,
        lambda folder: _change(folder, name="other"),
        lambda folder: _change(folder, seal=None),
        lambda folder: _change(folder, seal="0" * 64),
        lambda folder: _change(folder, seal="\ud800"),
        lambda folder: _change(folder, seal=["0" * 64]),
    ],
    ids=["object", "shape", "name", "none", "wrong", "text", "list"],
)
def test_a_change_breaks_the_seal(change: Callable[[Path], None], own: Path) -> None:
    change(own)
    refused(lambda: load_frozen(own), own)


def _readable(key: Path) -> None:
    key.chmod(0o640)


def _link(key: Path) -> None:
    key.symlink_to(key.rename(key.with_name("other")))


def _fifo(key: Path) -> None:
    key.unlink()
    os.mkfifo(key, 0o600)


def _anothers(key: Path) -> None:
    os.chown(key, 12345, -1)


@pytest.mark.parametrize(
    "spoil",
    [
        _readable,
        _link,
        pytest.param(
            _anothers, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root")
        ),
        Path.unlink,
        lambda key: key.write_bytes(b"short"),
        _fifo,
    ],
    ids=["readable", "link", "another's", "gone", "short", "fifo"],
)
def test_a_key_that_others_may_know_seals_nothing(
    spoil: Callable[[Path], object], own: Path, state: Path
) -> None:
    spoil(state / "key")
    refused(lambda: load_frozen(own), own)


def test_keys_are_for_this_user_alone(own: Path, state: Path) -> None:  # noqa: ARG001
    assert [(each.name, oct(each.stat().st_mode & 0o777)) for each in state.iterdir()] == [
        ("key", "0o600")
    ]
    assert oct(state.stat().st_mode & 0o777) == "0o700"


def test_many_first_uses_at_once_make_one_key(state: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        found = set(threads.map(lambda _: seal({"name": "policy"}), range(64)))
    assert len(found) == 1
    assert None not in found
    assert [each.name for each in state.iterdir()] == ["key"]


def test_without_a_place_for_a_key_freezing_warns(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.parent.write_text("a file where the folder would be")
    done = run("freeze", "--model", MODELS / "default", "--output", "out", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "mlgo-gym: no key can be kept for this user, so loading it needs --trust-code\n"
    )
    refused(lambda: load_frozen(tmp_path / "out"), tmp_path / "out")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/not/taken")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert not freeze(MODELS / "default", tmp_path / "out", name="model", trusted=True).is_sealed
    assert not (tmp_path / "home").exists()  # such as /nonexistent, where packages are built
    (tmp_path / "home").mkdir()
    assert freeze(MODELS / "default", tmp_path / "out", name="model", trusted=True).is_sealed
    assert (tmp_path / "home" / ".local" / "state" / "mlgo-gym" / "key").is_file()
