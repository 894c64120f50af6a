"""``mlgo-gym tune``: from a corpus to model, page and record; interrupted; bad input."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.base._files import write_json
from mlgo_gym.base._remote import worked_folder
from mlgo_gym.cc._build_commands import build_commands
from mlgo_gym.cc._project import count_lto, open_project
from mlgo_gym.cc._project_file import ALL, read_facts
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import OptionsError
from mlgo_gym.lab.tuning._tune import TuneSetting, Tuning, _as_one
from mlgo_gym.lab.tuning.commands._show_tuned import page
from mlgo_gym.llvm import LLVM_MAJOR
from mlgo_gym.model._card import find_model
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.training._train import NothingToLearnError, Watcher
from tests.cc.test_traces import database
from tests.cli.command import check_refused, run
from tests.cli.test_evaluate import copied

SHIPPED = Path(find_model("inlining-for-size"))
QUICK = (
    "rounds=1",
    "batches=1",
    "hidden=[8]",
    "fit.epochs=2",
    "teacher.bags=1",
    "teacher.iterations=10",
)
SET = tuple(word for each in QUICK for word in ("--set", each))
NAMES = ("digest.c", "graph.cpp", "json_read.c", "lru_cache.cpp", "scene.cpp")


def tune(*more: str | Path, cwd: Path) -> Any:
    return run("tune", "--output", "out", *more, cwd=cwd)


@pytest.fixture
def corpus(sample: Corpus, tmp_path: Path) -> Path:
    return copied(sample, NAMES, tmp_path / "corpus")


@pytest.mark.smoke
@pytest.mark.e2e
def test_from_a_corpus_to_a_model(corpus: Path, tmp_path: Path) -> None:
    line: tuple[str | Path, ...] = ("--corpus", corpus, "--budget", "20m", *SET)
    done = tune(*line, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    held_out = record["linked_text"]["held_out"]
    start = record["started_from"]
    assert start in {"inlining-for-size", "inlining-for-size-derived"}
    assert held_out["modules"] == 1
    assert record["linked_text"]["all"]["modules"] == len(NAMES)
    (sizes,) = record["targets"].values()
    assert sizes["built"] <= sizes["LLVM"]
    changes = {name: held_out[name]["change"] for name in (start, "tuned")}
    assert sizes[record["chosen"]] <= min(sizes["LLVM"], sizes[start])
    assert record["chosen"] != "tuned" or changes["tuned"] < max(0.0, changes[start])
    page = (tmp_path / "out" / "report.html").read_text().replace("<wbr>", "")
    for text in ("mlgo-gym", *NAMES, record["why"].partition(",")[0].replace("'", "&#x27;")):
        assert text in page
    assert "make" in record["build"][0]
    if record["model"]:
        assert (
            f"--mlgo-keep-smaller --mlgo-inlining-model={tmp_path}/out/model" in record["build"][0]
        )
        card = json.loads((tmp_path / "out" / "model" / "card.json").read_text())
        assert card["tuned"]["chosen"] == record["chosen"]
        done = run("evaluate", "--model", "out/model", "--corpus", corpus, cwd=tmp_path)
        assert done.returncode == 0
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("scores.*")}
    again = tune(*line, "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == record  # all was there
    assert {path: path.stat().st_mtime_ns for path in files} == files


class Stop(BaseException):
    """What ends a tune and is no error."""


class Stopping(Watcher):
    """Ends a tune as it begins with something, and remembers with what it began."""

    def __init__(self, last: str) -> None:
        self.done: list[str] = []
        self._last = last

    def doing(self, what: str) -> None:
        self.done.append(what)
        if what == self._last:
            raise Stop


class Remembering(Watcher):
    """Remembers what was warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.mark.e2e
