"""Development mode: the log is LLVM's, and its score is what the object says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._events import Record
from mlgo_gym.stream._training_log import TrainingLogReader
from tests.driver.conftest import MODELS, Driver

SOURCE = "static int g(int x) { return x > 9 ? x / 3 : x * 2; }\n" + "".join(
    f"int f{number}(int x) {{ return g(x + {number}) + g(x - {number}); }}\n" for number in range(9)
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "f.c").write_text(SOURCE)
    return tmp_path


def text_bytes(path: Path) -> int:
    return sum(len(each.content) for each in code_sections(path.read_bytes(), path.name))


def records(path: Path) -> list[Record]:
    with path.open("rb") as file:
        return list(TrainingLogReader(file))


def train(
    driver: Driver, work: Path, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    options = [
        f"--mlgo-model-under-training={MODELS / 'inliner'}",
        f"--mlgo-training-log={work / 'log'}",
    ]
    return driver.run(*arguments, *options, cwd=work, stdin=stdin)


def test_the_log(driver: Driver, work: Path) -> None:
    done = train(driver, work, "-O2", "-MMD", "-c", "f.c", "-o", "mine.o")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr in {b"", b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"}
    assert (work / "mine.d").is_file()
    assert driver.plain("-O2", "-c", "f.c", "-o", "plain.o", cwd=work).returncode == 0
    log = records(work / "log")
    assert [spec.name for spec in log[0].observation.header.features] == [
        *(each.spec.name for each in InliningForSize.features),
        "logits",
        "inlining_default",
        "inlining_decision",
    ]
    scores = [record.score for record in log]
    change = text_bytes(work / "mine.o") - text_bytes(work / "plain.o")
    assert change != 0
    assert [int(score[0]) for score in scores if score is not None] == [
        *[0] * (len(log) - 1), change,
    ]  # fmt: skip


def test_the_model_is_the_one_that_answers(driver: Driver, work: Path) -> None:
    """The same code as with the frozen model."""
    assert train(driver, work, "-O2", "-c", "f.c", "-o", "mine.o").returncode == 0
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "inliner"), "MLGO_STRICT": "1"}
    done = driver.run("-O2", "-c", "f.c", "-o", "frozen.o", cwd=work, settings=settings)
    assert done.returncode == 0
    assert (work / "mine.o").read_bytes() == (work / "frozen.o").read_bytes()


def test_a_folder_of_logs(driver: Driver, work: Path) -> None:
    """One for each object, as a build needs it."""
    (work / "log").mkdir()
    for _ in range(2):
        for name in ("one", "two"):
            assert train(driver, work, "-O2", "-c", "f.c", "-o", f"{name}.o").returncode == 0
    logs = sorted(each.name.partition("-")[0] for each in (work / "log").iterdir())
    assert logs == ["one.o", "two.o"]
    assert all(records(each) for each in (work / "log").iterdir())


def test_without_an_object_there_is_no_score(driver: Driver, work: Path) -> None:
    assert train(driver, work, "-O2", "-S", "f.c").returncode == 0
    log = records(work / "log")
    assert log
    assert all(record.score is None for record in log)


def test_errors_of_clang_are_clang_s(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text("int f(void) { return x; }\n")
    done = train(driver, work, "-O2", "-c", "f.c")
    plain = driver.plain("-O2", "-c", "f.c", cwd=work)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert not (work / "log").exists()


def test_a_broken_model_is_an_error(driver: Driver, work: Path) -> None:
    """Training on plain clang's decisions would go unnoticed, so there is no fallback."""
    (work / "broken").mkdir()
    option = f"--mlgo-model-under-training={work / 'broken'}"
    done = driver.run("-O2", "-c", "f.c", option, cwd=work)
    words = "output_spec.json cannot be read: No such file or directory"
    assert done.returncode == 1
    assert done.stderr.decode() == f"mlgo-cc: error: model '{work / 'broken'}': {words}\n"
    assert not (work / "f.o").exists()


def test_a_source_from_a_pipe(driver: Driver, work: Path) -> None:
    """It is compiled twice, with the model and without, and read once."""
    scores = []
    for source, text in (("f.c", b""), ("-", SOURCE.encode())):
        command = ("-O2", "-Wp,-MMD,f.d", "-x", "c", "-c", source, "-o", "mine.o")
        assert train(driver, work, *command, stdin=text).returncode == 0
        scores.append([record.score for record in records(work / "log")][-1])
        assert (work / "f.d").read_text().startswith("mine.o:")
    assert scores[0] == scores[1] != 0
