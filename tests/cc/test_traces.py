"""What search found for a build, and objects that are made by it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlgo_gym.cc._traces import ANSWERS, Build, open_build, write_answers
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize, default, never
from mlgo_gym.rollout._replay import record
from mlgo_gym.rollout._trace import Trace, trace_path
from mlgo_gym.search._corpus_search import ModuleSearch
from tests.cc.conftest import MODELS, NOTHING, WAYS, Driver, compile_file
from tests.cc.test_keep_smaller import text_of
from tests.cc.test_streams import in_place_of_clang
from tests.cli.command import run

MODEL = {"MLGO_INLINING_MODEL": str(MODELS / "inliner")}
PLAIN = InliningForSize()
LINE = f"{'0' * 32} {'1' * 32} 5 f1 f.o\n"
FIRST, LAST = "mlgo-gym answers 1\n", "end\n"
SOURCE = """
static int h(int x) { return x > 9 ? x * 3 : x / 7; }
static int g(int x) { return h(x) + h(x + 1) ^ h(x / 3); }
int f(int x) { return g(x) + g(x + 1) * g(x * 2) + g(x / 5); }
"""


@pytest.fixture(autouse=True)
def settings(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)


def database(folder: Path, lines: Mapping[str, str]) -> Path:
    path = folder / "compile_commands.json"
    entries = [
        {"directory": str(folder), "file": source, "command": line}
        for source, line in lines.items()
    ]
    path.write_text(json.dumps(entries))
    return path


@dataclass(frozen=True)
class Searched:
    """A file, and what LLVM makes of it if it never inlines, as a search would have found it."""

    build: Build
    traces: Path
    text_size_bytes: int

    def lines(self) -> list[str]:
        return (self.traces / ANSWERS).read_text().splitlines()

    def write(self, change: Callable[[str], str]) -> None:
        first, line, last = self.lines()
        (self.traces / ANSWERS).write_text(f"{first}\n{change(line)}\n{last}\n")


def write_never(
    build: Build, traces: Path, problem: InliningForSize = PLAIN
) -> tuple[int, str | None]:
    """The text of the one module without inlining, and why it is not kept as what search found."""
    module = build.corpus["f.o"]
    with Compiler() as compiler:
        options = options_of(module)
        trace = record(compiler, module, problem, never, options, keep_observations=True)
    assert trace.decisions > 3
    trace.save(trace_path(traces, "f.o"))
    size_bytes = trace.text_size_bytes
    found = ModuleSearch("f.o", default_size_bytes=size_bytes + 1, size_bytes=size_bytes)
    return size_bytes, write_answers(build, [found], traces, 1, 60)["f.o"]


@pytest.fixture
def searched(work: Path, tmp_path: Path) -> Iterator[Searched]:
    (work / "f.c").write_text(SOURCE)
    traces = tmp_path / "traces"
    with open_build(database(work, {"f.c": "clang -O2 -c f.c -o f.o"}), 1, 60) as build:
        size_bytes, reason = write_never(build, traces)
        assert reason is None
        yield Searched(build, traces, size_bytes)


@pytest.fixture
def by_model(driver: Driver, searched: Searched, work: Path) -> bytes:
    assert searched.lines()
    made, words = compile_file(driver, work, MODEL)
    assert words == b""
    return made


@pytest.fixture
def by_traces(
    driver: Driver, searched: Searched, work: Path, plain: bytes, by_model: bytes
) -> bytes:
    """The object that there is to be; it is another than clang's own and the model's."""
    made, words = compile_file(driver, work, {"MLGO_TRACES": str(searched.traces)})
    assert words == b""
    assert text_of(work / "f.o") == searched.text_size_bytes
    assert made not in {plain, by_model}
    return made


@pytest.mark.e2e
def test_the_answers_are_what_search_found(
    driver: Driver, searched: Searched, work: Path, by_traces: bytes, way: Mapping[str, str]
) -> None:
    first, line, last = searched.lines()
    assert (first, last) == (FIRST.strip(), LAST.strip())
    assert re.fullmatch(r"[0-9a-f]{32} [0-9a-f]{32} [1-9][0-9]* 0+ f\.o", line)
    traces = {"MLGO_TRACES": str(searched.traces), "MLGO_STRICT": "1", **way}
    for more in (NOTHING, MODEL, {"MLGO_KEEP_SMALLER": str(MODELS / "inliner")}):
        assert compile_file(driver, work, {**traces, **more}) == (by_traces, b"")
    threshold = {"MLGO_SIZE_INCREASE_THRESHOLD": "1e-9"}
    assert compile_file(driver, work, {**traces, **threshold}) == (by_traces, b"")


def test_a_search_beside_traces_that_are_set(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no say in what clang's own object is."""
    monkeypatch.setenv("MLGO_TRACES", str(searched.traces))
    again = tmp_path / "again"
    assert write_never(searched.build, again) == (searched.text_size_bytes, None)
    assert (again / ANSWERS).read_text() == (searched.traces / ANSWERS).read_text()


