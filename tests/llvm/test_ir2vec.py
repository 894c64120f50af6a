"""IR2Vec in the real inliner: embeddings come, decisions and objects stay what they are."""

from __future__ import annotations

import io
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._logs import LogEpisodes, export_log
from mlgo_gym.datasets._record import header_of
from mlgo_gym.datasets._record import record as record_dataset
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.errors import (
    EnvironmentSetupError,
    ModelError,
    ModuleError,
    TraceError,
    UsageError,
)
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._task import OPTIMIZE
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._vocabulary import OPCODES, TYPES, Vocabulary
from mlgo_gym.rollout._log import RolloutLog
from mlgo_gym.rollout._replay import problem_of, record, replay
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.runners._model_runners import ReleaseModeModelRunner
from mlgo_gym.runners._models import load_model
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._training_log import Observation

MODELS = Path(__file__).parents[1] / "models"
MODULE = Module.from_ir(
    """
define internal i32 @g(i32 %x, ptr %p) {
  %y = mul i32 %x, %x
  store i32 %y, ptr %p
  %z = add i32 %y, 3
  ret i32 %z
}
define i32 @f(i32 %x, ptr %p) minsize optsize {
  %a = call i32 @g(i32 %x, ptr %p)
  %b = call i32 @g(i32 %a, ptr %p)
  ret i32 %b
}
""",
    "calls",
)


def asked(compiler: Compiler, problem: InliningForSize, module: Module = MODULE) -> list[Any]:
    seen: list[dict[str, Any]] = []

    def answer(observation: Observation) -> int:
        seen.append({name: array.tolist() for name, array in observation.items()})
        return default(observation)

    compiler.compile_module(module, problem=problem, policy=answer)
    return seen


def test_ones_count_instructions(compiler: Compiler) -> None:
    first, second = asked(compiler, InliningForSize(ir2vec="ones"))
    assert (first["callee_embedding"], first["caller_embedding"]) == ([4.0], [3.0])
    # The first call has been inlined: it and the return are gone.
    assert (second["callee_embedding"], second["caller_embedding"]) == ([4.0], [5.0])


def test_one_hot_counts_opcodes_and_types(compiler: Compiler) -> None:
    first, _ = asked(compiler, InliningForSize(ir2vec="one-hot"))
    counts = dict(zip((*OPCODES, *TYPES), first["callee_embedding"], strict=True))
    found = {name: count for name, count in counts.items() if count}
    assert found == {"Mul": 1, "Store": 1, "Add": 1, "Ret": 1, "VoidTy": 2, "IntegerTy": 2}


def test_the_vocabulary_that_ships(compiler: Compiler) -> None:
    """An embedding is what LLVM's documentation says: a weighted sum over the instructions."""
    first, _ = asked(compiler, InliningForSize(ir2vec="seed-75"))
    sections = json.loads(Vocabulary.of("seed-75").data)
    terms = {
        "Opcodes": (1.0, ["Mul", "Store", "Add", "Ret"]),
        "Types": (0.5, ["IntegerTy", "VoidTy", "IntegerTy", "VoidTy"]),
        "Arguments": (0.2, ["Variable"] * 5 + ["Pointer", "Constant"]),
    }
    expected = sum(
        weight * np.array(sections[section][name])
        for section, (weight, names) in terms.items()
        for name in names
    )
    np.testing.assert_allclose(first["callee_embedding"], expected, atol=1e-5)


def test_with_and_without_in_one_worker(compiler: Compiler, tmp_path: Path) -> None:
    """LLVM's options outlast a compilation; what one was set up with is not the next one's."""
    twos = tmp_path / "twos.json"
    twos.write_text(
        json.dumps(
            {
                "Opcodes": {name: [2.0, -1.5] for name in OPCODES},
                "Types": {"VoidTy": [0, 0]},
                "Arguments": {"Constant": [0, 0]},
            }
        )
    )
    expected = {None: None, "ones": [4.0], str(twos): [8.0, -6.0]}
    compiler.compile_module(MODULE)
    pid = compiler.worker_pid
    for given in (None, "ones", None, str(twos), "ones", str(twos), None):
        first, *_ = asked(compiler, InliningForSize(ir2vec=given))
        assert first.get("callee_embedding") == expected[given]
        compiler.compile_module(MODULE)
    assert compiler.worker_pid == pid


