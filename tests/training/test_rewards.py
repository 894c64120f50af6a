"""Trainers by a reward: labels, tries and models are worth what programs take."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.errors import OptionsError, TrainingError, WorkloadError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default, never
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout import Rewards
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.search._attribution import NamingCompiler
from mlgo_gym.training._advantage import LabelRounds
from mlgo_gym.training._data import Data, Workshop, rewards_of
from mlgo_gym.training._group import Config
from mlgo_gym.training._labels import Labelled, LabelSetting, label_modules
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import prepared
from mlgo_gym.training._train import Trained, train
from mlgo_gym.training._validation import Validation, validate
from tests.lab.programs.conftest import ADDRESS, DESCRIPTION, MakeCorpus
from tests.search.test_rewards import LOOP
from tests.training.test_advantage import MODELS, QUICK

INLINING = InliningForSize()
UNLIMITED = InliningForSize(size_increase_threshold=math.inf)
KEY = ModuleKey("p", "twice.c")
UNREACHED = LOOP.replace("twice", "thrice").replace("mix", "other")
SMALL = (
    "rounds=1", "flips=3", "band=[-1000,5000]", "hidden=[16]", "fit.epochs=300",
    "fit.learning_rate=0.02", "caution=0", "teacher.bags=1", "teacher.iterations=50",
    "teacher.least_leaf_rows=1", "teacher.default_pull_bytes=0",
)  # fmt: skip


@pytest.fixture
def rewards(corpus: MakeCorpus, request: pytest.FixtureRequest) -> Iterator[Rewards]:
    """Instructions of a program; its module is the parameter."""
    packages = Packages.of({"p": corpus(DESCRIPTION, {"twice.c": request.param})})
    with Rewards("instructions", packages, None, 120) as found:
        yield found


def labelled(rewards: Rewards, policy: Any, flips: int = 100) -> Labelled:
    setting = LabelSetting(UNLIMITED, flips=flips, rewards=rewards, band=(-20_000, 50_000))
    (done,) = label_modules(rewards.packages, policy, "p", {}, setting)
    return done.value


@pytest.mark.e2e
@pytest.mark.parametrize("rewards", [LOOP], indirect=True)
def test_labels_are_means_of_what_programs_take(rewards: Rewards, compiler: Compiler) -> None:
    """Of each call by itself, and of all three calls of the one callee."""
    measure = rewards.of(KEY).measure
    module = rewards.packages[KEY]
    naming = NamingCompiler(compiler, module, never, UNLIMITED)
    base = naming.compile()
    plain = measure.score(compiler.compile_module(module, keep_object=True))

    def saved(*indices: int) -> float:
        other = naming.compile({base.decisions[index].site: 1 for index in indices})
        return (measure.score(base.result) - measure.score(other.result)) / plain

    alone = [saved(index) for index in range(3)]
    together = saved(0, 1, 2)
    assert len({*alone, together}) == 4
    source, episode, errors = labelled(rewards, never)
    assert errors == ()
    assert source.settings["reward"] == "instructions"
    assert episode is not None
    assert episode.label("sample_weight").tolist() == [2, 2, 2]
    expected = [(each + together / 3) / 2 for each in alone]
    assert episode.label("saved_share").tolist() == pytest.approx(expected)
    assert (episode.score, episode.baseline_score) == (measure.score(base.result), plain)
    assert episode.reward == pytest.approx(1 - episode.score / plain)


@pytest.mark.e2e
@pytest.mark.parametrize("rewards", [LOOP], indirect=True)
def test_so_many_flips_of_each_kind(rewards: Rewards) -> None:
    _, episode, _ = labelled(rewards, never, flips=1)
    assert episode is not None
    assert sorted(episode.label("sample_weight").tolist()) == [1, 1, 2]


@pytest.mark.e2e
@pytest.mark.parametrize("rewards", [ADDRESS], indirect=True)
def test_a_wrong_output_is_an_error_of_its_flip(rewards: Rewards) -> None:
    """And of its try: it counts nothing, and is said."""
    _, episode, errors = labelled(rewards, default)
    assert len(errors) == 2  # by itself, and as all calls of the callee
    assert all(str(each).startswith("workload 'twice': expected ") for each in errors)
    assert episode is not None
    assert episode.label("sample_weight").tolist() == [0]
    assert np.isnan(episode.label("saved_share")).all()
    with Workshop(INLINING, jobs=1, timeout_s=120, rewards=rewards) as workshop:
        ((context,),) = workshop.contexts(rewards.packages)
        with Compiler() as compiler, pytest.raises(WorkloadError) as error:
            workshop.score(compiler, context, never)
    assert str(error.value) == f"module 'p/twice.c': {errors[0]}"


def trained(corpus: Corpus, folder: Path, *settings: str, **how: Any) -> Trained:
    """What comes of training on a corpus and choosing on it, under another name."""
    how = {"trainer": "advantage", "reward": "instructions"} | how
    packages = {"a": corpus, "b": corpus}
    return train(
        how.pop("trainer"),
        packages,
        output=folder,
        hold_out_packages=["b"],
        settings=settings or SMALL,
        **how,
    )


@pytest.fixture
def loop(corpus: MakeCorpus) -> Corpus:
    """A module that a program executes, and one that it does not."""
    return corpus(DESCRIPTION, {"twice.c": LOOP, "thrice.c": UNREACHED})


@pytest.mark.e2e
def test_advantage_by_instructions(loop: Corpus, tmp_path: Path) -> None:
    made = trained(loop, tmp_path / "run", most_text=4.0)
    card = json.loads((made.model / "card.json").read_text())
    assert (card["reward"], card["most_text"]) == ("instructions", 4.0)
    assert made.left_out == (
        "module 'thrice.c': expected a workload that reaches it, found none of twice",
    )
    assert (made.validation["modules"], made.validation["failed_modules"]) == (1, 1)
    assert made.validation["score_module_mean"] < 0
    assert not (tmp_path / "run" / "survey.json").exists()
    with pytest.raises(TrainingError) as error:
        trained(loop, tmp_path / "run", reward="cost", most_text=4.0)
    assert str(error.value) == (
        f"run {str(tmp_path / 'run')!r}: holds a run of another configuration: reward: expected "
        "'cost', found 'instructions'"
    )
    labels = str(tmp_path / "run" / "labels")
    with pytest.raises(TrainingError) as error:
        trained(loop, tmp_path / "text", "rounds=0", f'labels=["{labels}"]', reward=None)
    assert str(error.value) == (
        f"labels {labels!r}: expected labels by bytes of code, found instructions"
    )


@pytest.mark.e2e
def test_group_by_instructions(loop: Corpus, tmp_path: Path) -> None:
    settings = ("generations=1", "contexts=1", "tries=3", "hidden=[4]")
    made = trained(loop, tmp_path / "run", *settings, trainer="group")
    assert json.loads((made.model / "card.json").read_text())["reward"] == "instructions"
    assert made.validation["modules"] == 1
    assert "expected a workload that reaches it" in made.left_out[0]
    lines = map(json.loads, (tmp_path / "run" / "progress.jsonl").read_text().splitlines())
    assert next(each["collect/decisions"] for each in lines if "collect/decisions" in each) > 0


@pytest.mark.e2e
def test_a_wrong_try_is_left_out(corpus: MakeCorpus, tmp_path: Path) -> None:
    """LLVM's rule inlines the one call, which the program needs; some tries do not."""
    settings = ("generations=1", "contexts=1", "tries=4", "hidden=[4]", "temperature=100")
    made = trained(
        corpus(DESCRIPTION, {"twice.c": ADDRESS}), tmp_path / "run", *settings, trainer="group"
    )
    assert len(made.left_out) == 1
    assert made.left_out[0].startswith("module 'a/twice.c': workload 'twice': expected ")
    lines = map(json.loads, (tmp_path / "run" / "progress.jsonl").read_text().splitlines())
    (tried,) = (each["collect/decisions"] for each in lines if "collect/decisions" in each)
    assert 0 < tried < 4