@pytest.mark.parametrize(
    "problem",
    [
        InliningForSize(derived=True),
        InliningForSize(hotness=True),
        InliningForSize(derived=True, hotness=True),
    ],
)
def test_features_that_llvm_does_not_send(
    problem: InliningForSize, searched: Searched, tmp_path: Path
) -> None:
    """A search may look at them; clang asks without them."""
    again = tmp_path / "again"
    assert write_never(searched.build, again, problem) == (searched.text_size_bytes, None)
    assert (again / ANSWERS).read_text() == (searched.traces / ANSWERS).read_text()


def test_what_clang_says_is_said_once(driver: Driver, searched: Searched, work: Path) -> None:
    settings = {"MLGO_TRACES": str(searched.traces)}
    line = ("-O2", "-Wmissing-prototypes", "-c", "f.c", "-MD")
    expected = driver.plain(*line, cwd=work)
    names = (work / "f.d").read_bytes()
    plain = (work / "f.o").read_bytes()
    done = driver.run(*line, cwd=work, settings=settings)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == expected.stderr
    assert b"-Wmissing-prototypes" in done.stderr
    assert (work / "f.d").read_bytes() == names
    assert (work / "f.o").read_bytes() != plain


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("-O2 -c f.c", SOURCE.replace("9", "8")),
        ("-O2 -c f.c", SOURCE.replace("x * 2", "x")),
        ("-O3 -c f.c", SOURCE),
        ("-O2 -ffunction-sections -c f.c", SOURCE),
        ("-O2 -xc++ -c f.c", SOURCE),
        ("-O2 -c @f.rsp", SOURCE),
        ("-O2 -c f.c g.c", SOURCE),
        ("-O2 -S f.c", SOURCE),
    ],
)
def test_other_modules_are_the_model_s(
    driver: Driver, searched: Searched, work: Path, line: str, source: str
) -> None:
    (work / "f.c").write_text(source)
    (work / "g.c").write_text(source.replace(" f(", " other("))
    (work / "f.rsp").write_text("f.c")
    before = {each.name for each in work.iterdir()}
    traces = {"MLGO_TRACES": str(searched.traces), "MLGO_STRICT": "1"}
    for settings in (NOTHING, MODEL):
        made = []
        for more in (NOTHING, traces):
            done = driver.run(*line.split(), cwd=work, settings={**settings, **more})
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
            names = {each.name for each in work.iterdir()} - before
            made.append({name: (work / name).read_bytes() for name in names})
        assert made[0] == made[1] != {}


def _one_answer_else(line: str) -> str:
    key, questions, count, answers, name = line.split(" ")
    return " ".join((key, questions, count, "1" + answers[1:], name))


def _one_answer_less(line: str) -> str:
    key, questions, count, _, name = line.split(" ")
    fewer = int(count) - 1
    return f"{key} {questions} {fewer} {'0' * ((fewer + 3) // 4)} {name}"


def _one_answer_more(line: str) -> str:
    key, questions, count, _, name = line.split(" ")
    more = int(count) + 1
    return f"{key} {questions} {more} {'0' * ((more + 3) // 4)} {name}"


