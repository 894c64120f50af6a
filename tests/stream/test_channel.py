"""Channels: FIFOs that never block their host and never stay behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlgo_gym.errors import EnvironmentSetupError, TrainingLogError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._channel import Channel, remove_stale_folders
from tests.conftest import free_descriptors

HEADER = InliningForSize().layout.header.to_json().encode() + b"\n"
SIZE = 8 * len(InliningForSize().layout.specs)


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


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - which opens one of its own


def test_no_descriptors_for_a_channel(own_temporary_folder: Path) -> None:
    """Whichever of the two ends there is none for, nothing is left: no file, no descriptor."""
    before = descriptors()
    for count in (0, 1):
        with free_descriptors(count or 1):
            blocker = [] if count else [os.open(os.devnull, os.O_RDONLY)]
            with pytest.raises(EnvironmentSetupError) as caught:
                Channel()
            for each in blocker:
                os.close(each)
        end = ("in", "out")[count]
        assert re.fullmatch(
            r"channel: cannot make FIFOs in the temporary folder: \[Errno 24\] Too many open "
            rf"files: '{own_temporary_folder}/[\w-]+/channel\.{end}'; TMPDIR names another",
            str(caught.value),
        )
        assert not list(own_temporary_folder.iterdir())
        assert descriptors() == before


def test_no_descriptors_for_a_branch(channel: Channel) -> None:
    before = descriptors()
    with free_descriptors(2), pytest.raises(OSError, match="Too many open files"):
        channel.branch()
    assert descriptors() == before
    channel.close()


def test_a_compiler_that_is_thinking(channel: Channel) -> None:
    """It has its end open and has sent nothing yet, which is not the end."""
    outbound = os.open(f"{channel.base}.out", os.O_WRONLY)
    assert channel.receive()
    assert channel.next_observation() is None
    os.close(outbound)
    assert not channel.receive()
    channel.close()


def test_whose_ends_are_seen(channel: Channel) -> None:
    """A process that has both; not one that is not there, nor one that has none of them."""
    assert channel.compilers_ends(2**30) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert channel.compilers_ends(other.pid) is None
    ends = channel.compilers_ends(os.getpid())
    assert ends is not None
    assert ends[1] == channel.fileno()
    channel.close()


def test_what_is_disowned_stays_on_disk(channel: Channel) -> None:
    before = descriptors()
    channel.disown()
    channel.disown()
    assert descriptors() == before - 2
    channel.close()
    folder = Path(channel.base).parent
    assert {each.name for each in folder.iterdir()} == {"channel.in", "channel.out"}
    shutil.rmtree(folder)


def test_what_an_observation_looks_like(channel: Channel) -> None:
    os.close(_send(channel, HEADER + b'{"context":"f"}\n' + _observation(0, 1)))
    channel.receive()
    assert repr(channel.next_observation()) == "Observation('f', 0, 39 features)"
    channel.close()
