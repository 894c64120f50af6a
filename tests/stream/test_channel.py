"""Channels: FIFOs that never block their host and never stay behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from mlgo_gym.errors import TrainingLogError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._channel import Channel
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
