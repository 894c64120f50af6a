"""``mlgo-gym bench``: from a run to the table, and what is said of what is wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mlgo_gym.lab.bench import _archive as archive
from mlgo_gym.lab.bench import sample_suite
from mlgo_gym.lab.bench._archive import pack, unpack
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from tests.cli.command import Done, run


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    with sample_suite(["digest.c", "scene.cpp"]) as made:
        pack(made, folder / "suite.tar.xz")
    return unpack(folder / "suite.tar.xz", folder / "suite").place


@pytest.fixture(scope="module")
def recorded(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three policies, by name."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "rule.py").write_text("def never(observation):\n    return 0\n")
    for name, how in (
        ("never", ("--function", "rule.py:never")),
        ("random", ("--policy", "random", "--seeds", "2")),
        ("shipped", ("--model", "inlining-for-size")),
    ):
        done = run("bench", "run", "--suite", suite, *how, "--output", f"{name}.run", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def submissions(recorded: Path, tmp_path: Path) -> Path:
    for name in ("never", "random", "shipped"):
        assert submit(recorded, name, tmp_path / "submissions").returncode == 0
    return tmp_path / "submissions"


def submit(recorded: Path, name: str, into: Path) -> Done:
    how = ("--name", name, "--authors", "us", "--url", "https://example.org", "--into", into)
    return run("bench", "submit", recorded / f"{name}.run", *how, cwd=recorded)


def test_from_runs_to_the_table(suite: Path, submissions: Path, tmp_path: Path) -> None:
    paths = sorted(submissions.glob("*.zip"))
    done = run("bench", "verify", *paths, "--suite", suite, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    how = ("--suite", suite, "--output", "table", "--json")
    done = run("bench", "table", submissions, *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = [each["name"] for each in found["submissions"]]
    assert names == ["shipped", "never", "random"]
    best, _, chance = found["submissions"]
    assert best["score"]["plain"]["value"] == 100
    assert best["better_than_llvm"]["plain"] == 1
    assert chance["score"]["plain"]["value"] < 0
    page = (tmp_path / "table" / "table.md").read_text()
    assert "[shipped](https://example.org)" in page
    assert (tmp_path / "table" / "profile.png").stat().st_size > 1000
    again = run("bench", "table", submissions, *how, "--best", "table/best.json", cwd=tmp_path)
    assert json.loads(again.stdout)["best_version"] == found["best_version"] == 1


def test_only_what_was_verified_as_it_is_comes_into_the_table(
    suite: Path, submissions: Path, recorded: Path, tmp_path: Path
) -> None:
    table = ("--suite", suite, "--output", "table")
    done = run("bench", "table", submissions, *table, cwd=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "table").exists()
    assert "expected verified submissions, found none" in done.stderr
    assert "left out: it was not verified as it is now" in " ".join(done.stderr.split())
    run("bench", "verify", submissions / "never.zip", "--suite", suite, cwd=tmp_path)
    (submissions / "never.zip").unlink()
    how = ("--name", "never", "--authors", "others", "--into", submissions)
    run("bench", "submit", recorded / "random.run", *how, cwd=tmp_path)
    assert run("bench", "table", submissions, "--suite", suite, cwd=tmp_path).returncode == 1


def test_a_folder_of_submissions_that_is_not_there(suite: Path, tmp_path: Path) -> None:
    done = run("bench", "table", "none", "--suite", suite, cwd=tmp_path)
    message = "submissions: expected a folder, found none at 'none'"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_the_next_command_can_be_pasted(suite: Path, tmp_path: Path) -> None:
    name = "it's; touch a.run"
    how = ("--policy", "never", "--output", name)
    done = run("bench", "run", "--suite", suite, *how, cwd=tmp_path)
    line = done.stdout.splitlines()[-1]
    assert shlex.split(line) == ["mlgo-gym", "bench", "submit", name]


def test_the_smallest_of_several(suite: Path, recorded: Path, tmp_path: Path) -> None:
    given = [("--traces", recorded / f"{name}.run") for name in ("never", "random", "shipped")]
    how = ("--suite", suite, *(part for each in given for part in each), "--json")
    values = json.loads(run("bench", "run", *how, cwd=tmp_path).stdout)["values"]
    one = ("--suite", suite, "--traces", recorded / "shipped.run", "--json")
    alone = json.loads(run("bench", "run", *one, cwd=tmp_path).stdout)["values"]
    found, expected = (each["plain"]["sample"]["0"]["text"] for each in (values, alone))
    assert found <= expected


def test_a_run_without_a_name(suite: Path, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    copy = tmp_path / "runs" / "never.zip"
    copy.write_bytes((recorded / "never.run").read_bytes())
    assert run("bench", "verify", copy, "--suite", suite, cwd=tmp_path).returncode == 0
    done = run("bench", "table", "runs", "--suite", suite, "--output", "table", cwd=tmp_path)
    assert done.returncode == 1
    assert "left out: it has no name: 'mlgo-gym bench submit'" in " ".join(done.stderr.split())


def test_a_suite_that_is_called_as_a_folder_is(tmp_path: Path) -> None:
    """The folder stays as it is."""
    described: dict[str, object] = dict.fromkeys(("problem", "opt_level", "split"), "")
    described |= {"version": 1, "name": str(tmp_path / "mine"), "kind": "tiers", "about": "One."}
    described |= {"llvm_version": "22.1.0", "tracks": [], "packages": ["json"]}
    (tmp_path / "own.json").write_text(json.dumps(described))
    (tmp_path / "json.npz").write_bytes(SAMPLE_RECORDING.read_bytes())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    how = ("own.json", "--from", ".", "--output", "own.tar.xz", "--hashes", "own.sha256")
    done = run("bench", "pack", *how, cwd=tmp_path)
    assert done.returncode == 1
    assert "name: expected up to 64 letters" in " ".join(done.stderr.split())
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["thesis"]


def test_a_taken_name(recorded: Path, submissions: Path) -> None:
    done = submit(recorded, "never", submissions)
    assert done.returncode == 1
    assert "name: expected one of its own, found 'never'" in done.stderr


def test_a_damaged_submission_does_not_end_the_others(
    suite: Path, submissions: Path, tmp_path: Path
) -> None:
    (submissions / "never.zip").write_bytes(b"nothing")
    paths = (submissions / "never.zip", submissions / "shipped.zip")
    done = run("bench", "verify", *paths, "--suite", suite, cwd=tmp_path)
    assert done.returncode == 1
    assert "never.zip: expected a submission" in " ".join(done.stderr.split())
    assert "shipped.zip: verified" in done.stdout


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ((), "expected one of --policy, --model, --function or --traces, found none"),
        (("--policy", "never", "--model", "m"), "found --policy and --model"),
        (("--function", "rule"), "--function: expected FILE:NAME, found 'rule'"),
        (
            ("--function", "bad.py:rule"),
            "--function: bad.py: cannot be loaded: expected ':' (bad.py, line 1)",
        ),
        (("--traces", "."), "--traces: expected traces of size-sample, found none"),
        (("--policy", "never", "--output", "no/where.zip"), "--output: expected an existing"),
    ],
)
def test_runs_that_cannot_begin(
    how: tuple[str, ...], message: str, suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text("def rule(observation) return 0")
    done = run("bench", "run", "--suite", suite, *how, cwd=tmp_path)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())


def test_a_folder_that_is_no_suite(tmp_path: Path) -> None:
    done = run("bench", "run", "--suite", tmp_path, "--policy", "never", cwd=tmp_path)
    assert done.returncode == 1
    assert "suite.json: cannot be read" in " ".join(done.stderr.split())


def test_a_new_suite_of_tiers(tmp_path: Path) -> None:
    _own_suite(tmp_path)
    how: tuple[str, ...] = ("own.json", "--archive", "own.tar.xz", "--output", "own")
    assert run("bench", "fetch", *how, cwd=tmp_path).returncode == 0
    for name in ("ski-rental", "O0"):
        how = ("--suite", "own", "--policy", name, "--output", f"{name}.run")
        done = run("bench", "run", *how, cwd=tmp_path)
        assert done.returncode == 0
        assert "HotSpot's" in done.stdout
        how = (f"{name}.run", "--name", name, "--authors", "us", "--into", "submissions")
        assert run("bench", "submit", *how, cwd=tmp_path).returncode == 0
        how = (f"submissions/{name}.zip", "--suite", "own")
        assert run("bench", "verify", *how, cwd=tmp_path).returncode == 0
    done = run("bench", "table", "submissions", "--suite", "own", "--json", cwd=tmp_path)
    first, last = json.loads(done.stdout)["submissions"]
    assert (first["name"], last["name"]) == ("O0", "ski-rental")  # the program is short
    assert 0 < last["score"]["tiers"]["value"] < first["score"]["tiers"]["value"] <= 100


def test_suites_that_ship(tmp_path: Path) -> None:
    done = run("bench", "suites", "--json", cwd=tmp_path)
    names = [each["name"] for each in json.loads(done.stdout)]
    assert {"size-v1", "size-v1-mini", "spill-v1", "speed-v1", "tiers-v1"} <= set(names)


def test_recordings_ship(tmp_path: Path) -> None:
    done = run("bench", "fetch", "tiers-v1", "--output", "tiers-v1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    how = ("--suite", "tiers-v1", "--policy", "ski-rental", "--output", "ski.run", "--json")
    done = run("bench", "run", *how, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.stem for path in (tmp_path / "tiers-v1" / "recordings").iterdir()} == {
        *("json", "lz4", "osqp", "pycosat")
    }


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of a web server of a folder."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _own_suite(folder: Path) -> None:
    """A suite of tiers, its archive and its hashes."""
    described: dict[str, object] = dict.fromkeys(("problem", "opt_level", "split"), "")
    described |= {"version": 1, "name": "own", "kind": "tiers", "about": "One.", "tracks": []}
    described |= {"llvm_version": "22.1.0", "packages": ["json"]}
    (folder / "own.json").write_text(json.dumps(described))
    (folder / "json.npz").write_bytes(SAMPLE_RECORDING.read_bytes())
    how = ("own.json", "--from", ".", "--output", "own.tar.xz", "--hashes", "own.sha256")
    assert run("bench", "pack", *how, cwd=folder).returncode == 0


def test_a_suite_from_the_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _own_suite(tmp_path)
    (tmp_path / "damaged").write_bytes((tmp_path / "own.tar.xz").read_bytes()[:-100])
    with _served(tmp_path) as address:
        line = ("bench", "fetch", "own.json", "--output", "own", "--archive")
        for name, said in (
            ("none", "cannot be read: File not found"),
            ("damaged", "expected a suite's archive, found: Compressed file ended"),
        ):
            done = run(*line, f"{address}/{name}", cwd=tmp_path)
            assert done.returncode == 1
            assert f"{address}/{name}: {said}" in " ".join(done.stderr.split())
            assert not (tmp_path / "own").exists()
        monkeypatch.setattr(archive, "MAX_BYTES", 1000)
        monkeypatch.setattr("mlgo_gym.lab.bench.MAX_BYTES", 1000)
        done = run(*line, f"{address}/own.tar.xz", cwd=tmp_path)
        assert "expected at most 1000 bytes in all, found more" in done.stderr
        monkeypatch.undo()
        done = run(*line, f"{address}/own.tar.xz", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "own" / "suite.json").is_file()
    done = run(*line[:-2], "again", "--archive", f"{address}/own.tar.xz", cwd=tmp_path)
    assert f"{address}/own.tar.xz: cannot be read: " in " ".join(done.stderr.split())
    done = run(*line, "ftp://example.org/a", cwd=tmp_path)
    assert "expected file:///PATH or s3://" in " ".join(done.stderr.split())
    done = run(*line, "https://user:secret@example.org/a", cwd=tmp_path)
    assert done.returncode == 2
    assert "secret" not in done.stderr