@pytest.mark.parametrize("vocabulary", ["ones", "one-hot"])
def test_default_answers_change_nothing(compiler: Compiler, small: Corpus, vocabulary: str) -> None:
    same_as_plain(compiler, small.only(["frame_stream.c"]), vocabulary)


@pytest.mark.e2e
@pytest.mark.parametrize("vocabulary", ["ones", "one-hot"])
def test_default_answers_change_nothing_of_the_sample(
    compiler: Compiler, sample: Corpus, vocabulary: str
) -> None:
    same_as_plain(compiler, sample, vocabulary)


def same_as_plain(compiler: Compiler, corpus: Corpus, vocabulary: str) -> None:
    problem = InliningForSize(math.inf, ir2vec=vocabulary)
    for module in corpus:
        plain = compiler.compile_module(corpus[module])
        found = compiler.compile_module(corpus[module], problem=problem, policy=default)
        assert found.object_sha256 == plain.object_sha256


class Besides(InliningForSize):
    """LLVM sends embeddings, of which the problem knows nothing."""

    def files(self) -> dict[str, bytes]:
        return dict(InliningForSize(ir2vec="one-hot").files())


@pytest.mark.e2e
def test_a_model_that_knows_less_goes_on(compiler: Compiler, small: Corpus) -> None:
    runner = RunnerPolicy(
        lambda inputs, output: ReleaseModeModelRunner(MODELS / "inliner", inputs, output), keep=True
    )
    module = small["json_write.c"]
    with runner as policy:
        plain, more, known = (
            record(compiler, module, problem, policy, keep_observations=True)
            for problem in (InliningForSize(), Besides(), InliningForSize(ir2vec="one-hot"))
        )
    assert plain == replace(more, features=plain.features, observations=plain.observations)
    assert (more.features, more.observations) == (known.features, known.observations)
    assert (plain.advice, plain.object_sha256) == (known.advice, known.object_sha256)
    assert len(known.features) == len(plain.features) + 2
    assert replay(compiler, plain, module).decisions == plain.decisions


def test_what_comes_besides_is_in_info_and_in_traces(compiler: Compiler, small: Corpus) -> None:
    env = CompilationEnv(Besides(), small)
    observation, _ = env.reset(options={"module": "frame_stream.c"})
    assert observation in env.observation_space
    assert {name: array.shape for name, array in env.besides.items()} == {
        "callee_embedding": (80,),
        "caller_embedding": (80,),
    }
    env.step(1)
    assert env.besides["callee_embedding"].sum() > 0
    env.close()
    module = small["frame_stream.c"]
    problem = compiler.as_sent(Besides(), module)
    assert len(problem.layout.features) == 40
    known = compiler.as_sent(InliningForSize(ir2vec="one-hot"), module)
    assert problem.layout.specs == known.layout.specs
    trace = record(compiler, module, problem, default, keep_observations=True)
    assert trace.features == known.layout.specs
    assert record(compiler, module, Besides(), default, keep_observations=True) == trace
    read = problem_of(Trace.from_bytes(trace.to_bytes()))
    assert read.layout.specs == known.layout.specs


def kept(
    compiler: Compiler, corpus: Corpus, problem: InliningForSize, folder: Path
) -> tuple[bytes, Trace, Dataset]:
    """A log, the trace of the last module, and a dataset, with no option given."""
    answers = {"default": default}
    *silent, last = rollout(corpus, answers, problem, keep_decisions=True)
    file = io.BytesIO()
    with RolloutLog(file, problem) as log:
        assert [log.write(report) for report in silent] == [0]
        log.write(last)
    trace = last.attempts[0].trace(problem, keep_observations=True)
    again = record(compiler, corpus[last.module], problem, default, keep_observations=True)
    assert trace == again
    with DatasetWriter(folder, header_of(problem)) as writer:
        list(record_dataset(writer, corpus, problem, "default", default))
    return file.getvalue(), again, Dataset.open(folder, problem=problem)


