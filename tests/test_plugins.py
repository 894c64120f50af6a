"""Measures, trainers and commands of an installed package: good, broken, taken, incomplete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from tests.cli.command import Done, run_process

ROOT = Path(__file__).parent.parent
CODE = """
import argparse
from dataclasses import dataclass
from typing import ClassVar

from contextlib import contextmanager

from mlgo_gym.cli import Addition, Extension
from mlgo_gym.rollout import Measure, TextSize


class Doubled(TextSize):
    key: ClassVar[str] = "doubled_bytes"
    title: ClassVar[str] = "doubled"
    meaning: ClassVar[str] = "twice the bytes of code"

    def score(self, result):
        return 2 * super().score(result)


class Partial(Measure):
    key: ClassVar[str] = "partial"


class Cloner:
    ABOUT = "answer as 'never' does"
    REWARDLESS = "never is never"

    @dataclass(frozen=True)
    class Config:
        seed: int = 0
        epochs: int = 2

    @staticmethod
    def train(run, config, data):
        from mlgo_gym.training._clone import Config, train
        from mlgo_gym.training._fitting import FitConfig

        clone = Config(config.seed, policy="never", fit=FitConfig(epochs=config.epochs))
        return train(run, clone, data)


class Untrained:
    Config = Cloner.Config


class Idle:
    Config = Cloner.Config

    @staticmethod
    def train(run, config, data):
        return Valued({"modules": 3, "worse_modules": 0})


class Untold:
    Config = Cloner.Config

    @staticmethod
    def train(run, config, data):
        return None


class Valued:
    def __init__(self, values):
        self.to_json = lambda: values


class Unseeded:
    Config = int
    train = Cloner.train


class Hello:
    DESCRIPTION = "Greet somebody."
    EXAMPLE = "mlgo-gym hello Ada"

    @staticmethod
    def add_options(add):
        add("name", "NAME", "who is greeted")
        add.compilation(executor=True)

    @staticmethod
    def run(options, output):
        output.print(f"Hello {options.name}.")
        output.json({"greeted": options.name})
        return 0


class Statusless:
    DESCRIPTION = "Say nothing about how it went."
    EXAMPLE = "mlgo-gym statusless"

    @staticmethod
    def run(options, output):
        output.print("Done.")


class Silent:
    DESCRIPTION = "Say nothing."


class Counting(Extension, Addition):
    commands = ("evaluate", "corpus stats")

    def add_options(self, add, command):
        add("--count", "", f"count the policies of {command}")

    @contextmanager
    def running(self, options, output):
        if options.command == "evaluate" and options.count:
            options.additions.append(self)
        yield
        output.remark("counted")

    def checks(self):
        yield "fingers", lambda: "ten"

    def measure(self, policies, setting, output):
        self.found = len(policies)

    def record(self, seed):
        return {"count": self.found}


COMMANDS = {"_far": "go far, 100% of the way"}
"""
MORE_CODE = {
    "theirs_too": 'COMMANDS = {"_explain": "explain otherwise", "_near": "go near"}',
    "theirs_not": 'COMMANDS = {"_many": 3}',
}
ENTRY_POINTS = """
    [mlgo_gym.measures]
    doubled = theirs:Doubled
    broken = nowhere:Measure
    text = theirs:Doubled
    partial = theirs:Partial

    [mlgo_gym.trainers]
    cloner = theirs:Cloner
    broken = nowhere:Trainer
    clone = theirs:Cloner
    partial = theirs:Untrained
    unseeded = theirs:Unseeded
    idle = theirs:Idle
    untold = theirs:Untold

    [mlgo_gym.commands]
    hello = theirs:Hello
    statusless = theirs:Statusless
    broken = nowhere:command
    train = theirs:Hello
    partial = theirs:Silent
    several = theirs:COMMANDS
    insight = theirs:Hello
    clashing = theirs_too:COMMANDS
    numbered = theirs_not:COMMANDS
    none = nowhere:COMMANDS

    [mlgo_gym.extensions]
    broken = nowhere:Extension
    counting = theirs:Counting
    partial = theirs:Silent
