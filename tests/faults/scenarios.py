"""What is done while a system call fails: commands, and a compilation that is forked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from corpus_tools.extraction.command import main as extract
from mlgo_gym.base import _files as files
from mlgo_gym.cli._main import main
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.datasets import Dataset
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.errors import MlgoGymError, TrainingError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.problems import InliningForSize
from mlgo_gym.stream import TrainingLogReader
from tests.conftest import require
from tests.faults.results import Files, every_file, training_run

MODELS: Final = Path(__file__).parents[1] / "models"
DRIVER: Final = Path(__file__).parents[2] / "scripts" / "mlgo-cc"
_MODULE: Final = "frame_stream.c"
_SOURCE: Final = "static int g(int x) { return x * x; } int f(int x) { return g(x) + 1; }\n"


@dataclass(frozen=True)
class Outcome:
    """What a scenario came to: its status, and what it said where it failed."""

    status: int
    said: str


@dataclass(frozen=True)
class Scenario:
    """Work in a folder: ``in`` is what it reads, ``out`` what it writes.

    Attributes:
        prepare: makes ``in``, and ``out`` as it was before, once.
        run: does the work.
        check: raises where what is in ``out`` is not whole, new or old.
        goes_on: what failed is done by the same command once nothing fails any more.
        results: what it has written, equal whether something failed before or not.
        calls: where calls that fail are its own; a caller that is a build is not ours.
    """

    prepare: Callable[[Path], None]
    run: Callable[[Path], Outcome]
    check: Callable[[Path], None]
    goes_on: bool = False
    results: Callable[[Path], Files] = every_file
    calls: tuple[str, ...] = ("host", "children")


def _command(*arguments: str | Path, program: Callable[[list[str]], int] = main) -> Outcome:
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            status = program([str(each) for each in arguments])
        except SystemExit as left:
            status = int(left.code or 0)
    return Outcome(status, said.getvalue())


def _corpus(folder: Path) -> None:
    """A corpus of one module, and what was at the output before."""
    corpus = folder / "in"
    corpus.mkdir()
    for suffix in ("bc", "cmd"):
        shutil.copy(SAMPLE_CORPUS / f"{_MODULE}.{suffix}", corpus)
    manifest = {"modules": [_MODULE], "has_thinlto": False}
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    (folder / "out").mkdir()


def _compiled(folder: Path) -> Outcome:
    given = folder / "in" / f"{_MODULE}.bc"
    target = folder / "out" / "f.o"
    return _command("compile", given, "-o", target, "--model", MODELS / "inliner")


def _whole_object(folder: Path) -> None:
    data = (folder / "out" / "f.o").read_bytes()
    if data != b"old" and not binding.section_sizes(data):
        raise ValueError("f.o: neither the old one nor a whole new one")


def _with_old_object(folder: Path) -> None:
    _corpus(folder)
    (folder / "out" / "f.o").write_bytes(b"old")


def _python(work: Callable[[Path], None], folder: Path) -> Outcome:
    """What is no command raises the project's errors, or one of the file that it writes."""
    try:
        work(folder)
    except MlgoGymError as error:
        return Outcome(1, f"error: {error}")
    except OSError as error:
        if not error.filename:  # it is not of the file that is written
            raise
        return Outcome(1, f"error: {error}")
    return Outcome(0, "")


def _fork(folder: Path) -> None:
    sizes = set()
    module = Corpus.load(folder / "in")[_MODULE]
    with Compiler(timeout_s=60) as compiler:
        compilation = compiler.start(module, InliningForSize())
        compilation.next_observation()
        for answer in (0, 1):
            with compilation.fork() as branch:
                branch.answer(answer)
                while branch.next_observation() is not None:
                    branch.answer(0)
                sizes.add(sum(each[1] for each in branch.result.sections))
    files.write_json(folder / "out" / "sizes.json", sorted(sizes))


def _whole_json(folder: Path) -> None:
    for path in (folder / "out").iterdir():
        json.loads(path.read_bytes())


def _rolled_out(folder: Path) -> Outcome:
    corpus, out = folder / "in", folder / "out"
    more = ("--log", out / "never.log", "--traces", out / "traces")
    return _command("rollout", "--corpus", corpus, "--policy", "never", *more)


