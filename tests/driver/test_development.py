"""Development mode: the log is LLVM's, and its score is what the object says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.driver._development import main as development
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._events import Record
from mlgo_gym.stream._training_log import TrainingLogReader
from tests.conftest import one_in
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


def scoreless(path: Path) -> bool:
    """Whether there are decisions, and not one with a score."""
    return {record.score is None for record in records(path)} == {True}


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


def plain_bytes(driver: Driver, work: Path, *arguments: str) -> int:
    assert driver.plain(*arguments, "-c", "f.c", "-o", "plain.o", cwd=work).returncode == 0
    return text_bytes(work / "plain.o")


def last_score(path: Path) -> int:
    scores = [record.score for record in records(path) if record.score is not None]
    assert [int(score[0]) for score in scores[:-1]] == [0] * (len(scores) - 1)
    return int(scores[-1][0])


@pytest.mark.e2e
@pytest.mark.parametrize(
    "arguments",
    one_in(
        4,
        [
            ["-O2", "-c", "f.c", "--output=mine.o"],
            ["-O2", "-c", "f.c", "--output", "mine.o"],
            ["-O2", "-c", "f.c", "-omine.o"],
            ["-O2", "-c", "-include", "first.h", "f.c", "-o", "mine.o"],
            ["-O2", "-c", "-MD", "-MF", "mine.d", "-MT", "f.o", "f.c", "-o", "mine.o"],
            ["-O2", "--compile", "f.c", "-o", "mine.o"],
            ["-O2", "-o", "mine.o", "-c", "--", "f.c"],
            ["@words"],
            ["-O2", "-c", "-save-temps=obj", "f.c", "-o", "mine.o"],
            ["-O2", "-c", "-fno-integrated-as", "f.c", "-o", "mine.o"],
            ["-O2", "-c", "-x", "c", "no-suffix", "-o", "mine.o"],
            ["-O2", "-flto", "-ffat-lto-objects", "-c", "f.c", "-o", "mine.o"],
        ],
    ),
    ids=" ".join,
)
def test_the_score_is_that_of_what_clang_wrote(
    driver: Driver, work: Path, arguments: list[str]
) -> None:
    """Whatever lies about, from another day or under the names of other words."""
    assert driver.plain("-O0", "-c", "f.c", "-o", "other.o", cwd=work).returncode == 0
    stale = (work / "other.o").read_bytes()
    for name in ("f.o", "first.o", "mine.o", "words.o", "no-suffix.o"):
        (work / name).write_bytes(stale)
    (work / "first.h").write_text("typedef int number;\n")
    (work / "no-suffix").write_text(SOURCE)
    (work / "words").write_text("-O2 -c 'f.c' \"-o\" mine.o")
    expected = plain_bytes(driver, work, "-O2")
    done = train(driver, work, *arguments)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr in {b"", b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"}
    assert (work / "f.o").read_bytes() == stale
    change = last_score(work / "log")
    assert change == text_bytes(work / "mine.o") - expected
    assert change != 0


@pytest.mark.e2e
def test_without_an_output_s_name(driver: Driver, work: Path) -> None:
    (work / "a b\n$.c").write_text(SOURCE)
    expected = plain_bytes(driver, work, "-O2")
    assert train(driver, work, "-O2", "--compile", "--", "a b\n$.c").returncode == 0
    assert last_score(work / "log") == text_bytes(work / "a b\n$.o") - expected


@pytest.mark.e2e
def test_what_else_clang_writes_is_of_the_compilation_with_the_model(
    driver: Driver, work: Path
) -> None:
    options = (
        *("-MD", "-MF", "f.d", "-MT", "mine", "-MJ", "f.json", "-ftime-trace=f.trace"),
        *("--serialize-diagnostics", "f.dia", "-fstack-usage", "-g", "-gsplit-dwarf"),
        *("-foptimization-record-file=f.yaml", "-fsave-optimization-record"),
    )
    assert train(driver, work, "-O2", *options, "-c", "f.c", "-o", "f.o").returncode == 0
    files = {each.name: each for each in work.iterdir() if each.name not in {"log", "f.c"}}
    assert sorted(files) == sorted(
        ["f.d", "f.dia", "f.dwo", "f.json", "f.o", "f.su", "f.trace", "f.yaml"]
    )
    assert files["f.d"].read_text() == "mine: f.c\n"
    assert files["f.json"].read_text().count('"file"') == 1
    assert "Pass:            inline-ml\n" in files["f.yaml"].read_text()
    assert "Pass:            inline\n" not in files["f.yaml"].read_text()


@pytest.mark.e2e
@pytest.mark.parametrize("option", ["-flto", "-flto=thin"])
def test_bitcode_has_no_score(driver: Driver, work: Path, option: str) -> None:
    done = train(driver, work, "-O2", option, "-c", "f.c")
    assert done.returncode == 0
    assert (work / "f.o").is_file()
    assert scoreless(work / "log")


def test_one_source_for_each_command_line(driver: Driver, work: Path) -> None:
    """What LLVM asks for two is one log that nobody can take apart."""
    (work / "g.c").write_text(SOURCE.replace("int f", "int other"))
    done = train(driver, work, "-O2", "-c", "f.c", "g.c")
    words = "mlgo-cc: error: development mode: expected one source, found 'f.c', 'g.c'\n"
    assert (done.returncode, done.stderr.decode()) == (1, words)
    assert not (work / "f.o").exists()


@pytest.mark.e2e
def test_a_log_without_an_object_in_a_folder(driver: Driver, work: Path) -> None:
    """It is named after what is written."""
    (work / "log").mkdir()
    assert train(driver, work, "-O2", "-S", "f.c").returncode == 0
    assert [each.name.partition("-")[0] for each in (work / "log").iterdir()] == ["f.s"]


@pytest.mark.e2e
def test_words_from_a_pipe(driver: Driver, work: Path) -> None:
    """They are read once, and asked for twice."""
    expected = plain_bytes(driver, work, "-O2")
    done = train(driver, work, "@/dev/stdin", stdin=b"-O2 -c f.c -o mine.o")
    assert done.returncode == 0
    assert last_score(work / "log") == text_bytes(work / "mine.o") - expected


def test_words_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert development(["model", "", "clang", "@/dev/zero"]) == 1
    words = "mlgo-cc: error: @/dev/zero: expected at most 268435456 bytes, found more\n"
    assert capsys.readouterr().err == words


@pytest.mark.e2e
def test_what_can_be_read_once_has_no_score(driver: Driver, work: Path) -> None:
    command = ("-O2", "-x", "c", "-c", "/dev/stdin", "-o", "mine.o")
    done = train(driver, work, *command, stdin=SOURCE.encode())
    words = (
        "mlgo-cc: warning: the log has no scores: expected files, found '/dev/stdin', "
        "which is read once"
    )
    assert (done.returncode, done.stderr.decode().splitlines()[-1]) == (0, words)
    assert (work / "mine.o").is_file()
    assert scoreless(work / "log")


@pytest.mark.e2e
def test_the_model_is_the_one_that_answers(driver: Driver, work: Path) -> None:
    """The same code as with the frozen model."""
    assert train(driver, work, "-O2", "-c", "f.c", "-o", "mine.o").returncode == 0
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "inliner"), "MLGO_STRICT": "1"}
    done = driver.run("-O2", "-c", "f.c", "-o", "frozen.o", cwd=work, settings=settings)
    assert done.returncode == 0
    assert (work / "mine.o").read_bytes() == (work / "frozen.o").read_bytes()


@pytest.mark.e2e
def test_a_folder_of_logs(driver: Driver, work: Path) -> None:
    """One for each object, as a build needs it."""
    (work / "log").mkdir()
    for name in ("one", "two", "one"):
        assert train(driver, work, "-O2", "-c", "f.c", "-o", f"{name}.o").returncode == 0
    logs = sorted(each.name.partition("-")[0] for each in (work / "log").iterdir())
    assert logs == ["one.o", "two.o"]
    assert all(records(each) for each in (work / "log").iterdir())


@pytest.mark.e2e
def test_without_an_object_there_is_no_score(driver: Driver, work: Path) -> None:
    assert train(driver, work, "-O2", "-S", "f.c").returncode == 0
    assert scoreless(work / "log")


@pytest.mark.e2e
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


@pytest.mark.e2e
def test_a_source_from_a_pipe(driver: Driver, work: Path) -> None:
    """It is compiled twice, with the model and without, and read once."""
    scores = []
    for source, text in (("f.c", b""), ("-", SOURCE.encode())):
        command = ("-O2", "-Wp,-MMD,f.d", "-x", "c", "-c", source, "-o", "mine.o")
        assert train(driver, work, *command, stdin=text).returncode == 0
        scores.append([record.score for record in records(work / "log")][-1])
        assert (work / "f.d").read_text().startswith("mine.o:")
    assert scores[0] == scores[1] != 0
