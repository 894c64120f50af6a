"""Channels: FIFOs that never block their host and never stay behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlgo_gym.errors import TrainingLogError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._channel import Channel, remove_stale_folders
from mlgo_gym.stream._events import Header

HEADER = Header(InliningForSize.sent(), advice=InliningForSize.advice).to_json().encode() + b"\n"
SIZE = 8 * len(InliningForSize.sent())


@pytest.fixture
def channel() -> Channel:
    return Channel()


def _send(channel: Channel, data: bytes) -> int:
    """What LLVM does: open both ends in its order, and write."""
    inbound = os.open(f"{channel.base}.in", os.O_RDONLY)
    outbound = os.open(f"{channel.base}.out", os.O_WRONLY)
    os.write(outbound, data)
    os.close(outbound)
    return inbound


def test_llvm_never_waits_to_open_it(channel: Channel) -> None:
    inbound = _send(channel, HEADER + b'{"context":"f"}\n{"observation":0}\n' + bytes(SIZE) + b"\n")
    assert channel.receive()
    observation = channel.next_observation()
    assert observation is not None
    assert (observation.context, channel.context, len(observation)) == ("f", "f", 39)
    # Both sides have it open, so its names are no longer needed.
    assert not list(Path(tempfile.gettempdir()).glob("mlgo-gym-*"))
    channel.reply(b"answered")
    assert os.read(inbound, 100) == b"answered"
    assert not channel.receive()
    channel.close()
    assert os.read(inbound, 100) == b""
    os.close(inbound)


def test_nothing_has_come_yet(channel: Channel) -> None:
    assert not channel.receive()  # no writer: the same as the end
    assert channel.next_observation() is None
    channel.close()


def _observation(index: int, value: int) -> bytes:
    return b'{"observation":%d}\n%b\n' % (index, bytes([value]) * SIZE)


def test_branches_take_in_their_own(channel: Channel) -> None:
    """From where they part, what comes over one in pieces does not mix with the other's."""
    inbound = os.open(f"{channel.base}.in", os.O_RDONLY)
    outbound = os.open(f"{channel.base}.out", os.O_WRONLY)
    os.write(outbound, HEADER + b'{"context":"f"}\n' + _observation(0, 1))
    channel.receive()
    assert channel.next_observation() is not None
    branch, (branchs_inbound, branchs_outbound) = channel.branch()
    first, second = _observation(1, 2), _observation(1, 3)
    for piece in (slice(0, 5), slice(5, 30), slice(30, None)):
        for each, end, data in ((channel, outbound, first), (branch, branchs_outbound, second)):
            assert each.next_observation() is None
            os.write(end, data[piece])
            each.receive()
    os.write(outbound, b'{"context":"g"}\n' + _observation(0, 4))
    channel.receive()
    found = [each.next_observation() for each in (channel, channel, branch)]
    assert [each and (each.context, each.index, each.payload[0]) for each in found] == [
        ("f", 1, 2), ("g", 0, 4), ("f", 1, 3),
    ]  # fmt: skip
    assert (channel.context, branch.context) == ("g", "f")
    branch.close()
    channel.close()
    for end in (inbound, outbound, branchs_inbound, branchs_outbound):
        os.close(end)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: who else gives folders away")
def test_folders_of_others_are_not_swept(own_temporary_folder: Path) -> None:
    """Whatever they are called; nor is what a link of that name leads to."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    channel = Channel()
    prefix = Path(channel.base).parent.name.rpartition(f"{os.getpid()}-")[0]
    channel.close()
    names = [f"{prefix}{process.pid}-{each}" for each in ("own", "given", "link")]
    own, given, link = (own_temporary_folder / name for name in names)
    elsewhere = own_temporary_folder / "elsewhere"
    for folder in (own, given, elsewhere):
        folder.mkdir()
        os.mkfifo(folder / "channel.in")
    os.chown(given, 65534, -1)
    link.symlink_to(elsewhere)
    remove_stale_folders()
    assert not own.exists()
    assert all((each / "channel.in").exists() for each in (given, link, elsewhere))
    link.unlink()
    shutil.rmtree(given)


def test_garbage(channel: Channel) -> None:
    os.close(_send(channel, b"garbage\n"))
    channel.receive()
    with pytest.raises(TrainingLogError, match="expected a line of JSON, found b'garbage"):
        channel.next_observation()
    channel.close()


def test_closed(channel: Channel) -> None:
    channel.close()
    channel.close()
    with pytest.raises(UsageError, match="^channel: closed$"):
        channel.fileno()
    with pytest.raises(UsageError, match="^channel: closed$"):
        channel.reply(b"")