def _another_s_questions(line: str) -> str:
    return line.replace(line.split(" ")[1], "0" * 32)


@pytest.mark.parametrize(
    "change", [_one_answer_else, _one_answer_less, _one_answer_more, _another_s_questions]
)
def test_no_object_is_made_of_both(
    driver: Driver,
    searched: Searched,
    work: Path,
    by_model: bytes,
    change: Callable[[str], str],
) -> None:
    """Where LLVM asks otherwise, or is answered otherwise, all that was made is made anew."""
    plain = driver.plain("-O2", "-c", "f.c", "-o", "plain.o", cwd=work)
    assert plain.returncode == 0
    searched.write(change)
    traces = {"MLGO_TRACES": str(searched.traces), "MLGO_STRICT": "1"}
    for way in WAYS.values():
        expected = ((work / "plain.o").read_bytes(), b"")
        assert compile_file(driver, work, {**traces, **way}) == expected
        assert compile_file(driver, work, {**traces, **way, **MODEL}) == (by_model, b"")


def test_numbers_of_lines_are_the_source_s(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Which the preprocessor does not show: the module is the same."""
    source = "void say(int);" + SOURCE.replace("return g", "say(__builtin_LINE()); return g")
    (work / "f.c").write_text(source)
    with open_build(database(work, {"f.c": "clang -O2 -c f.c -o f.o"}), 1, 60) as build:
        size_bytes, reason = write_never(build, tmp_path)
    assert reason is None
    made = []
    for lines in ("", "/* said */\n" * 40):
        (work / "f.c").write_text(lines + source)
        made.append(compile_file(driver, work, {"MLGO_TRACES": str(tmp_path)}))
        assert text_of(work / "f.o") == size_bytes
    assert made[0][0] != made[1][0]


def test_what_is_thrown_away_is_nowhere(
    driver: Driver, searched: Searched, work: Path, way: Mapping[str, str]
) -> None:
    """Nobody finds it, should the driver be killed while plain clang compiles anew."""
    searched.write(_another_s_questions)
    script = (
        'case "$*" in *-v*|*-###*|*-E*|*channel-base*) exec $clang "$@";; esac\n'
        "ls > ../found; exit 3\n"
    )
    settings = in_place_of_clang(driver, work.parent, script)
    del settings["MLGO_INLINING_MODEL"]
    traces = {"MLGO_TRACES": str(searched.traces)}
    (work / "f.o").write_text("an older one")
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings={**settings, **way, **traces})
    assert done.returncode == 3
    assert "f.o" not in (work.parent / "found").read_text().splitlines()


def test_an_error_of_the_source_is_said_once(
    driver: Driver, searched: Searched, work: Path
) -> None:
    (work / "f.c").write_text("int f(void) { return g; }\n")
    expected = driver.plain("-O2", "-c", "f.c", cwd=work)
    settings = {"MLGO_TRACES": str(searched.traces), **MODEL}
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr)


SAMPLE_SOURCES = SAMPLE_CORPUS.parent / "src"


def test_what_clang_does_not_repeat(searched: Searched, work: Path, tmp_path: Path) -> None:
    def reason(size_bytes: int) -> str | None:
        found = ModuleSearch("f.o", default_size_bytes=1 << 20, size_bytes=size_bytes)
        return write_answers(searched.build, [found], searched.traces, 1, 60)["f.o"]

    size_bytes = searched.text_size_bytes
    unlike = "clang would not repeat its answers"
    wanted = f"expected {size_bytes + 1} bytes of text, found {size_bytes}"
    assert reason(size_bytes + 1) == f"{unlike}: {wanted}"
    assert searched.lines() == [FIRST.strip(), LAST.strip()]
    assert reason(size_bytes) is None
    path = trace_path(searched.traces, "f.o")
    other = Trace.load(path)
    flipped = (1 - other.actions()[:1]).tobytes() + other.advice[8:]
    replace(other, advice=flipped).save(path)
    said = reason(size_bytes)
    assert said is not None
    assert said.startswith(f"{unlike}: model '")
    assert "\n" not in said
    (work / "f.c").write_text("int f(int x) { return x; }\n")
    assert str(reason(size_bytes)).startswith(unlike)
    assert list(tmp_path.glob("*.partial")) == []


def test_what_is_larger_than_clang_s_own(work: Path, tmp_path: Path) -> None:
    source = "static int g(int x) { return x + x; }\nint f(int x) { return g(x) + g(x + 1); }\n"
    source = source.replace("g(x + 1)", "g(x + 1) + g(x * 2) + g(7)")
    (work / "f.c").write_text(source)
    with open_build(database(work, {"f.c": "clang -O2 -c f.c -o f.o"}), 1, 60) as build:
        size_bytes, reason = write_never(build, tmp_path)
    assert reason is not None
    expected = rf"clang's own (\d+) bytes of text are less than {size_bytes}"
    found = re.fullmatch(expected, reason)
    assert found is not None
    assert int(found[1]) < size_bytes
    assert (tmp_path / ANSWERS).read_text() == FIRST + LAST


def test_llvm_s_own_answers_in_place_of_a_model_s(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    """They are written where a build has a model, and the model is not asked."""
    (work / "f.c").write_text(SOURCE)
    traces = tmp_path / "traces"
    with open_build(database(work, {"f.c": "clang -O2 -c f.c -o f.o"}), 1, 60) as build:
        module = build.corpus["f.o"]
        with Compiler() as compiler:
            own = record(
                compiler, module, InliningForSize(), default, options_of(module),
                keep_observations=True,
            )  # fmt: skip
        own.save(trace_path(traces, "f.o"))
        size = own.text_size_bytes
        found = ModuleSearch("f.o", size, size, default_score=5.0, score=5.0)
        assert write_answers(build, [found], traces, 1, 60) == {}
        models = {"f.o": (6.0, size)}
        assert write_answers(build, [found], traces, 1, 60, models=models) == {"f.o": None}
    model = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
    compile_file(driver, work, model)
    assert text_of(work / "f.o") != size
    _, words = compile_file(driver, work, {**model, "MLGO_TRACES": str(traces)})
    assert (text_of(work / "f.o"), words) == (size, b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "build: {path}: cannot be read: No such file or directory"),
        ("{{", "build: {path}: JSON: "),
        ("[]", "build: expected sources that can be compiled: no command makes an object"),
        (
            '[{{"directory": ".", "file": "none.c", "command": "cc -c none.c -o none.o"}}]',
            "build: expected sources that can be compiled: none.o: clang exited with 1\nmlgo-cc: ",
        ),
    ],
)
def test_bad_builds(work: Path, content: str | None, message: str) -> None:
    path = work / "compile_commands.json"
    if content is not None:
        path.write_text(content.format())
    with pytest.raises(OptionsError) as raised, open_build(path, 1, 60):
        pass
    assert str(raised.value).startswith(message.format(path=path).split("mlgo-cc: ")[0])


def test_a_search_of_a_build_is_by_its_own_settings(work: Path) -> None:
    build = ("search", "--build", database(work, {"f.c": "cc -c f.c -o f.o"}), "--output", "t")
    expected = (
        "mlgo-gym: error: search: expected --build with LLVM's own settings and no --corpus or "
        "--opt-level\n"
    )
    for more in (("--corpus", "none"), ("--opt-level", "O2"), ("--size-increase-threshold", "3")):
        done = run(*build, *more, cwd=work)
        assert (done.returncode, done.stderr) == (1, expected)


LARGEST = 1 << 26
BAD: Mapping[str, tuple[str | int | None, str]] = {
    "missing": (None, "cannot be read: No such file or directory"),
    "empty": ("", "expected 'answers.txt' of version 1 in the first line"),
    "a stranger's": ("\x7fELF\0", "expected 'answers.txt' of version 1 in the first line"),
    "another version": (
        FIRST.replace("1", "2") + LINE + LAST,
        "expected 'answers.txt' of version 1 in the first line",
    ),
    "too large": (LARGEST + 1, f"expected at most {LARGEST} bytes, found {LARGEST + 1}"),
    "cut in a line": (FIRST + LINE[:50], "expected 'end' in the last line, found it cut"),
    "cut between lines": (FIRST + LINE, "expected 'end' in the last line, found it cut"),
    "cut in its end": (FIRST + LINE + LAST[:-1], "expected 'end' in the last line, found it cut"),
    **{
        f"line {changed!r}": (
            FIRST + LINE + changed + LAST,
            "line 3: expected KEY QUESTIONS COUNT ANSWERS NAME",
        )
        for changed in (
            "\n",
            "0" * 32 + "\n",
            LINE.replace("0", "A", 1),
            LINE.replace(" 5 ", " 0 "),
            LINE.replace(" 5 ", " 4194305 "),
            LINE.replace(" 5 ", " 99999999999999999999 "),
            LINE.replace(" 5 ", " 9 "),
            LINE.replace(" 5 ", " -5 "),
            LINE.replace("f1", "f2"),
            LINE.replace("f1", "fg"),
            LINE.replace("f1", "f11"),
            LINE.replace(" f.o", ""),
            LINE.replace("f.o", ""),
            LAST + LINE,
        )
    },
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_answers(driver: Driver, work: Path, plain: bytes, kind: str) -> None:
    content, message = BAD[kind]
    if isinstance(content, str):
        (work / ANSWERS).write_bytes(content.encode())
    elif content is not None:
        with (work / ANSWERS).open("wb") as file:
            file.truncate(content)
    said = f"traces '{work}': answers.txt: {message}"
    settings = {"MLGO_TRACES": str(work), **MODEL}
    warning = f"mlgo-cc: warning: {said}; compiled by plain clang\n".encode()
    assert compile_file(driver, work, settings) == (plain, warning)
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings={**settings, "MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {said}\n")
    done = driver.run("--mlgo-fingerprint", cwd=work, settings={"MLGO_TRACES": str(work)})
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {said}\n")


def test_a_pipe_is_not_waited_for(driver: Driver, work: Path) -> None:
    os.mkfifo(work / ANSWERS)
    words = compile_file(driver, work, {"MLGO_TRACES": str(work)})[1]
    expected = f"traces '{work}': answers.txt: expected a regular file; compiled by plain clang\n"
    assert words.decode() == f"mlgo-cc: warning: {expected}"


def test_the_fingerprint_is_of_all_answers(driver: Driver, work: Path) -> None:
    def fingerprint() -> list[bytes]:
        done = driver.run("--mlgo-fingerprint", f"--mlgo-traces={work}", cwd=work)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = []
    for content in (FIRST + LAST, FIRST + LINE + LAST, FIRST + LINE.replace("f1", "f0") + LAST):
        (work / ANSWERS).write_text(content)
        assert fingerprint() == fingerprint()
        found.append(fingerprint()[2])
    assert all(re.fullmatch(b"traces [0-9a-f]{64}", each) for each in found)
    assert len({*found}) == 3


@pytest.mark.parametrize(("content", "runs"), [(FIRST + LAST, 0), (FIRST + LINE + LAST, 1)])
def test_the_preprocessor_runs_where_there_are_answers(
    driver: Driver, work: Path, content: str, runs: int
) -> None:
    script = 'case "$*" in *-E*) echo >> ../count;; esac\nexec $clang "$@"\n'
    settings = in_place_of_clang(driver, work.parent, script)
    (work / ANSWERS).write_text(content)
    (work.parent / "count").touch()
    compile_file(driver, work, {**settings, "MLGO_TRACES": str(work)})
    assert len((work.parent / "count").read_text()) == runs
    (work / ANSWERS).unlink()
    compile_file(driver, work, {**settings, "MLGO_TRACES": str(work)})
    assert len((work.parent / "count").read_text()) == runs


def test_no_folder_is_no_traces(driver: Driver, work: Path, plain: bytes) -> None:
    done = driver.run("-O2", "-c", "f.c", "--mlgo-traces=", cwd=work, settings={"MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr, (work / "f.o").read_bytes()) == (0, b"", plain)
    (work / "cc.conf").write_text("traces =\n")
    settings = {"MLGO_CONFIG": "cc.conf", "MLGO_TRACES": "", "MLGO_STRICT": "1"}
    assert compile_file(driver, work, settings) == (plain, b"")


@pytest.mark.e2e
def test_a_build_that_is_searched(driver: Driver, tmp_path: Path) -> None:
    names = ("expr_compile.c", "text_layout.c", "interval_tree.cpp")
    project = tmp_path / "project"
    project.mkdir()
    for name in names:
        (project / name).write_bytes((SAMPLE_SOURCES / name).read_bytes())
    for header in SAMPLE_SOURCES.glob("*.h"):
        (project / header.name).write_bytes(header.read_bytes())
    flags = "-Oz -Wno-everything -Wno-deprecated -Werror -I. -MD -MF x.d -c"
    lines = {name: f"cc {flags} {name} -o {name}.o" for name in names}
    lines |= {"interval_tree.cpp": lines["interval_tree.cpp"].replace("cc", "c++", 1)}
    lines |= {"bad.c": "cc -fplugin=bad.so -c bad.c -o bad.o"}
    lines |= {"pch.c": "cc -include-pch x.pch -Oz -c pch.c -o pch.o"}
    (project / "pch.c").write_text("int f(void) { return f_of_header(); }\n")
    (project / "x.h").write_text("static int f_of_header(void) { return 1; }\n")
    precompiling = (driver.clang, "-x", "c-header", "-Oz", "x.h", "-o", "x.pch")
    subprocess.run(precompiling, cwd=project, check=True)
    command = ("search", "--build", database(project, lines), "--output", "traces")
    done = run(*command, "--budget", "6s", "--json", cwd=tmp_path)
    message = (
        "bad.o: refused to compile: '-fplugin=bad.so' is not one of the options known to run "
        "nothing and to write nothing"
    )
    lines_of_error = done.stderr.splitlines()
    assert (done.returncode, lines_of_error[0]) == (1, f"mlgo-gym: {message}")
    assert lines_of_error[1:] == [
        "mlgo-gym: pch.o: clang would not repeat its answers: expected options and headers that "
        "tell all that decides the code, found '-include-pch'"
    ]
    found = {each["module"]: each for each in json.loads(done.stdout)}
    assert not (project / "x.d").exists()
    text = (tmp_path / "traces" / ANSWERS).read_text()
    better = sorted(
        name for name, each in found.items() if each["size_bytes"] < each["default_size_bytes"]
    )
    assert "expr_compile.c.o" in better  # by never inlining, which is tried first
    assert [line.split(" ")[-1] for line in text.splitlines()[1:-1]] == better
    again = run(*command, "--budget", "6s", cwd=tmp_path)  # nothing is left to search
    words = f"{len(better)} of 3 modules are smaller by answers that clang repeats"
    assert words in again.stdout
    assert (tmp_path / "traces" / ANSWERS).read_text() == text
    for name in (each.removesuffix(".o") for each in better):
        made = set()
        is_cxx = name.endswith(".cpp")
        for settings in (NOTHING, NOTHING, {"MLGO_IN_PROCESS": "0"}, MODEL):
            line = (*flags.split(), name, "--mlgo-traces=../traces", "--mlgo-strict=1", "-o", "x.o")
            compiled = driver.run(*line, cwd=project, cxx=is_cxx, settings=settings)
            assert (compiled.returncode, compiled.stderr) == (0, b"")
            assert text_of(project / "x.o") == found[f"{name}.o"]["size_bytes"]
            made.add((project / "x.o").read_bytes())
        assert len(made) == 1
        plain = driver.plain(*flags.split(), name, "-o", "x.o", cwd=project, cxx=is_cxx)
        assert plain.returncode == 0
        assert text_of(project / "x.o") > found[f"{name}.o"]["size_bytes"]
