"""``rollout --traces``, ``replay`` and ``search``: real processes, output, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.problems._vocabulary import Vocabulary
from mlgo_gym.rollout._trace import Trace
from tests.cli.command import run


@pytest.fixture
def traces(small_folder: Path, tmp_path: Path) -> Path:
    done = run(
        "rollout", "--corpus", small_folder, "--policy", "random", "--traces", "traces",
        "--observations", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path / "traces"


def test_what_was_rolled_out_is_replayed(traces: Path, small_folder: Path, tmp_path: Path) -> None:
    files = sorted(traces.iterdir())
    assert [each.name for each in files] == [
        "frame_stream.c.trace", "hash_map.c.trace", "json_write.c.trace",
    ]  # fmt: skip
    done = run("replay", *files, "--corpus", small_folder, "--opt-level", "Oz", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3
    assert "decisions, the same object" in done.stdout
    done = run("replay", files[0], "--corpus", small_folder, "--json", cwd=tmp_path)
    (record,) = json.loads(done.stdout)
    trace = Trace.load(files[0])
    assert trace.observation(0)
    assert record == {
        "trace": str(files[0]),
        "module": "frame_stream.c",
        "decisions": trace.decisions,
        "object_sha256": trace.object_sha256,
        "text_size_bytes": trace.text_size_bytes,
    }


@pytest.mark.e2e
def test_a_vocabulary_is_given_again(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_bytes(Vocabulary.of("ones").data)
    corpus = ("--corpus", small_folder)
    for given in ("ones", "v.json"):
        made = ("rollout", *corpus, "--policy", "default", "--traces", given.partition(".")[0])
        assert run(*made, "--ir2vec", given, cwd=tmp_path).returncode == 0
    done = run("replay", "ones/frame_stream.c.trace", *corpus, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    trace = ("replay", "v/frame_stream.c.trace", *corpus)
    done = run(*trace, cwd=tmp_path)
    hash_ = Vocabulary.of("ones").sha256
    assert done.stderr == (
        "mlgo-gym: error: trace 'frame_stream.c': ir2vec: expected the file that was 'v.json', of "
        f"SHA-256 {hash_}, found none; give it as --ir2vec or in files\n"
    )
    (tmp_path / "v.json").rename(tmp_path / "moved.json")
    done = run(*trace, "--ir2vec", "moved.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("rollout", *corpus, "--ir2vec", "v.json", cwd=tmp_path)
    assert done.stderr == (
        "mlgo-gym: error: ir2vec: v.json: cannot be read: No such file or directory\n"
    )


@pytest.mark.e2e
def test_what_differs_is_an_error(traces: Path, small_folder: Path, tmp_path: Path) -> None:
    good, damaged = traces / "frame_stream.c.trace", tmp_path / "damaged.trace"
    damaged.write_bytes(good.read_bytes()[:-1])
    done = run("replay", damaged, good, "--corpus", small_folder, cwd=tmp_path)
    assert done.returncode == 1
    assert f"mlgo-gym: error: trace {str(damaged)!r}: expected " in done.stderr
    assert "the same object" in done.stdout  # the other was replayed
    done = run("replay", good, "--corpus", small_folder, "--opt-level", "O2", cwd=tmp_path)
    assert done.returncode == 1
    assert "trace 'frame_stream.c': opt_level: expected Oz, found O2" in done.stderr


def test_traces_that_cannot_be_written(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("rollout", "--corpus", small_folder, "--traces", "file", cwd=tmp_path)
    message = "mlgo-gym: error: cannot write 'file': File exists\n"
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.smoke
@pytest.mark.e2e
def test_search_finds_and_goes_on(small_folder: Path, tmp_path: Path) -> None:
    arguments = ("search", "--corpus", small_folder, "--output", "found", "--jobs", "2", "--json")
    done = run(*arguments, "--budget", "2s", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [each["module"] for each in found] == ["json_write.c", "hash_map.c", "frame_stream.c"]
    assert all(each["size_bytes"] <= each["default_size_bytes"] for each in found)
    again = run(*arguments, "--budget", "2s", cwd=tmp_path)
    assert json.loads(again.stdout) == found
    table = run(*arguments[:-1], "--budget", "2s", cwd=tmp_path).stdout
    assert "total" in table
    done = run(
        "replay", *sorted((tmp_path / "found").glob("*.trace")), "--corpus", small_folder,
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_search_with_a_budget_that_is_none(small_folder: Path, tmp_path: Path) -> None:
    done = run(
        "search", "--corpus", small_folder, "--output", "found", "--budget", "0s", cwd=tmp_path
    )
    assert done.returncode == 2
    assert (
        "argument --budget: expected a time above 0 with its unit, such as 90s, 30m or 1h30m, "
        "found '0s'"
    ) in done.stderr