def test_an_interrupted_one_goes_on(sample: Corpus, tmp_path: Path) -> None:
    packages = Packages.of({"sample": sample.only(NAMES)})
    setting = TuneSetting((SHIPPED,), InliningForSize(derived=True), 1200.0, settings=QUICK)
    whole = Tuning(tmp_path / "whole", packages, setting).run()
    parts: list[str] = []
    for last in ("survey", "fitting", "compiling with the tuned model", "nothing"):
        watcher = Stopping(last)
        tuning = Tuning(tmp_path / "parts", packages, setting, watcher=watcher)
        if last != "nothing":
            with pytest.raises(Stop):
                tuning.run()
        else:
            found = tuning.run()
        parts += watcher.done
    assert parts.count("compiling with inlining-for-size and LLVM's own") == 1
    assert parts.count("survey") == 2
    assert [each.code for each in found.scores] == [each.code for each in whole.scores]
    assert found.choice == whole.choice


@pytest.mark.e2e
def test_another_tune_in_the_folder(corpus: Path, tmp_path: Path) -> None:
    line: tuple[str | Path, ...] = ("--corpus", corpus, "--budget", "1s", *SET, "--model", SHIPPED)
    first = tune(*line, cwd=tmp_path)
    assert first.returncode == 1
    done = tune(*line, "--seed", "1", cwd=tmp_path)
    message = "tune 'out': holds another tune: seed: expected 1, found 0"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    models = [find_model(name) for name in ("inlining-for-size-derived", "inlining-for-size")]
    done = tune(*line[:-2], cwd=tmp_path)
    message = f"tune 'out': holds another tune: models: expected {models}, found {models[1:]}"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    done = tune(*line, "--no-derived", cwd=tmp_path)
    assert done.stderr.startswith("mlgo-gym: error: tune 'out': holds another tune: problem: ")
    scores = tmp_path / "out" / "scores.start.json"
    known = json.loads(scores.read_text())
    write_json(scores, known | {"spent_s": 20.0})
    done = tune(*line, cwd=tmp_path)
    message = "tune: expected a budget of at least 80s for one round of 5 modules, found 1s"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    write_json(scores, {"models": known["models"], "modules": [{}]})
    done = tune(*line, cwd=tmp_path)
    message = "tune 'out': scores.start.json: expected scores: expected 'spent_s', found none"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


@pytest.mark.e2e
def test_a_search_that_leaves_no_time_to_train(sample: Corpus, tmp_path: Path) -> None:
    packages = Packages.of({"sample": sample.only(NAMES)})
    setting = TuneSetting((SHIPPED,), InliningForSize(derived=True), 5.0, search_s=4.0)
    watcher = Remembering()
    found = Tuning(tmp_path, packages, setting, plain=packages, watcher=watcher).run()
    (said,) = watcher.warnings
    assert re.fullmatch(
        r"no model is trained: \d+s for one round of 5 modules, the search leaves 1s", said
    )
    assert found.names == ("LLVM", "inlining-for-size")
    assert found.choice.name in found.names
    assert "tuned" not in found.choice.why
    ((_, sizes),) = found.target_bytes().items()
    assert list(sizes) == ["plain", "LLVM", "inlining-for-size", "built"]
    assert sizes["plain"] == sizes["LLVM"] >= sizes["built"]
    assert "without the project file" in page(found, "A tune", ["mlgo-gym tune"]).decode()


