"""``mlgo-gym compile``: what comes out is code, and the advice is in it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.cli._main import main
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm import Compiler
from mlgo_gym.problems import InliningForSize, Problem, RegallocEviction
from mlgo_gym.runners import RunnerPolicy, runner_factory
from mlgo_gym.stream._training_log import TrainingLogReader
from tests.cli.command import check_refused, run_process

MODEL = Path(__file__).parents[1] / "models" / "inliner"
ADVICE = f"{MODEL}"


@pytest.fixture
def scene(sample: Corpus) -> Path:
    name = next(each for each in sample if each.endswith("lru_cache.cpp"))
    return sample.folder / f"{name}.bc"


def text_of(path: Path) -> list[tuple[str, bytes]]:
    return [(each.name, each.content) for each in code_sections(path.read_bytes(), path.name)]


def sizes(sections: list[tuple[str, bytes]]) -> list[tuple[str, int]]:
    return [(name, len(content)) for name, content in sections]


@pytest.mark.smoke
@pytest.mark.e2e
def test_object_assembly_and_bitcode_hold_the_same_code(
    scene: Path, tmp_path: Path, clang22: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("o", "s", "bc"):
        target = tmp_path / f"out.{suffix}"
        assert main(["compile", str(scene), "-o", str(target), "--model", ADVICE, "--json"]) == 0
        (module,) = json.loads(capsys.readouterr().out)["modules"]
        assert module["policies"]["inliner"]["decisions"] > 100
    expected = text_of(tmp_path / "out.o")
    back_end = ["-x", "ir", "-Oz", "-fPIC", "-Xclang", "-disable-llvm-passes"]
    for suffix, arguments in {"s": ["-x", "assembler"], "bc": back_end}.items():
        output = ["-o", str(tmp_path / "again.o")]
        subprocess.run(
            [clang22, "-c", *arguments, str(tmp_path / f"out.{suffix}"), *output], check=True
        )
        # Uses of a value come back in another order, which may choose other registers.
        assert sizes(text_of(tmp_path / "again.o")) == sizes(expected)
    size = sum(len(content) for _, content in expected)
    assert module["policies"]["inliner"]["text_size_bytes"] == size
    assert module["baseline"]["text_size_bytes"] != size


def test_models_of_two_problems(sample: Corpus, scene: Path, tmp_path: Path) -> None:
    """In any order they answer in one compilation, as the library has it."""
    evictor = MODEL.with_name("lowest_density")
    module = replace(sample["lru_cache.cpp"], name=scene.name)
    with ExitStack() as stack:
        answers: dict[Problem, RunnerPolicy] = {
            problem: stack.enter_context(RunnerPolicy(runner_factory(str(path), "release")))
            for problem, path in ((InliningForSize(), MODEL), (RegallocEviction(), evictor))
        }
        inlining, eviction = answers
        alone: dict[Problem, RunnerPolicy] = {}
        compiler = stack.enter_context(Compiler())
        made = [
            compiler.compile_module(
                module, problem=inlining, policy=answers[inlining], also=also, keep_object=True
            ).object_bytes
            for also in (alone, {eviction: answers[eviction]})
        ]
    assert made[0] != made[1]
    for number, models in enumerate(([MODEL, evictor], [evictor, MODEL])):
        words = [word for each in models for word in ("--model", str(each))]
        target = tmp_path / f"{number}.o"
        assert main(["compile", str(scene), "-o", str(target), *words]) == 0
        assert target.read_bytes() == made[1]
    assert main(["compile", str(scene), "-o", str(tmp_path / "a.s"), *words]) == 0
    assert main(["compile", str(scene), "-o", str(tmp_path / "b.s"), *words[2:]]) == 0
    assert (tmp_path / "a.s").read_bytes() != (tmp_path / "b.s").read_bytes()


def test_without_a_model_the_baseline_comes_out(scene: Path, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "out.o"
    assert main(["compile", str(scene), "-o", str(target)]) == 0
    assert text_of(target)
    assert main(["compile", str(scene), "-o", str(tmp_path / "out.s")]) == 0
    assert ".text" in (tmp_path / "out.s").read_text()


@pytest.mark.e2e
def test_a_corpus_and_its_training_log(small: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in small:
        for suffix in ("bc", "cmd"):
            target = folder / f"{name}.{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(small.folder / f"{name}.{suffix}", target)
    manifest = {"modules": list(small), "has_thinlto": False}
    (folder / "corpus_description.json").write_text(json.dumps(manifest))
    log = tmp_path / "training.log"
    arguments = ["--model", ADVICE, "--log", str(log), "--jobs", "2", "--opt-level", "Oz"]
    assert main(["compile", "--corpus", str(folder), "-o", str(tmp_path / "out"), *arguments]) == 0
    for name in small:
        assert text_of(tmp_path / "out" / f"{name}.o")
    with log.open("rb") as file:
        contexts = {record.observation.context for record in TrainingLogReader(file)}
    assert contexts == set(small)


def test_the_name_of_the_folder_of_a_corpus_decides_nothing(
    small_folder: Path, small: Corpus, tmp_path: Path
) -> None:
    folder = tmp_path / "out.s"
    command = ["compile", "--corpus", str(small_folder), "-o", str(folder)]
    assert main(command) == 0
    assert main([*command, "--emit", "bitcode"]) == 0
    for name in small:
        assert (folder / f"{name}.o").read_bytes().startswith(b"\x7fELF")
        assert (folder / f"{name}.bc").read_bytes().startswith(b"BC")


@pytest.mark.e2e
@pytest.mark.parametrize("model", ["inlining-for-size", "regalloc-eviction"])
def test_the_best_of_several_is_kept(
    sample: Corpus, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [model] if model.startswith("reg") else [model, ADVICE]
    names = [Path(each).name for each in given]
    options = [each for name in given for each in ("--model", name)]
    kept = set[str]()
    for name in ("lru_cache.cpp", "regex_match.c", "regex_parse.c"):
        target = tmp_path / "out.o"
        arguments = [str(sample.folder / f"{name}.bc"), "-o", str(target), *options, "--json"]
        assert main(["compile", *arguments, "--keep-smaller"]) == 0
        (module,) = json.loads(capsys.readouterr().out)["modules"]
        made = {"LLVM": module["baseline"], **{each: module["policies"][each] for each in names}}
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        assert digest == module["policies"]["smallest"]["object_sha256"]
        sizes = {each: value["text_size_bytes"] for each, value in made.items()}
        if model.startswith("inl"):
            assert module["policies"]["smallest"]["text_size_bytes"] == min(sizes.values())
        of = [each for each in made if made[each]["object_sha256"] == digest]
        kept.add(of[0] if of else "of several")
    assert len(kept) > 1


@pytest.mark.e2e
def test_second_opinions(
    sample: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rule that loses as a whole is better in some functions, and those are kept."""
    rule = "lowest-use"
    arguments = [str(sample.folder / "regex_match.c.bc"), "-o", str(tmp_path / "out.o"), "--json"]
    arguments += ["--model", "regalloc-eviction", "--policy", rule, "--keep-smaller"]
    assert main(["compile", *arguments]) == 0
    (made,) = json.loads(capsys.readouterr().out)["modules"]
    assert list(made["policies"]) == ["regalloc-eviction", rule, "smallest"]
    best = made["policies"]["smallest"]["object_sha256"]
    assert hashlib.sha256((tmp_path / "out.o").read_bytes()).hexdigest() == best
    assert best not in {
        made["policies"][each]["object_sha256"] for each in ("regalloc-eviction", rule)
    }