"""
BROKEN = "cannot be loaded: No module named 'nowhere'"
TAKEN = "expected a name of its own, found that of another"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package and its metadata, as an installation leaves it."""
    folder = tmp_path_factory.mktemp("site")
    for name, code in {"theirs": CODE, **MORE_CODE}.items():
        (folder / f"{name}.py").write_text(code)
    metadata = folder / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    return folder


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    return Run(installed, tmp_path)


class Run:
    """Runs ``mlgo-gym`` where the package is installed."""

    def __init__(self, installed: Path, folder: Path) -> None:
        self.folder = folder
        self.path = f"{installed}{os.pathsep}{ROOT}"

    def __call__(self, *arguments: str) -> Done:
        return run_process(*arguments, cwd=self.folder, PYTHONPATH=self.path)

    def python(self, script: str) -> str:

        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": self.path},
        )
        return done.stdout


def said(name: str, target: str, message: str) -> str:
    return f"entry point {name!r} of theirs 1.0 ({target}): {message}"


CORPUS = str(SAMPLE_CORPUS)


def test_a_measure(run: Run) -> None:
    """It is a reward of environments, and a part of mixes."""
    found = run.python("""
        import gymnasium
        from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
        from mlgo_gym.rollout._named import measure_named, reward_name
        env = gymnasium.make("mlgo_gym/InliningForSize-v0", reward="doubled")
        _, info = env.reset(options={"module": "digest.c"})
        env.close()
        corpus = Corpus.load(SAMPLE_CORPUS)
        with Compiler() as compiler:
            plain = compiler.compile_module(corpus["digest.c"])
        print(info["baseline_doubled_bytes"] / plain.text_size_bytes)
        print(measure_named("text,doubled:2", corpus).score(plain) > plain.text_size_bytes)
        print(reward_name("doubled:2,text:0.5"))
    """)
    assert found.splitlines() == ["2.0", "True", "text:0.5,doubled:2.0"]


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("broken", "nowhere:Measure", BROKEN),
        ("partial", "theirs:Partial", "Partial: expected unit, title, meaning, found none"),
    ],
)
def test_a_bad_measure(run: Run, name: str, target: str, message: str) -> None:
    done = run("train", "advantage", "--corpus", CORPUS, "--output", "run", "--reward", name)
    assert done.returncode == 1
    assert said(name, target, message) in done.stderr


def test_measures_there_are(run: Run) -> None:
    """One whose name is taken is reported, and ours stays."""
    done = run("train", "advantage", "--corpus", CORPUS, "--output", "run", "--reward", "none")
    assert done.returncode == 1
    known = (
        "linked_text_icf, box, box-time, cost, estimate, instructions, broken, doubled, partial, "
    )
    assert known in done.stderr
    assert said("text", "theirs:Doubled", f"{TAKEN}; left out") in done.stderr


@pytest.mark.e2e
def test_a_trainer(run: Run) -> None:
    few = ("--corpus", CORPUS, "--output", "run", "--set", "epochs=1", "--json")
    done = run("train", "cloner", *few)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["validation"]["modules"] > 0
    card = json.loads((run.folder / "run" / "model" / "card.json").read_text())
    assert card["trainer"] == "cloner"


def test_a_trainer_that_takes_no_reward(run: Run) -> None:
    done = run("train", "cloner", "--corpus", CORPUS, "--output", "run", "--reward", "linked")
    assert done.returncode == 1
    message = "cloner: expected no reward, since never is never, found 'linked'"
    assert f"mlgo-gym: error: {message}\n" in done.stderr


def test_what_trainers_do(run: Run) -> None:
    """Help says it of those that can be used, and loads no measure for its names."""
    done = run("train", "--help")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "networks with other weights, compared; cloner: answer as 'never' does; idle: " in text
    assert said("partial", "theirs:Untrained", "expected train, found none") in done.stderr
    assert "text, linked, linked_text_gc, linked_text_icf, box, box-time, cost, " in text
    assert "instructions, broken, doubled, partial; " in text
    assert "nowhere:Measure" not in done.stderr


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("broken", "nowhere:Trainer", BROKEN),
        ("partial", "theirs:Untrained", "expected train, found none"),
        (
            "unseeded",
            "theirs:Unseeded",
            "Config: expected a dataclass with a field 'seed', found <class 'int'>",
        ),
    ],
)
def test_a_bad_trainer(run: Run, name: str, target: str, message: str) -> None:
    done = run("train", name, "--corpus", CORPUS, "--output", "run")
    assert done.returncode == 1
    assert f"mlgo-gym: error: {said(name, target, message)}\n" in done.stderr
    assert said("clone", "theirs:Cloner", f"{TAKEN}; left out") in done.stderr


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("idle", "theirs:Idle", "train: expected a model directory at 'run/model', found none"),
        (
            "untold",
            "theirs:Untold",
            "train: expected 'modules' and 'worse_modules' by to_json(), found None",
        ),
    ],
)
def test_a_trainer_that_leaves_nothing(run: Run, name: str, target: str, message: str) -> None:
    done = run("train", name, "--corpus", CORPUS, "--output", "run")
    assert done.returncode == 1
    assert f"mlgo-gym: error: {said(name, target, message)}\n" in done.stderr