def test_labels_of_one_kind(
    sample: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is besides is chosen from."""

    def train(*_: Any, **__: Any) -> Any:
        raise NothingToLearnError("labels: expected two kinds, found one")

    monkeypatch.setattr("mlgo_gym.lab.tuning._tune.train", train)
    packages = Packages.of({"sample": sample.only(NAMES)})
    setting = TuneSetting((SHIPPED,), InliningForSize(derived=True), 600.0)
    watcher = Remembering()
    found = Tuning(tmp_path, packages, setting, watcher=watcher).run()
    assert watcher.warnings == ["no model is trained: labels: expected two kinds, found one"]
    assert found.choice.name in found.names == ("LLVM", "inlining-for-size")


def test_another_process_in_the_folder(corpus: Path, tmp_path: Path) -> None:
    with worked_folder(tmp_path / "out"):
        done = tune("--corpus", corpus, cwd=tmp_path)
    message = "'out': another process is working there"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


@pytest.mark.parametrize("name", ["a$(id)", "a'b", "a;b", "a\nb"])
def test_a_folder_that_a_build_would_read_otherwise(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    done = tune("--corpus", "none", cwd=tmp_path / name)
    assert done.returncode == 1
    assert "mlgo-gym: error: expected a folder whose path make and CMake leave" in done.stderr
    assert not (tmp_path / name / "out").exists()


@pytest.mark.e2e
def test_of_a_few_modules_no_model_is_trained(sample: Corpus, tmp_path: Path) -> None:
    """All of them say which of those that are there is the best."""
    corpus = copied(sample, NAMES[:3], tmp_path / "corpus")
    done = tune("--corpus", corpus, cwd=tmp_path)
    message = (
        "no model is trained: expected at least 4 modules, of which a quarter is held out, found 3"
    )
    assert (done.returncode, done.stderr) == (0, f"mlgo-gym: {message}\n")
    assert "held out    │       3 │" in done.stdout
    assert "seen" not in done.stdout


@pytest.mark.e2e
def test_a_build_for_speed(sample: Corpus, tmp_path: Path) -> None:
    folder = copied(sample, NAMES[:2], tmp_path / "corpus")
    command = folder / f"{NAMES[0]}.cmd"
    command.write_bytes(command.read_bytes().replace(b"-Oz", b"-O2"))
    done = tune("--corpus", folder, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == (
        "mlgo-gym: 1 of 2 modules are compiled at -O2, for speed: what makes them smaller may make "
        "them slower; measure that, or build with -Os or -Oz"
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("nan", "--set: expected NAME=VALUE, found 'nan'"),
        ("batches=0", "--set batches: expected a whole number from 1"),
        ("trees=5", "--set trees: expected one of "),
    ],
)
def test_a_setting_that_the_trainer_does_not_take(
    corpus: Path, tmp_path: Path, setting: str, message: str
) -> None:
    """It is said before any work, and the folder is free for what was meant."""
    done = tune("--corpus", corpus, "--set", setting, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"mlgo-gym: error: {message}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--set", "trees=5", "--set trees: expected one of "),
        ("--model", "none", "model 'none': network.json cannot be read: "),
    ],
)
def test_a_build_is_not_compiled_for_what_is_refused(
    tmp_path: Path, option: str, value: str, message: str
) -> None:
    (tmp_path / "f.c").write_text("int f(void) { return 1; }\n")
    done = tune(
        "--build", database(tmp_path, {"f.c": "clang -Oz -c f.c"}), option, value, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"mlgo-gym: error: {message}")
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_llvm(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "old")
    card = json.loads((SHIPPED / "card.json").read_text())
    write_json(tmp_path / "old" / "card.json", card | {"llvm_version": "19.1.7"})
    done = tune("--model", "old", cwd=tmp_path)
    message = f"model 'old': expected a model of LLVM {LLVM_MAJOR}, found one of 19.1.7"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_a_model_of_another_problem(tmp_path: Path) -> None:
    done = tune("--model", "regalloc-eviction", cwd=tmp_path)
    message = "tune: expected a model for InliningForSize, found one for RegallocEviction"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_a_build_and_a_corpus(tmp_path: Path) -> None:
    done = tune("--build", "build", "--corpus", "corpus", cwd=tmp_path)
    message = "tune: expected --build without --corpus and --split"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--search", "10s", "--corpus", "corpus"),
            "expected --search with --build, by whose commands sources are compiled again",
        ),
        (
            ("--verify", "--corpus", "corpus"),
            "expected --verify with --build, by whose commands sources are compiled again",
        ),
        (
            ("--verify", "--no-project", "--build", "build"),
            "expected --verify without --no-project, whose file says what keeps LLVM's own answers",
        ),
        (
            ("--search", "30m", "--build", "build"),
            "expected --search to be less than --budget (1800s), found 1800s",
        ),
        (
            ("--reward", "linked", "--build", "build"),
            "expected --reward with --search, which goes by it",
        ),
        (
            ("--reward", "cost", "--search", "10s", "--build", "given"),
            "expected a reward for which no program runs, found 'cost'",
        ),
        (
            ("--model", "a/model", "--model", "b/model"),
            "expected a model's name other than model, tuned, LLVM, found 'b/model'",
        ),
        (
            ("--model", "a/tuned"),
            "expected a model's name other than tuned, LLVM, found 'a/tuned'",
        ),
    ],
)
def test_what_cannot_be_searched_or_told_apart(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "compile_commands.json").write_text("[]")
    done = tune(*options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: tune: {message}\n")
    assert not (tmp_path / "out").exists()


def test_a_build_without_bitcode(clang22: str, tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    (build / "f.c").write_text("int f(void) { return 1; }\n")
    subprocess.run((clang22, "-c", "f.c"), cwd=build, check=True)
    done = tune("--build", "build", cwd=tmp_path)
    message = (
        "build 'build': expected compile_commands.json or objects with bitcode, found neither; "
        "\"make clean all CC='clang -Xclang -fembed-bitcode=all' "
        "CXX='clang++ -Xclang -fembed-bitcode=all'\" brings it"
    )
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    (build / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
    with pytest.raises(OptionsError) as error:
        open_project(build, tmp_path / "out", 1, 60.0)
    assert str(error.value) == (
        f"build {str(build)!r}: expected compile_commands.json or objects with bitcode, found "
        f'neither; "cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON {build}" brings it'
    )


@pytest.mark.parametrize("command", ["tune", "search"])
def test_a_build_that_does_not_say_how_it_compiled(command: str, tmp_path: Path) -> None:
    """Before its objects are read."""
    (tmp_path / "build").mkdir()
    line = (command, "--build", "build", "--output", "out")
    message = (
        "build 'build': expected compile_commands.json there, found none; "
        "'bear -- make clean all' brings it"
    )
    check_refused(message, *line, *(("--verify",) if command == "tune" else ()), cwd=tmp_path)
    assert not (tmp_path / "out").exists()


def test_no_such_build(tmp_path: Path) -> None:
    done = tune("--build", "build", cwd=tmp_path)
    message = "build: build: cannot be read: No such file or directory"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def objects_with_bitcode(build: Path, clang: str) -> None:
    build.mkdir()
    for name in ("f", "g", "h"):
        (build / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        embedding = () if name == "h" else ("-Xclang", "-fembed-bitcode=all")
        subprocess.run((clang, *embedding, "-c", f"{name}.c"), cwd=build, check=True)


def test_objects_that_have_no_code_before_they_are_linked(tmp_path: Path) -> None:
    assert count_lto(tmp_path) == 0
    options = ("-Oz", "-flto", "-flto=thin", "-flto -fno-lto", "-fno-lto -flto")
    lines = {f"{number}.c": f"clang {each} -c {number}.c" for number, each in enumerate(options)}
    assert count_lto(database(tmp_path, lines)) == count_lto(tmp_path) == 3


def test_targets_that_do_not_link(clang22: str, tmp_path: Path) -> None:
    build = tmp_path / "build"
    objects_with_bitcode(build, clang22)
    links = "build app: link f.o h.o a.o\nbuild tool: link h.o\nbuild all.so: link f.o g.o\n"
    (build / "build.ninja").write_text(links)
    project = open_project(build, tmp_path / "out", 1, 60.0)
    assert list(project.corpus) == ["f.o", "g.o"]
    assert project.targets == {"app": ("f.o",), "all.so": ("f.o", "g.o")}
    assert project.failures == (
        "target 'app': expected modules of all its 3 objects, found none of 2: h.o, a.o; it is "
        "counted without them",
        "target 'tool': expected modules of all its 1 objects, found none of 1: h.o; it is left "
        "out",
    )
    (build / "f.o").unlink()
    assert open_project(build, tmp_path / "out", 1, 60.0) == project  # nothing is read again
    with pytest.raises(OptionsError) as error:
        open_project(tmp_path, tmp_path / "out", 1, 60.0)
    assert str(error.value) == (
        f"tune {str(tmp_path / 'out')!r}: expected modules of {str(tmp_path)!r}, found those of "
        f"{str(build)!r}"
    )


def test_a_build_that_does_not_say_what_it_links_has_one_target(
    clang22: str, tmp_path: Path
) -> None:
    """A project file and the comparison of targets call it by one name."""
    build = tmp_path / "build"
    objects_with_bitcode(build, clang22)
    project = open_project(build, tmp_path / "out", 1, 60.0)
    (facts,), _ = read_facts(project, 1, 60.0)
    (target,) = _as_one(Packages.of(project.corpus))
    assert facts.name == target == ALL


def test_how_it_is_built(tmp_path: Path) -> None:
    model = tmp_path / "a model"
    options = f"--mlgo-keep-smaller '--mlgo-inlining-model={model}'"
    drivers = {"CC": "mlgo-cc", "CXX": "mlgo-c++"}
    with_model = " ".join(
        f"{name}={shlex.quote(f'{driver} {options}')}" for name, driver in drivers.items()
    )
    assert build_commands(None, None) == ["make"]
    assert build_commands(None, model) == [f"make {with_model}"]
    (by_project,) = build_commands(None, None, project=tmp_path / "p.txt")
    project = f"--mlgo-project={tmp_path / 'p.txt'}"
    assert by_project == f"make CC='mlgo-cc {project}' CXX='mlgo-c++ {project}'"
    make = f"make -C {tmp_path}"
    assert build_commands(tmp_path, model) == [f"{make} -B {with_model}"]
    assert build_commands(tmp_path, None) == [make]
    (tmp_path / "config.status").touch()  # with -B, make would configure again
    assert build_commands(tmp_path, model) == [f"{make} clean", f"{make} {with_model}"]
    (without,) = build_commands(None, model, keeps_smaller=False)
    assert without == f"make {with_model.replace('--mlgo-keep-smaller ', '')}"
    (with_answers,) = build_commands(None, None, tmp_path)
    assert with_answers == (
        f"make CC='mlgo-cc --mlgo-traces={tmp_path}' CXX='mlgo-c++ --mlgo-traces={tmp_path}'"
    )
    (tmp_path / "CMakeCache.txt").write_text(
        "# a comment\nCMAKE_HOME_DIRECTORY:INTERNAL=/src\nCMAKE_BUILD_TYPE:STRING=MinSizeRel\n"
        "CMAKE_C_FLAGS:STRING=-Xclang -fembed-bitcode=all\n"
        "CMAKE_CXX_FLAGS:STRING=-fno-rtti -Xclang -fembed-bitcode=all\n"
        "CMAKE_CXX_FLAGS_MINSIZEREL:STRING=-Oz -DNDEBUG\nCMAKE_CXX_FLAGS_DEBUG:STRING=-g\n"
        "CMAKE_GENERATOR:INTERNAL=Unix Makefiles\nCMAKE_CXX_COMPILER:FILEPATH=/usr/bin/clang++\n"
        "x;y)#a:STRING=1\nLEAVES:STRING=]=-fembed-bitcode=] junk [==[\nENDS:STRING=a]==\n"
        "WITH_TESTS:BOOL=OFF\nCMAKE_AR:FILEPATH=/usr/bin/ar\nHELD:STRING=a;b c\n"
        "CMAKE_C_COMPILER_AR:FILEPATH=/usr/bin/llvm-ar\nCMAKE_C_COMPILER_ABI:STRING=x\n"
        f"ZLIB_DIR:PATH=ZLIB_DIR-NOTFOUND\nDEPS:PATH={tmp_path}/deps\n"
    )
    settings = tmp_path / "settings.cmake"
    made = f"-S /src -B {tmp_path}-tuned -G 'Unix Makefiles'"
    build = tmp_path / "compile_commands.json"
    assert build_commands(build, model, initial_cache=settings) == [
        f"{with_model} cmake {made} -C {settings}",
        f"cmake --build {tmp_path}-tuned",
    ]
    kept = {
        "CMAKE_BUILD_TYPE": "MinSizeRel",
        "CMAKE_C_FLAGS": "",
        "CMAKE_CXX_FLAGS": "-fno-rtti",
        "CMAKE_CXX_FLAGS_MINSIZEREL": "-Oz -DNDEBUG",
        "CMAKE_CXX_FLAGS_DEBUG": "-g",
        "HELD": "a;b c",
    }
    lines = [f"set({name} [==[{value}]==] CACHE STRING [==[]==])" for name, value in kept.items()]
    lines.insert(5, "set(WITH_TESTS [==[OFF]==] CACHE BOOL [==[]==])")
    lines.append("set(CMAKE_C_COMPILER_AR [==[/usr/bin/llvm-ar]==] CACHE FILEPATH [==[]==])")
    assert settings.read_text().splitlines() == lines


@pytest.mark.parametrize("name", ["CMakeCache.txt", "meson-private/cmd_line.txt"])
def test_a_build_s_settings_that_lie_elsewhere(tmp_path: Path, name: str) -> None:
    secret, build = tmp_path / "secret", tmp_path / "build"
    secret.write_text("SECRET:STRING=secret\n")
    (build / name).parent.mkdir(parents=True)
    (build / name).symlink_to(secret)
    (build / "meson-info").mkdir()
    (build / "meson-info" / "meson-info.json").write_text("{}")
    with pytest.raises(OptionsError, match=f"found a link to {secret}"):
        build_commands(build, None)


def test_how_meson_builds_again(tmp_path: Path) -> None:
    build = tmp_path / "build"
    for name in ("meson-private", "meson-info"):
        (build / name).mkdir(parents=True)
    line = build / "meson-private" / "cmd_line.txt"
    line.write_text(
        "[options]\nbuildtype = minsize\nname = a 'b' $c\nc_args = -Oz\n\n"
        "[properties]\ncross_file = ['/some where/cross.txt']\n"
    )
    about = build / "meson-info" / "meson-info.json"
    write_json(about, {"directories": {"source": "/src"}})
    arguments = {"name": "c_args", "value": ["-Oz", "-Xclang", "-fembed-bitcode=all", "-DA=b c"]}
    options = [arguments, {"name": "cpp_args", "value": []}, {"name": "werror", "value": False}]
    write_json(build / "meson-info" / "intro-buildoptions.json", options)
    plain, ninja = build_commands(build, None)[-2:]
    assert shlex.split(plain) == [
        "meson", "setup", "/src", f"{build}-tuned", "--cross-file=/some where/cross.txt",
        "-Dbuildtype=minsize", "-Dname=a 'b' $c", "-Dc_args=['-Oz', '-DA=b c']",
    ]  # fmt: skip
    assert ninja == f"ninja -C {build}-tuned"
    comment, with_model, _ = build_commands(build, tmp_path)
    assert comment == "# let c and cpp of '/some where/cross.txt' be the commands of CC and CXX"
    assert with_model.startswith("CC='mlgo-cc --mlgo-keep-smaller ")
    text = line.read_text()
    line.write_text(text.replace("cross.txt", "cross\\ntouch x # .txt"))
    with pytest.raises(OptionsError, match=r"expected settings without control characters, found"):
        build_commands(build, None)
    line.write_text(text)
    long = text.replace("['/some", "-" * 99999 + "['/some")
    for path, damaged in (
        *((line, "[op"), (line, "[other]\n"), (line, long)),
        *((about, "[]"), (about, "{")),
    ):
        good = path.read_text()
        path.write_text(damaged)
        with pytest.raises(
            OptionsError, match=r"^build '.*build': expected Meson's options, found "
        ):
            build_commands(build, None)
        path.write_text(good)


def test_how_bazel_builds_again(tmp_path: Path) -> None:
    (tmp_path / "MODULE.bazel").touch()
    database = tmp_path / "compile_commands.json"
    assert build_commands(database, None) == ["bazel build //..."]
    exported, built = build_commands(database, tmp_path / "a model", project=tmp_path / "p.txt")
    assert exported == (
        'export MLGO_CACHE="${MLGO_CACHE:-$HOME/.cache/mlgo-gym}" '
        f"MLGO_PROJECT={tmp_path}/p.txt MLGO_KEEP_SMALLER=1 "
        f"MLGO_INLINING_MODEL='{tmp_path}/a model'"
    )
    assert '--repo_env=CC="$(command -v mlgo-cc)"' in built
    for name in ("MLGO_CACHE", "MLGO_PROJECT", "MLGO_KEEP_SMALLER", "MLGO_INLINING_MODEL"):
        assert f" --action_env={name} " in built
    assert "$(mlgo-cc --mlgo-fingerprint | sha256sum)" in built
