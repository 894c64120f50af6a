"""The one reader of files: what it refuses, and what is said of that wherever files are read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlgo_gym.base._files import FileError, open_regular, parse_json, read_bounded, read_json
from mlgo_gym.cc._builds import read_build
from mlgo_gym.corpus._corpus import Module
from mlgo_gym.corpus._packages import corpus_folders, join_corpora
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._logs import open_recording
from mlgo_gym.errors import InputError
from mlgo_gym.model._freeze import load_frozen
from mlgo_gym.model._tflite_reader import read_tflite
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner
from mlgo_gym.training._run import TrainingRun

HUGE = 6 << 30


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 << 30)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


REFUSED: dict[str, tuple[Callable[[Path], object], type[OSError], str]] = {
    "FIFO": (os.mkfifo, FileError, "expected a regular file, found a FIFO"),
    "device": (
        lambda path: path.symlink_to("/dev/zero"),
        FileError,
        "expected a regular file, found a device",
    ),
    "folder": (Path.mkdir, IsADirectoryError, "Is a directory"),
    "socket": (bound_socket, OSError, "No such device or address"),
    "nothing": (lambda _: None, FileNotFoundError, "No such file or directory"),
    "loop": (lambda path: path.symlink_to(path), OSError, "Too many levels of symbolic links"),
    "too long": (
        lambda path: path.write_bytes(b"x" * 11),
        FileError,
        "expected at most 10 bytes, found 11",
    ),
    "6 GiB, sparse": (sparse, FileError, "expected at most 10 bytes, found 6442450944"),
    "of no size": (
        lambda path: path.symlink_to("/proc/self/status"),
        FileError,
        "expected at most 10 bytes, found 11",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_not_read(name: str, tmp_path: Path) -> None:
    make, kind, reason = REFUSED[name]
    path = tmp_path / "it"
    make(path)
    for read in (read_bounded, read_json):
        with pytest.raises(kind) as caught:
            read(path, 10)
        assert (caught.value.strerror, caught.value.filename) == (reason, str(path))
    if "at most" not in reason:
        with pytest.raises(kind) as caught:
            open_regular(path)
        assert caught.value.strerror == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "expected JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "expected JSON: Expecting property name enclosed in double quotes: "),
        (b'"\xff"', "expected JSON: 'utf-8' codec can't decode byte 0xff in position 1: "),
        (b"[" * 99_999, "expected JSON: expected at most 100 levels, found more"),
        (b"[" * 101 + b"]" * 101, "expected JSON: expected at most 100 levels, found more"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "expected JSON: expected at most 100 levels, found "),
        (
            b"[" + b"9" * 101 + b"]",
            "expected JSON: expected whole numbers of at most 100 digits, found "
            "9999999999999999... of 101",
        ),
    ],
)
def test_files_that_are_not_json(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        read_json(path, 1 << 20)
    assert str(caught.value.strerror).startswith(reason)
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)


def test_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "it"
    assert parse_json(b"9" * 100) == 10**100 - 1
    path.write_bytes(b"[" * 100 + b"]" * 100)
    assert read_bounded(path, 200) == path.read_bytes()
    assert repr(read_json(path, 200)) == path.read_text()
    assert (
        read_bounded(Path("/proc/self/cmdline"), 1 << 20) == Path("/proc/self/cmdline").read_bytes()
    )
    with open_regular(path) as file:
        assert file.read(1) == b"["


@dataclass(frozen=True)
class Config:
    seed: int = 1


def run_with(name: str) -> Callable[[Path], object]:
    """A training run in whose folder a file is another."""

    def opened(path: Path) -> object:
        folder = path.parent / "run"
        with TrainingRun(folder, "es", InliningForSize(), Config()):
            (folder / name).unlink(missing_ok=True)
            path.rename(folder / name)
        return TrainingRun(folder, "es", InliningForSize(), Config()).restore()

    return opened


def model_with(name: str) -> Callable[[Path], object]:
    def loaded(path: Path) -> object:
        path.rename(path.with_name(name))
        return ModelUnderTrainingRunner(
            path.parent, InliningForSize().layout.specs, InliningForSize.advice
        )

    return loaded


def dataset_with(path: Path) -> object:
    path.rename(path.with_name("part-00000.parquet"))
    return Dataset.open(path.parent)


READERS: dict[str, tuple[Callable[[Path], object], str, int | None]] = {
    "trace": (Trace.load, "trace '{path}': cannot be read: ", (1 << 30) + (1 << 24)),
    "module": (Module.from_file, "module 'it': cannot read '{path}': ", 1 << 30),
    "graph": (read_tflite, "model '{path}': ", 1 << 24),
    "frozen model": (load_frozen, "model '{path}': it: ", 1 << 22),
    "output spec": (
        model_with("output_spec.json"), "model '{folder}': output_spec.json: ", 1 << 22,
    ),
    "configuration": (
        run_with("config.json"), "run '{folder}/run': config.json cannot be read: ", 1 << 28,
    ),
    "checkpoint": (
        run_with("checkpoint.npz"), "run '{folder}/run': checkpoint.npz cannot be read: ", 1 << 32,
    ),
    "progress": (
        run_with("progress.jsonl"), "run '{folder}/run': progress.jsonl cannot be read: ", None,
    ),
    "recording": (open_recording, "dataset '{path}': cannot be read: ", None),
    "part": (dataset_with, "dataset '{folder}/part-00000.parquet': cannot be read: ", None),
    "build": (read_build, "build '{path}': cannot be read: ", None),
}  # fmt: skip

ROWS = [
    (name, limit)
    for name, (_, _, bytes_read) in READERS.items()
    for limit in dict.fromkeys((None, bytes_read))
]


@pytest.mark.parametrize(("name", "limit"), ROWS)
def test_what_is_refused(name: str, limit: int | None, tmp_path: Path) -> None:
    """A FIFO is not waited for; and a sparse file of 6 GiB, where there is a limit, is not read."""
    read, prefix, _ = READERS[name]
    path = tmp_path / "it"
    if limit is None:
        os.mkfifo(path)
        reason = "expected a regular file, found a FIFO"
    else:
        with path.open("wb") as file:
            file.truncate(HUGE)
        reason = f"expected at most {limit} bytes, found {HUGE}"
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == prefix.format(path=path, folder=tmp_path) + reason


DEEP = "expected JSON: expected at most 100 levels, found more"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (load_frozen, "model '{path}': it: " + DEEP),
        (model_with("output_spec.json"), "model '{folder}': output_spec.json: " + DEEP),
        (run_with("config.json"), "run '{folder}/run': config.json cannot be read: " + DEEP),
    ],
)
def test_json_that_is_nested_too_deep(
    read: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"[" * 99_999)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == message.format(path=path, folder=tmp_path)


@pytest.mark.parametrize("text", [None, "[" * 99_999, "\xff", "[]", '{"package": [], "split": 1}'])
def test_what_a_corpus_does_not_say_of_itself(text: str | None, tmp_path: Path) -> None:
    """Its origin is not needed; where it cannot be read, the corpus is taken all the same."""
    (tmp_path / "m.bc").touch()
    (tmp_path / "corpus_description.json").write_text('{"modules": ["m"], "has_thinlto": false}')
    info = tmp_path / "corpus_info.json"
    if text is None:
        os.mkfifo(info)
    else:
        info.write_text(text, encoding="latin-1")
    assert corpus_folders([tmp_path], "train") == [tmp_path]
    joined = join_corpora([tmp_path])
    assert list(joined) == [("", "m")]


def test_progress_is_read_from_its_end(tmp_path: Path) -> None:
    """However long it is; a line that a kill has cut off does not count."""
    with TrainingRun(tmp_path, "es", InliningForSize(), Config()):
        line = '{"step": 1, "spent_s": 12.5}\n'
        (tmp_path / "progress.jsonl").write_text(line.replace("12.5", "7") * 9999 + line + '{"sp')
    assert TrainingRun(tmp_path, "es", InliningForSize(), Config()).spent_s >= 12.5