@pytest.mark.parametrize(
    ("model", "module"),
    [("regalloc-eviction", "regex_match.c"), ("inlining-for-size", "lru_cache.cpp")],
)
def test_a_log_of_what_was_kept(
    sample: Corpus, tmp_path: Path, model: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(sample.folder / f"{module}.bc"), "-o", str(tmp_path / "out.o"), "--json"]
    log = tmp_path / "training.log"
    arguments += ["--model", model, "--keep-smaller", "--log", str(log)]
    assert main(["compile", *arguments]) == 0
    (made,) = json.loads(capsys.readouterr().out)["modules"]
    with log.open("rb") as file:
        records = list(TrainingLogReader(file))
    smallest = made["policies"]["smallest"]
    assert len(records) == smallest["decisions"] > 0
    assert records[-1].score == pytest.approx(smallest["reward"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["IN.c", "-o", "OUT"],
            "input: expected a file that ends in .bc or .ll, found 'IN.c'; --corpus takes corpora",
        ),
        (
            ["IN.bc", "-o", "OUT"],
            "module 'IN.bc': cannot read 'IN.bc': No such file or directory",
        ),
        (
            ["IN.bc", "-o", "OUT", "--model", "none"],
            "model 'none': expected a model directory, a frozen model or the name of a shipped one "
            "(inlining-for-size, inlining-for-size-derived, inlining-for-size-project, "
            "regalloc-eviction), found none",
        ),
        (
            ["IN.bc", "-o", "OUT", "--model", "other", "--problem", "inlining-for-size"],
            "model 'other': expected a model for InliningForSize, found one for RegallocEviction",
        ),
        (
            ["IN.bc", "-o", "OUT", "--log", "LOG"],
            "--log: expected a --model or --policy whose decisions are logged, found none",
        ),
        (
            ["--corpus", ".", "-o", "OUT"],
            "corpus '.': expected corpus_description.json in it or in folders in it, found none; "
            "'mlgo-gym corpus build' makes a corpus",
        ),
        (
            ["IN.bc", "-o", "OUT", "--keep-smaller"],
            "--keep-smaller: expected a --model or --policy to compare with LLVM, found none",
        ),
        (
            ["IN.bc", "-o", "OUT", "--model", "a", "--policy", "never"],
            "expected one --model or --policy of a problem, found 2; --keep-smaller takes the best "
            "of several",
        ),
        (
            ["IN.bc", "-o", "OUT", "--model", "a", "--model", "other", "--keep-smaller"],
            "--keep-smaller: expected models of one problem, found those of 2",
        ),
        (
            ["IN.bc", "-o", "OUT", "--model", "a", "--model", "other", "--log", "LOG"],
            "--log: expected a --model or --policy whose decisions are logged, found 2",
        ),
        (["-o", "OUT"], "input: expected a file or --corpus, found neither"),
        (
            ["IN.bc", "--corpus", ".", "-o", "OUT"],
            "input: expected a file or --corpus, found both",
        ),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    card = {"problem": "RegallocEviction", "llvm_version": "22.1.0", "features": ["mask"]}
    (tmp_path / "other" / "card.json").write_text(json.dumps(card))
    check_refused(message, "compile", *arguments, cwd=tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other"]


def test_a_suffix_in_capitals_says_the_same(tmp_path: Path, sample: Corpus) -> None:
    source = tmp_path / "digest.bc"
    source.write_bytes(sample["digest.c"].data)
    for suffix, start in {"S": b"\t.file", "BC": b"BC\xc0\xde", "O": b"\x7fELF"}.items():
        target = tmp_path / f"out.{suffix}"
        assert main(["compile", str(source), "-o", str(target), "--policy", "default"]) == 0
        assert target.read_bytes().startswith(start)


def test_failures_are_reported_by_the_problems_measure(tmp_path: Path) -> None:
    """All modules fail, and the title and the key are those of a third party's measure."""
    example = Path(__file__).parents[2] / "examples" / "loaded_size"
    metadata = tmp_path / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[mlgo_gym.problems]\ntheirs = mlgo_gym_loaded_size:InliningForLoadedSize\n"
    )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "broken.bc").write_bytes(b"no bitcode")
    manifest = {"modules": ["broken"], "has_thinlto": False}
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    done = run_process(
        *("compile", "--problem", "theirs", "--corpus", "corpus", "-o", "out", "--json"),
        cwd=tmp_path,
        PYTHONPATH=f"{tmp_path}:{example}",
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    said = "module 'broken': LLVM bitcode parsing error\nInvalid bitcode signature"
    assert found["modules"] == [{"module": "broken", "error": said, "policies": {}}]
    assert list(found["total"]) == ["modules", "baseline_loaded_size_bytes", "loaded_size_bytes"]


@pytest.mark.parametrize("output", ["-", "x.ll", "x.LL"])
def test_outputs_that_cannot_be(
    output: str, tmp_path: Path, sample: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that says LLVM's text, or standard output, would hold an object."""
    source = tmp_path / "digest.bc"
    source.write_bytes(sample["digest.c"].data)
    path = output if output == "-" else tmp_path / output
    assert main(["compile", str(source), "-o", str(path)]) == 1
    expected = "--output: expected a file, such as NAME.o, NAME.s, NAME.bc, found"
    assert f"{expected} {str(path)!r}" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["digest.bc"]