@pytest.mark.e2e
def test_a_network_by_which_a_program_goes_wrong_costs_most(
    corpus: MakeCorpus, tmp_path: Path
) -> None:
    settings = ("generations=1", "contexts=1", "pairs=4", "hidden=[4]", "noise=50")
    made = trained(
        corpus(DESCRIPTION, {"twice.c": ADDRESS}), tmp_path / "run", *settings, trainer="evolution"
    )
    assert len(made.left_out) == 1
    assert made.left_out[0].startswith("module 'a/twice.c': workload 'twice': expected ")
    lines = map(json.loads, (tmp_path / "run" / "progress.jsonl").read_text().splitlines())
    (generation,) = (each for each in lines if "collect/differing" in each)
    assert 0 < generation["collect/differing"] <= 1
    assert abs(generation["cost/worst"]) < 1


@pytest.mark.e2e
def test_a_model_by_what_its_programs_take(loop: Corpus) -> None:
    """A module that is worse is so by the reward; what no program reaches is left out."""
    packages = Packages.of({"p": loop})
    warnings: list[Failure] = []
    with Rewards("instructions", packages, None, 120) as rewards:
        data = Data(packages, packages, warn=warnings.append, rewards=rewards)
        found = validate(MODELS / "never", data, INLINING)
        alone = packages.only([ModuleKey("p", "thrice.c")])
        nothing = Data(alone, alone, rewards=rewards)
        with pytest.raises(TrainingError) as error:
            validate(MODELS / "never", nothing, INLINING)
    assert (found.modules, found.failed, len(warnings)) == (1, 1, 1)
    assert found.changes["score_module_mean"] >= 0
    assert found.worse == int(found.changes["score_module_mean"] > 0.01)
    assert str(error.value) == (
        "validation: expected held-out modules that can be measured by instructions, found none "
        "of 1"
    )