def _vocabulary(folder: Path) -> Outcome:
    corpus, out = folder / "in", folder / "out" / "v.json"
    settings = ("--corpus", corpus, "--dimension", "2", "--epochs", "1")
    return _command("vocabulary", "train", *settings, "--output", out)


def _whole_log(folder: Path) -> None:
    for log in (folder / "out").glob("*.log"):
        with log.open("rb") as file:
            list(TrainingLogReader(file))


def _recorded(folder: Path) -> Outcome:
    corpus, out = folder / "in", folder / "out" / "set"
    return _command("dataset", "record", "--corpus", corpus, "--output", out, "--policy", "never")


def _whole_dataset(folder: Path) -> None:
    if list((folder / "out").rglob("*.parquet")):
        list(Dataset.open(folder / "out" / "set").episodes())


def _frozen(folder: Path) -> Outcome:
    """A model that could not be sealed is as good as said."""
    out = folder / "out" / "frozen"
    done = _command("freeze", "--model", MODELS / "inliner", "--output", out)
    return Outcome(done.status or bool(done.said), done.said)


def _split(folder: Path) -> Outcome:
    corpora, out = folder / "in", folder / "out" / "both"
    return _command("corpus", "split", "--corpus", corpora, "--output", out, "--by", "module")


def _two_packages(folder: Path) -> None:
    corpus = folder / "in"
    names = [_MODULE, "hash_map.c", "json_write.c"]
    corpus.mkdir()
    for name in names:
        for suffix in ("bc", "cmd"):
            shutil.copy(SAMPLE_CORPUS / f"{name}.{suffix}", corpus)
    manifest = {"modules": names, "has_thinlto": False}
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    (folder / "out").mkdir()


def _whole_corpora(folder: Path) -> None:
    for manifest in (folder / "out").rglob("corpus_description.json"):
        corpus = Corpus.load(manifest.parent)
        for name in corpus:
            if not corpus[name].data.startswith(b"BC"):
                raise ValueError(f"{name}: no bitcode")


def _objects(folder: Path) -> None:
    given = folder / "in"
    given.mkdir()
    (folder / "out").mkdir()
    clang = require("clang-22", "clang-22")
    (given / "f.c").write_text(_SOURCE)
    embed = ("-Xclang", "-fembed-bitcode=all", "-Oz", "-c", "f.c", "-o", "f.o")
    subprocess.run([clang, *embed], cwd=given, check=True)


def _extracted(folder: Path) -> Outcome:
    out = folder / "out" / "corpus"
    options = ("--input", folder / "in", "--input_type", "directory", "--output_dir", out)
    return _command(*options, program=extract)


def _trained(folder: Path) -> Outcome:
    corpus, out = folder / "in", folder / "out" / "run"
    settings = ("--set", "fit.epochs=1", "--set", "hidden=[4]")
    return _command("train", "clone", "--corpus", corpus, "--output", out, *settings)


def _play(folder: Path) -> None:
    """An episode; where one is interrupted, the same environment plays another, as whole."""
    corpus = Corpus.load(folder / "in")
    with closing(CompilationEnv(InliningForSize(), corpus, timeout_s=60)) as env:
        try:
            score = _episode(env)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _write_score(folder, _episode(env))
            raise
    _write_score(folder, score)


def _episode(env: CompilationEnv) -> int:
    _, info = env.reset(seed=3)
    has_ended = False
    while not has_ended:
        *_, terminated, truncated, info = env.step(info["default_advice"])
        if info["error"]:
            raise TrainingError(info["error"])
        has_ended = terminated or truncated
    return int(info["text_size_bytes"])


def _write_score(folder: Path, score: int) -> None:
    if not 0 < score < 1 << 20:
        raise ValueError(f"a score of {score}")
    files.write_json(folder / "out" / "score.json", score)


