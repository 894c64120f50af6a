"""What commands say of files that they cannot write, and what is not about those files."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mlgo_gym.cli._writing import make_folder, writing
from mlgo_gym.errors import OptionsError


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def write(path: Path, size: int = 1) -> None:
    with writing(path) as file:
        file.write(b"x" * size)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disk(size: int, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    with full_disk(), pytest.raises(OptionsError) as caught:
        write(path, size)
    assert str(caught.value) == f"cannot write {str(path)!r}: File too large"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/out.log", "No such file or directory"),
        ("file/out.log", "Not a directory"),
        (".", "Is a directory"),
    ],
)
def test_places_where_nothing_can_be_written(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError) as caught:
        write(tmp_path / name)
    assert str(caught.value) == f"cannot write {str(tmp_path / name)!r}: {message}"


def test_other_errors_of_the_block_stay(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, writing(tmp_path / "out.log"):
        (tmp_path / "none").stat()
    assert caught.value.filename == str(tmp_path / "none")


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with ExitStack() as stack:
        file = stack.enter_context(writing(tmp_path / "pipe"))
        os.close(reader)
        file.write(b"x")
        with pytest.raises(BrokenPipeError):
            stack.close()


def test_folders(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError) as caught:
        make_folder(tmp_path / "file", to_write=tmp_path / "file" / "x.o")
    assert str(caught.value) == f"cannot write '{tmp_path}/file/x.o': File exists"