def test_too_much_text_is_chosen_last() -> None:
    small = Validation({"text": -0.01, "score_module_mean": 0.02}, worse=1, modules=1, failed=0)
    fast = Validation({"text": 0.01, "score_module_mean": -0.09}, worse=0, modules=1, failed=0)
    faster = Validation({"text": 0.02, "score_module_mean": -0.2}, worse=0, modules=1, failed=0)
    assert fast.loss() < small.loss()
    assert small.loss(most_text=1.0) < fast.loss(most_text=1.0) < faster.loss(most_text=1.0)
    assert faster.loss(most_text=1.5) < fast.loss(most_text=1.5) < small.loss(most_text=1.5)


def test_by_a_reward_eviction_learns_of_whole_modules(sample: Corpus, tmp_path: Path) -> None:
    packages = Packages.of({"sample": sample.only(["frame_stream.c"])})
    eviction = RegallocEviction()
    with Rewards("text", packages, None, 120) as rewards, Compiler() as compiler:
        data = Data(packages, packages, rewards=rewards)
        run = TrainingRun(tmp_path / "run", "group", eviction, Config(), reward="text")
        with prepared(run, data, 5, 0) as (_, sampler, held_out):
            assert held_out is None
            (context,) = sampler.contexts
            assert context.name == "sample/frame_stream.c"
            plain = compiler.compile_module(sample["frame_stream.c"])
            assert context.baseline == plain.text_size_bytes


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"trainer": "clone"},
            "clone: expected no reward, since it answers as a policy does, whatever that is good "
            "for, found 'instructions'",
        ),
        (
            {"trainer": "imitate"},
            "imitate: expected no reward, since it answers as traces do, which 'search' has chosen "
            "by one, found 'instructions'",
        ),
        (
            {"reward": "speed"},
            "reward: expected measures out of text, linked, linked_text_gc, linked_text_icf, "
            "box, box-time, cost, estimate, instructions, each "
            "once, several with a weight above 0 as in 'text:0.5,instructions:0.5', found 'speed'",
        ),
        (
            {"reward": "text", "most_text": 1.0},
            "most_text: expected a reward other than text, found 'text'",
        ),
        (
            {"reward": None, "most_text": 1.0},
            "most_text: expected a reward other than text, found None",
        ),
        ({"most_text": 0.9}, "most_text: expected a finite number of at least 1, found 0.9"),
    ],
)
def test_rewards_that_are_none(how: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as error:
        trained(Corpus.load(SAMPLE_CORPUS), tmp_path / "run", **how)
    assert str(error.value) == message
    assert not (tmp_path / "run").exists()


def test_packages_are_compiled_by_so_many_workers(sample: Corpus) -> None:
    packages = Packages.of({"sample": sample.only(["digest.c"])})
    with rewards_of("linked", packages, packages, jobs=3) as made:
        assert made._jobs == 3


def test_labels_of_what_is_linked_are_of_objects_with_sections(sample: Corpus) -> None:
    packages = Packages.of({"sample": sample.only(["digest.c"])})
    with Rewards("linked_text_icf", packages, None, 60) as rewards:
        source, episode, errors = labelled(rewards, never, flips=3)
    assert errors == ()
    assert episode is not None
    assert source.settings["function_sections"] is source.settings["data_sections"] is True


def test_what_is_hot_is_measured_by_a_reward(tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as error:
        trained(Corpus.load(SAMPLE_CORPUS), tmp_path / "run", "hot_bytes=100")
    assert str(error.value) == (
        "hot_bytes: expected 0 with a reward, which may be of what is executed, found 100"
    )


def test_without_workloads(small_corpus: Corpus, tmp_path: Path) -> None:
    """Also where there are some, and none to choose by."""
    folder = small_corpus.folder / "workloads"
    message = f"workloads: expected a description in {folder}, found none"
    with pytest.raises(WorkloadError) as error:
        trained(small_corpus, tmp_path / "run")
    assert str(error.value) == message
    both = {"a": Corpus.load(SAMPLE_CORPUS), "b": small_corpus}
    with pytest.raises(WorkloadError) as error:
        train("advantage", both, output=tmp_path, hold_out_packages=["b"], reward="instructions")
    assert str(error.value) == message


@pytest.fixture
def small_corpus(tmp_path: Path) -> Corpus:
    """It has no workloads, and nothing in it."""
    folder = tmp_path / "none"
    folder.mkdir()
    (folder / "f.bc").write_bytes(b"BC\xc0\xde")
    return Corpus(folder, ("f",))


@pytest.mark.e2e
def test_labels_by_another_reward(sample: Corpus, tmp_path: Path) -> None:
    """Those of bytes do not teach what is rewarded otherwise."""
    packages = Packages.of({"p": sample.only(["frame_stream.c"])})
    run = TrainingRun(tmp_path / "run", "advantage", INLINING, QUICK)
    LabelRounds(run, INLINING, QUICK, Data(packages, packages.only(()))).label(
        0, INLINING.policy("default"), {}
    )
    with Rewards("instructions", Packages.of({"p": sample}), None, 120) as rewards:
        data = Data(packages, packages.only(()), rewards=rewards)
        with pytest.raises(TrainingError) as error:
            list(LabelRounds(run, INLINING, QUICK, data).episodes())
    assert str(error.value) == (
        f"labels {str(run.directory / 'labels')!r}: expected labels by instructions, found bytes "
        "of code"
    )