def _sdist(folder: Path) -> None:
    """A package of two sources, its recipe, and a folder where pip finds it."""
    given = folder / "in"
    given.mkdir()
    (folder / "out").mkdir()
    with tarfile.open(given / "tiny-1.0.tar.gz", "w:gz") as tar:
        for name in ("a.c", "b.c"):
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(_SOURCE)
            tar.addfile(member, io.BytesIO(_SOURCE.encode()))
    digest = hashlib.sha256((given / "tiny-1.0.tar.gz").read_bytes()).hexdigest()
    (given / "tiny.toml").write_text(
        'name = "tiny"\npackage = "tiny"\nversion = "1.0"\nsdist = "tiny-1.0.tar.gz"\n'
        f'sha256 = "{digest}"\nsplit = "train"\nlanguage = "C"\nlicense = "MIT"\n'
        'globs = ["*.c"]\n'
    )


def _built(folder: Path) -> Outcome:
    given, out = folder / "in", folder / "out" / "corpus"
    os.environ.update(
        PIP_NO_INDEX="1", PIP_FIND_LINKS=str(given), PIP_CACHE_DIR=str(folder / "pip")
    )
    clang = ("--clang", require("clang-22", "clang-22"))
    more = ("--output", out, "--jobs", "1", "--cache", folder / "out" / "cache")
    return _command("corpus", "build", given / "tiny.toml", *more, *clang)


def _source(folder: Path) -> None:
    """A source, its object as clang makes it without advice, and no cache."""
    given = folder / "in"
    given.mkdir()
    (folder / "out").mkdir()
    (given / "f.c").write_text(_SOURCE)
    clang = require("clang-22", "clang-22")
    subprocess.run([clang, "-O2", "-c", "f.c", "-o", "plain.o"], cwd=given, check=True)


def _driven(folder: Path) -> Outcome:
    """The first use of a cache; what is compiled without advice is as good as said."""
    own = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MLGO_CACHE": str(folder / "out" / "cache"),
        "MLGO_CLANG": require("clang-22", "clang-22"),
        "MLGO_CONFIG": os.devnull,
        "MLGO_INLINING_MODEL": str(MODELS / "never"),
    }
    command: list[str | Path] = [
        DRIVER,
        "-O2",
        "-c",
        folder / "in" / "f.c",
        "-o",
        folder / "out" / "f.o",
    ]
    try:
        done = subprocess.run(
            command, env=os.environ | own, capture_output=True, text=True, check=False
        )
    except OSError as error:  # it is the build that cannot start a compiler
        return Outcome(1, f"error: {error}")
    if done.returncode == 0:
        _object_of(folder)
    if done.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL} and not done.stderr:
        return Outcome(1, "error: killed")
    if done.returncode:
        return Outcome(1, f"error: {done.stderr}" if done.stderr else "")
    words = done.stderr.splitlines(keepends=True)
    said = "".join(each for each in words if not each.startswith(f"{DRIVER}: "))  # its shell
    return Outcome(1 if said else 0, said)


def _object_of(folder: Path) -> None:
    """An end without an error is one with an object."""
    if not binding.section_sizes((folder / "out" / "f.o").read_bytes()):
        raise ValueError("f.o: no object")


def _whole_driven(folder: Path) -> None:
    if (folder / "out" / "f.o").exists():
        _object_of(folder)


def _nothing(_: Path) -> None:
    """What is there is read again when the command goes on."""


SCENARIOS: Final = {
    "compile": Scenario(_with_old_object, _compiled, _whole_object, goes_on=True),
    "fork": Scenario(_corpus, partial(_python, _fork), _whole_json, goes_on=True),
    "rollout": Scenario(_corpus, _rolled_out, _whole_log, goes_on=True),
    "dataset": Scenario(_corpus, _recorded, _whole_dataset, goes_on=True),
    "freeze": Scenario(_corpus, _frozen, _nothing, goes_on=True),
    "split": Scenario(_two_packages, _split, _whole_corpora, goes_on=True),
    "extract": Scenario(_objects, _extracted, _whole_corpora, goes_on=True),
    "env": Scenario(_corpus, partial(_python, _play), _whole_json, goes_on=True),
    "build": Scenario(_sdist, _built, _whole_corpora, goes_on=True),
    "driver": Scenario(_source, _driven, _whole_driven, goes_on=True, calls=("children",)),
    "vocabulary": Scenario(_corpus, _vocabulary, _whole_json, goes_on=True),
    "train": Scenario(_two_packages, _trained, _nothing, goes_on=True, results=training_run),
}
"""By name."""
