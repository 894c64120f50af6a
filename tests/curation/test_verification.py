"""Verifying a corpus: a module that is broken, an object of another module, one that is gone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import lief
import pytest

from corpus_tools import Manifest, find_clang
from corpus_tools.object_file import LARGEST_BYTES
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.curation._verification import Check, CheckOutcome, _Task, verify_corpus
from mlgo_gym.errors import OptionsError
from tests.cli.command import Done, run

BLOCKS = "-fbasic-block-sections=: blocks stay in the section of their function"

SOURCES = {
    "good.o": "int external(int); int good(int a) { return external(a) * 3; }",
    "sub/broken.o": "int broken(int a) { return a + 1; }",
    "other.o": "int external(int); int other(int a) { return external(a + 1); }",
    "gone.o": "int gone(int a) { return a * a; }",
    "sections.o": "int one(int a) { return a + 1; } int two(int a) { return a - 1; }",
}


@pytest.fixture
def corpus(clang22: str, tmp_path: Path) -> Path:
    """A corpus as extraction makes it, and beside it the objects that it was extracted from."""
    folder, objects = tmp_path / "corpus", tmp_path / "objects"
    for name, text in SOURCES.items():
        for place in (folder / name, objects / name):
            place.parent.mkdir(parents=True, exist_ok=True)
        source = tmp_path / "source.c"
        source.write_text(text)
        flags = ["-fbasic-block-sections=all"] if name == "sections.o" else []
        command = [clang22, "-c", "-Oz", "-Xclang", "-fembed-bitcode=all", *flags, str(source)]
        subprocess.run([*command, "-o", str(objects / name)], check=True)
        parsed = lief.ELF.parse(str(objects / name))
        assert parsed is not None
        contents = {str(each.name): bytes(each.content) for each in parsed.sections}
        (folder / f"{name}.bc").write_bytes(contents[".llvmbc"])
        (folder / f"{name}.cmd").write_bytes(contents[".llvmcmd"])
    Manifest(tuple(SOURCES)).write(folder)
    bitcode = folder / "sub/broken.o.bc"
    bitcode.write_bytes(bitcode.read_bytes()[:400])
    (objects / "other.o").write_bytes((objects / "good.o").read_bytes())
    (objects / "gone.o").unlink()
    return folder


def verify(corpus: Path, *arguments: str | Path) -> Done:
    command = ("corpus", "verify", "--corpus", corpus)
    return run(*command, *arguments, cwd=corpus.parent, COLUMNS="120")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_every_outcome(corpus: Path, clang22: str, jobs: str) -> None:
    objects = corpus.parent / "objects"
    done = verify(corpus, "--clang", clang22, "--objects", objects, "--jobs", jobs, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    outcomes = {
        each["module"]: tuple(each[name]["outcome"] for name in ("embedded", "original", "clang"))
        for each in found["modules"]
    }
    assert outcomes == {
        "good.o": ("compiled", "equal", "equal"),
        "sub/broken.o": ("failed", "failed", "not done"),
        "other.o": ("compiled", "differs", "equal"),
        "gone.o": ("compiled", "no object", "equal"),
        "sections.o": ("compiled", "equal", "differs"),
    }
    details = {each["module"]: each for each in found["modules"]}
    assert details["sub/broken.o"]["embedded"]["detail"].startswith("module 'sub/broken.o': ")
    assert "clang exited with 1" in details["sub/broken.o"]["original"]["detail"]
    assert details["other.o"]["original"]["detail"].startswith(".text: ")
    assert found["total"]["original"] == {"equal": 2, "failed": 1, "differs": 1, "no object": 1}
    assert found["not_honoured"] == {BLOCKS: 1}


def test_the_table_names_what_is_wrong(corpus: Path, clang22: str) -> None:
    done = verify(corpus, "--clang", clang22, "--objects", corpus.parent / "objects")
    assert done.returncode == 1
    rows = [line for line in done.stdout.splitlines() if ".o" in line]
    assert [line.split()[1] for line in rows] == ["sub/broken.o", "sub/broken.o", "other.o"]
    assert done.stderr == f"mlgo-gym: not honoured in 1 module: {BLOCKS}\n"


def test_what_is_good_gives_status_0(corpus: Path, clang22: str) -> None:
    Manifest(("good.o", "gone.o", "sections.o")).write(corpus)
    for arguments in ((), ("--clang", clang22, "--objects", corpus.parent / "objects")):
        done = verify(corpus, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_without_any_of_the_objects_is_the_wrong_one(corpus: Path, clang22: str) -> None:
    objects = corpus.parent / "objects"
    arguments = ("--clang", clang22, "--objects", objects)
    Manifest(("good.o",)).write(corpus)
    done = verify(corpus, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    Manifest(("gone.o",)).write(corpus)
    done = verify(corpus, *arguments)
    message = f"--objects: expected objects of the modules in {objects}, found none"
    assert done.returncode == 1
    assert " ".join(done.stderr.split()) == f"mlgo-gym: error: {message}"
    assert verify(corpus, "--clang", clang22).returncode == 0


def test_a_global_command_stands_for_all(corpus: Path, clang22: str) -> None:
    Manifest(("good.o", "gone.o"), global_command_override=("-cc1", "-O9")).write(corpus)
    verdicts = list(verify_corpus(Corpus.load(corpus), clang=find_clang(clang22)))
    assert [each.embedded.outcome for each in verdicts] == [CheckOutcome.FAILED] * 2


def test_a_module_without_a_command(corpus: Path, clang22: str) -> None:
    Manifest(("good.o",)).write(corpus)
    (corpus / "good.o.cmd").unlink()
    (verdict,) = verify_corpus(Corpus.load(corpus), clang=find_clang(clang22))
    assert verdict.embedded.outcome is CheckOutcome.COMPILED
    assert str(verdict.original) == (
        "failed: module 'good.o': expected a command line for clang, found none"
    )


def test_thinlto_is_for_clang_alone(corpus: Path, clang22: str) -> None:
    Manifest(("good.o",), has_thinlto=True).write(corpus)
    refused = verify(corpus)
    assert refused.returncode == 1
    assert "expected has_thinlto false, found true" in refused.stderr
    loaded = Corpus.load(corpus, allow_thinlto=True)
    (verdict,) = verify_corpus(loaded, clang=find_clang(clang22))
    assert str(verdict.embedded) == "not done: ThinLTO's imports are not done here"
    assert verdict.original.outcome is CheckOutcome.FAILED  # it has no index
    assert "good.o: expected an object, found an empty file" in verdict.original.detail
    assert "good.o.thinlto.bc" in verdict.original.detail


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--objects", "."],
            "--objects: expected --clang with it, whose code is compared with them",
        ),
        (
            ["--clang", "--objects", "nowhere"],
            "--objects: expected a folder, found 'nowhere'",
        ),
        (
            ["--clang", "no-such-clang"],
            "no clang >= 19 found (looked for no-such-clang); on Debian or Ubuntu: apt-get "
            "install clang-22",
        ),
    ],
)
def test_options_that_cannot_be_used(sample: Corpus, arguments: list[str], message: str) -> None:
    done = verify(sample.folder, *arguments)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")


def test_jobs_below_one(sample: Corpus) -> None:
    with pytest.raises(OptionsError, match=r"^jobs: expected a number above 0, found 0$"):
        list(verify_corpus(sample, jobs=0))


@pytest.mark.e2e
def test_the_sample_corpus_is_compiled_to_the_code_of_clang(sample: Corpus, clang22: str) -> None:
    verdicts = list(verify_corpus(sample, clang=find_clang(clang22)))
    assert {each.module: str(each.clang) for each in verdicts} == dict.fromkeys(sample, "equal")


def test_objects_that_nothing_is_compared_with(sample: Corpus, tmp_path: Path) -> None:
    """Bitcode, as of a build with -flto; what is too large; and what is no object."""
    task = _Task(Packages.of({"p": sample}), None, tmp_path, 60.0)
    (tmp_path / "lto.o").write_bytes(b"BC\xc0\xde")
    with (tmp_path / "huge.o").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    (tmp_path / "text.o").write_bytes(b"junk")
    no_object = Check(CheckOutcome.NO_OBJECT)
    assert task._against_original("none.o", b"") == no_object
    assert task._against_original("lto.o", b"") == no_object
    huge = task._against_original("huge.o", b"")
    assert huge.outcome is CheckOutcome.FAILED
    assert huge.detail.startswith(f"cannot read {str(tmp_path / 'huge.o')!r}: ")
    assert str(task._against_original("text.o", b"")) == (
        "failed: object text.o: expected an object file, found one that starts with b'junk'"
    )