@pytest.mark.e2e
def test_what_comes_besides_is_recorded(compiler: Compiler, small: Corpus, tmp_path: Path) -> None:
    """As if it were asked for; the first module asks nothing."""
    for suffix in ("bc", "cmd"):
        data = (small.folder / f"frame_stream.c.{suffix}").read_bytes()
        (tmp_path / f"frame_stream.c.{suffix}").write_bytes(data)
    silent = compiler.produce(Module.from_ir("define void @f() { ret void }"), None, OPTIMIZE)
    (tmp_path / "silent.bc").write_bytes(silent.data)
    corpus = Corpus(tmp_path, ("silent", "frame_stream.c"))
    known = InliningForSize(ir2vec="one-hot")
    log, trace, dataset = kept(compiler, corpus, Besides(), tmp_path / "besides")
    asked_for = kept(compiler, corpus, known, tmp_path / "known")
    assert log == asked_for[0]
    assert (trace.features, trace.observations) == (known.layout.specs, asked_for[1].observations)
    (episode,), (expected,) = dataset.episodes(), asked_for[2].episodes()
    assert (episode.observations == expected.observations).all()
    assert [entry.decisions for entry in dataset.modules] == [trace.decisions, 0]
    read = problem_of(trace).layout
    assert read.specs == dataset.layout.specs == known.layout.specs
    problem = Besides()
    recorded = problem.with_layout(problem.recorded_layout(known.layout.header))
    module = corpus["frame_stream.c"]
    assert record(compiler, module, recorded, default, keep_observations=True) == trace


def test_a_module_that_asks_nothing_tells_no_header(compiler: Compiler) -> None:
    problem = InliningForSize()
    assert compiler.as_sent(problem, MODULE) is problem
    with pytest.raises(ModuleError) as caught:
        compiler.as_sent(RegallocEviction(), Module.from_ir("define void @f() { ret void }", "f"))
    expected = "module 'f': asks for no decision of RegallocEviction"
    assert str(caught.value) == expected


def test_traces_name_the_file_and_do_not_open_it(
    compiler: Compiler, small: Corpus, tmp_path: Path
) -> None:
    module, path = small["frame_stream.c"], tmp_path / "vocabulary.json"
    path.write_bytes(Vocabulary.of("one-hot").data)
    trace = record(compiler, module, InliningForSize(ir2vec=path), default, keep_observations=True)
    hash_ = Vocabulary.of(path).sha256
    assert (trace.settings["ir2vec"], trace.settings["ir2vec_sha256"]) == (str(path), hash_)
    with pytest.raises(TraceError) as caught:
        replay(compiler, trace, module)
    assert str(caught.value) == (
        f"trace 'frame_stream.c': ir2vec: expected the file that was {str(path)!r}, of SHA-256 "
        f"{hash_}, found none; give it as --ir2vec or in files"
    )
    moved = path.rename(tmp_path / "moved.json")
    assert replay(compiler, trace, module, files={"ir2vec": moved}).decisions == trace.decisions
    with pytest.raises(TraceError) as caught:
        replay(compiler, trace, module, files={"ir2vec": "ones"})
    other = Vocabulary.of("ones").sha256
    expected = f"trace 'frame_stream.c': ir2vec_sha256: expected {hash_}, found {other}"
    assert str(caught.value) == expected
    named = record(compiler, module, InliningForSize(ir2vec="ones"), default)
    assert replay(compiler, named, module).object_sha256 == named.object_sha256


def test_branches(compiler: Compiler, small: Corpus) -> None:
    with compiler.start(small["frame_stream.c"], InliningForSize(ir2vec="ones")) as compilation:
        first = compilation.next_observation()
        assert first is not None
        with compilation.fork() as branch:
            again = branch.next_observation()
            assert again is not None
            assert again.payload == first.payload
            while (observation := branch.next_observation()) is not None:
                assert observation["callee_embedding"][0] > 0
                branch.answer(default(observation))
            result = branch.result
        while (observation := compilation.next_observation()) is not None:
            compilation.answer(default(observation))
        assert compilation.result.object_sha256 == result.object_sha256