def test_a_command_without_a_status(run: Run) -> None:
    done = run("statusless")
    assert done.returncode == 1
    message = "statusless: run: expected an exit status, 0 to 255, found None"
    assert f"mlgo-gym: error: {message}\n" in done.stderr


def test_a_command(run: Run) -> None:
    done = run("hello", "Ada", "--json")
    assert json.loads(done.stdout) == {"greeted": "Ada"}
    assert said("train", "theirs:Hello", f"{TAKEN}; left out") in done.stderr
    text = run("hello", "--help").stdout
    assert "Greet somebody." in text
    assert "--timeline FILE" in text  # of extensions, by what the command has
    assert "--ray ADDRESS" in text
    assert "--count" not in text


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("broken", "nowhere:command", BROKEN),
        ("partial", "theirs:Silent", "expected EXAMPLE, run, found none"),
    ],
)
def test_a_bad_command(run: Run, name: str, target: str, message: str) -> None:
    done = run(name)
    assert done.returncode == 1
    assert f"mlgo-gym: error: {said(name, target, message)}\n" in done.stderr


def test_bad_commands_leave_the_others(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for line in ("hello", "a command of theirs", "train a policy on corpora"):
        assert line in done.stdout
    assert run("train", "--help").stdout.startswith("usage: mlgo-gym train")


def test_several_commands_at_once(run: Run) -> None:
    done = run("--help")
    assert "far" in done.stdout
    assert "go far, 100% of the way" in done.stdout
    assert said("none", "nowhere:COMMANDS", BROKEN) in done.stderr
    message = "expected modules and what they do, found {'_many': 3}"
    assert said("numbered", "theirs_not:COMMANDS", message) in done.stderr


def test_one_of_several_commands_that_clashes(run: Run) -> None:
    """The others are there, and ours stays."""
    done = run("--help")
    assert done.returncode == 0, done.stderr
    assert "go near" in done.stdout
    assert "explain otherwise" not in done.stdout
    message = f"explain: {TAKEN}; left out"
    assert said("clashing", "theirs_too:COMMANDS", message) in done.stderr
    assert run("explain", "--help").stdout.startswith("usage: mlgo-gym explain")


def test_one_of_several_commands_that_is_not_there(run: Run) -> None:
    done = run("far")
    assert done.returncode == 1
    message = "cannot be loaded: No module named 'theirs._far'"
    assert f"mlgo-gym: error: {said('several', 'theirs:COMMANDS', message)}" in done.stderr


def test_a_command_called_as_an_entry_point_of_ours(run: Run) -> None:
    """Commands have names of their own; those of entry points for several are nobody's."""
    done = run("insight", "Ada")
    assert (done.returncode, done.stdout) == (0, "Hello Ada.\n")


def test_an_extension(run: Run) -> None:
    done = run("evaluate", "--policy", "never", "--policy", "always", "--count", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["count"] == 2
    assert "count the policies of corpus stats" in " ".join(
        run("corpus", "stats", "--help").stdout.split()
    )
    assert "fingers" in run("doctor").stdout


def test_bad_extensions_leave_the_others(run: Run) -> None:
    done = run("corpus", "stats", "--json")
    assert done.returncode == 0, done.stderr
    assert said("broken", "nowhere:Extension", BROKEN) in done.stderr
    assert "expected a subclass of mlgo_gym.cli.Extension, found <class 'theirs.Silent'>" in (
        done.stderr
    )