@pytest.mark.e2e
@pytest.mark.parametrize("vocabulary", ["ones", "one-hot"])
def test_gymnasium_approves(vocabulary: str) -> None:
    env = gymnasium.make("mlgo_gym/InliningForSize-v0", ir2vec=vocabulary, render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_close_check=False)
    env.close()
    several = gymnasium.make_vec("mlgo_gym/InliningForSize-v0", num_envs=2, ir2vec=vocabulary)
    observations, _ = several.reset(seed=1)
    dimension = Vocabulary.of(vocabulary).dimension
    assert observations["caller_embedding"].shape == (2, dimension)
    observations, *_ = several.step(np.array([1, 0]))
    assert (observations["caller_embedding"].sum(axis=1) > 0).all()
    several.close()


@pytest.mark.e2e
def test_datasets_have_columns(small: Corpus, tmp_path: Path) -> None:
    problem = InliningForSize(ir2vec="one-hot")
    with DatasetWriter(tmp_path / "set", header_of(problem)) as writer:
        list(record_dataset(writer, {"small": small}, problem, "default", default))
    found = Dataset.open(tmp_path / "set", problem=problem)
    assert found.header.differences(header_of(problem)) == []
    assert found.read(["callee_embedding"])["callee_embedding"].shape == (found.row_count, 80)
    assert Dataset.open(tmp_path / "set", problem=InliningForSize.name).row_count == found.row_count
    assert found.layout.feature_names[-2:] == ("callee_embedding", "caller_embedding")
    for episode in found.episodes():
        assert episode.observations["callee_embedding"].shape == (len(episode), 80)
    moved = replace(problem, ir2vec=replace(Vocabulary.of("one-hot"), name="elsewhere"))
    assert found.header.differences(header_of(moved)) == []
    plain = header_of(InliningForSize()).differences(found.header)
    assert [each.partition(":")[0] for each in plain] == ["features", "ir2vec_sha256"]


@pytest.mark.e2e
def test_logs_and_datasets_have_what_comes_besides(
    compiler: Compiler, small: Corpus, tmp_path: Path
) -> None:
    one = small.only(["frame_stream.c"])
    problem = compiler.as_sent(Besides(), small["frame_stream.c"])
    file = io.BytesIO()
    log = RolloutLog(file, problem)
    (report,) = rollout(one, {"default": default}, problem, keep_decisions=True)
    count = log.write(report)
    file.seek(0)
    read = LogEpisodes(file, "x")
    (episode,) = read
    assert len(episode) == count
    assert episode.observations["callee_embedding"].shape == (count, 80)
    with DatasetWriter(tmp_path / "set", read.header) as writer:
        writer.add(episode.source, [episode])
    found = Dataset.open(tmp_path / "set", problem=InliningForSize.name)
    assert found.header.differences(read.header) == []
    (again,) = found.episodes()
    assert (again.observations == episode.observations).all()
    kept = io.BytesIO()
    export_log(found, kept)
    assert kept.getvalue() == file.getvalue()


def test_models_that_need_embeddings(tmp_path: Path) -> None:
    """What is missing, or of another dimension, is said before anything is compiled."""
    card = json.loads((MODELS / "inliner" / "card.json").read_text())
    for name in ("model.tflite", "output_spec.json"):
        (tmp_path / name).write_bytes((MODELS / "inliner" / name).read_bytes())
    card["features"] += ["callee_embedding", "caller_embedding"]
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path, InliningForSize())
    assert str(caught.value) == (
        f"model {str(tmp_path)!r}: was trained on features of LLVM {card['llvm_version']} that are "
        "not offered: 'callee_embedding', 'caller_embedding'"
    )
    load_model(tmp_path, InliningForSize(ir2vec="ones"))


def test_an_llvm_without_ir2vec() -> None:
    problem = InliningForSize(ir2vec="ones")
    with pytest.raises(EnvironmentSetupError) as caught:
        problem.layout.check(InliningForSize().layout.header)
    assert str(caught.value) == (
        "InliningForSize: this LLVM describes the problem differently: feature "
        "'callee_embedding': expected float (1,), found none; feature 'caller_embedding': "
        "expected float (1,), found none"
    )


class ManyFiles(InliningForSize):
    def files(self) -> dict[str, bytes]:
        return {f"-ir2vec-vocab-path{number}": b"" for number in range(20)}


def test_more_files_than_there_is_room_for(compiler: Compiler) -> None:
    with pytest.raises(UsageError) as caught:
        compiler.start(MODULE, ManyFiles())
    assert str(caught.value) == (
        "module 'calls': expected at most 8 problems, found 1 with 20 files"
    )
