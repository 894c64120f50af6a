"""``advantage``: labels that are right, a run that resumes, and one that no module ends."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.errors import TrainingError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default, never
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.training._advantage import LabelRounds, _Trainer, train
from mlgo_gym.training._data import Data, describe
from mlgo_gym.training._distillation import AdvantageConfig, Labels, TeacherConfig, fit_teacher
from mlgo_gym.training._export import load_network
from mlgo_gym.training._fitting import FitConfig
from mlgo_gym.training._labels import LabelSetting, label_modules, shares_of, survey
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import NothingToLearnError
from tests.training.conftest import data_of
from tests.training.test_contexts import InliningForObjects

QUICK = AdvantageConfig(
    rounds=2,
    batches=1,
    hidden=(8,),
    teacher=TeacherConfig(bags=1, iterations=20, least_leaf_rows=5),
    fit=FitConfig(epochs=2),
)
TRAINING = ("graph.cpp", "scene.cpp", "lru_cache.cpp")


@pytest.fixture
def data(sample: Corpus) -> Data:
    return Data(
        Packages.of({"sample": sample.only(TRAINING)}),
        Packages.of({"sample": sample.only(("frame_stream.c", "interval_tree.cpp"))}),
    )


@pytest.mark.e2e
def test_labels_are_those_of_the_modules(sample: Corpus) -> None:
    names = ("scene.cpp", "missing.c", "frame_stream.c")
    packages = Packages.of({"sample": replace(sample, names=names)})
    found = list(
        label_modules(
            packages,
            default,
            "default",
            {},
            LabelSetting(batches=2),
        )
    )
    (failed,) = (each for each in found if each.error)
    assert failed.item == ("sample", "missing.c")
    assert "missing.c" in str(failed.error)
    episodes = {each.item[1]: each.value[1] for each in found if not each.error}
    episode = episodes["scene.cpp"]
    assert episode is not None
    assert len(episode) == 145
    known = np.isfinite(episode.label("saved_bytes"))
    assert 20 < known.sum() < 145
    assert np.array_equal(known, episode.label("sample_weight") > 0)
    assert np.array_equal(
        episode.label("saved_bytes")[known], episode.label("saved_linked_bytes")[known]
    )
    assert (episode.label("saved_bytes")[known] > 0).any()
    assert (episode.label("saved_bytes")[known] < 0).any()


@pytest.mark.e2e
def test_what_two_objects_share_counts_half(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for suffix in (".bc", ".cmd"):
            shutil.copy(SAMPLE_CORPUS / f"scene.cpp{suffix}", tmp_path / f"{name}{suffix}")
    packages = Packages.of({"twins": Corpus(tmp_path, ("one", "two"))})
    shares = shares_of({each.item: each.value for each in survey(packages, jobs=1)})
    assert shares["twins"]
    assert set(shares["twins"].values()) == {2}
    labelled = {
        count: next(
            label_modules(
                packages.only([ModuleKey("twins", "one")]),
                default,
                "default",
                each,
                LabelSetting(batches=1),
            )
        )
        for count, each in ((1, {}), (2, shares))
    }
    alone, twice = (each.value[1] for each in labelled.values())
    assert alone is not None
    assert twice is not None
    assert np.array_equal(alone.label("saved_bytes"), twice.label("saved_bytes"), equal_nan=True)
    linked, whole = twice.label("saved_linked_bytes"), alone.label("saved_linked_bytes")
    assert np.nansum(np.abs(linked)) < np.nansum(np.abs(whole))


@pytest.mark.e2e
def test_a_run_goes_on_where_it_was(data: Data, tmp_path: Path) -> None:
    problem = InliningForSize()
    with TrainingRun(tmp_path / "run", "advantage", problem, QUICK, budget_s=1e-6) as first:
        train(first, QUICK, data)  # one round, with the little that fits in no time
        assert [path.name for path in (tmp_path / "run" / "rounds").iterdir()] == ["1"]
    before = Dataset.open(tmp_path / "run" / "labels").modules
    with TrainingRun(tmp_path / "run", "advantage", problem, QUICK) as second:
        found = train(second, QUICK, data)
        assert second.model.is_dir()
    labels = Dataset.open(tmp_path / "run" / "labels", problem=problem)
    assert {each.key.policy for each in labels.modules} == {"round-0", "round-1"}
    assert {each.key for each in before} <= {each.key for each in labels.modules}
    assert found.modules == 2
    assert abs(found.changes["linked_text"]) < 0.2
    with TrainingRun(tmp_path / "run", "advantage", problem, QUICK) as third:
        again = train(third, QUICK, data)
    assert again.modules == 2
    assert Dataset.open(tmp_path / "run" / "labels").row_count == labels.row_count


@pytest.mark.e2e
def test_packages_take_turns(data: Data, sample: Corpus, tmp_path: Path) -> None:
    packages = {
        "many": replace(sample, names=TRAINING[1:]),
        "few": replace(sample, names=("interval_tree.cpp",)),
    }
    config = replace(QUICK, rounds=1)
    with TrainingRun(tmp_path / "run", "advantage", InliningForSize(), config) as run:
        train(run, config, replace(data, packages=Packages.of(packages)))
    labelled = [each.key.package for each in Dataset.open(tmp_path / "run" / "labels").modules]
    assert sorted(labelled[:2]) == ["few", "many"]
    assert len(labelled) == 3


@pytest.mark.e2e
def test_labels_of_other_runs(data: Data, sample: Corpus, tmp_path: Path) -> None:
    """They are learned from, alone or besides the run's own, but for what is held out."""
    problem = InliningForSize()
    config = replace(QUICK, rounds=1)
    with TrainingRun(tmp_path / "first", "advantage", problem, config) as run:
        train(run, config, data)
    alone = replace(config, rounds=0, labels=(str(tmp_path / "first" / "labels"),))
    with TrainingRun(tmp_path / "second", "advantage", problem, alone) as run:
        train(run, alone, data)
    assert not (tmp_path / "second" / "labels").exists()
    networks = [load_network(tmp_path / run / "model") for run in ("first", "second")]
    for mine, theirs in zip(*(each.get_weights() for each in networks), strict=True):
        assert np.array_equal(mine, theirs)
    both = replace(alone, rounds=1, seed=1)
    counted = {}
    for name, held_out in (("all", "frame_stream.c"), ("some", "graph.cpp")):
        validation = {"sample": replace(sample, names=(held_out,))}
        with TrainingRun(tmp_path / name, "advantage", problem, both) as run:
            train(run, both, replace(data, validation=Packages.of(validation)))
            card = json.loads((run.model / "card.json").read_text())
        counted[name] = card["results"]["labelled_decisions"]
    assert counted["some"] < counted["all"]
    nothing = replace(config, rounds=0)
    run = TrainingRun(tmp_path / "third", "advantage", problem, nothing)
    with run, pytest.raises(TrainingError) as error:
        train(run, nothing, data)
    assert str(error.value) == "advantage: expected labelled decisions, found none"


@pytest.mark.e2e
def test_caution_keeps_near_llvms_default(data: Data, sample: Corpus, tmp_path: Path) -> None:
    data = replace(
        data, validation=Packages.of({"sample": sample.only(("digest.c", "matrix.cpp"))})
    )
    changes = {}
    for caution in (0.0, 20.0):
        config = replace(QUICK, rounds=1, caution=caution, fit=FitConfig(epochs=40))
        output = tmp_path / f"{caution:.0f}"
        with TrainingRun(output, "advantage", InliningForSize(), config) as run:
            changes[caution] = train(run, config, data).changes["text"]
    assert abs(changes[20.0]) < abs(changes[0.0]) / 2


@pytest.mark.e2e
def test_bad_modules_are_reported_and_left_out(data: Data, sample: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in TRAINING:
        shutil.copy(sample.folder / f"{name}.bc", folder / f"{name}.bc")
        shutil.copy(sample.folder / f"{name}.cmd", folder / f"{name}.cmd")
    (folder / "broken.c.bc").write_bytes(b"no bitcode")
    (folder / "broken.c.cmd").write_bytes((folder / "scene.cpp.cmd").read_bytes())
    warnings: list[Failure] = []
    broken = replace(
        data,
        packages=Packages.of({"mine": Corpus(folder, ("broken.c", *TRAINING))}),
        warn=warnings.append,
    )
    config = replace(QUICK, rounds=1)
    with TrainingRun(tmp_path / "run", "advantage", InliningForSize(), config) as run:
        train(run, config, broken)
    assert warnings
    assert all(str(each).startswith("module 'broken.c': ") for each in warnings)
    assert describe(broken.packages)["modules"] == {"mine": 4}


def test_nothing_to_train_on_is_an_error(data: Data, tmp_path: Path) -> None:
    (tmp_path / "broken.c.bc").write_bytes(b"no bitcode")
    nothing = replace(data, packages=Packages.of({"mine": Corpus(tmp_path, ("broken.c",))}))
    run = TrainingRun(tmp_path / "run", "advantage", InliningForSize(), QUICK)
    with run, pytest.raises(TrainingError) as error:
        train(run, QUICK, nothing)
    assert str(error.value) == ("advantage: expected modules to train on, found none that compiles")
    run = TrainingRun(tmp_path / "other", "advantage", RegallocEviction(), QUICK)
    with run, pytest.raises(TrainingError) as error:
        train(run, QUICK, data)
    assert str(error.value) == "advantage: expected InliningForSize, found RegallocEviction"
    run = TrainingRun(tmp_path / "third", "advantage", InliningForObjects(), QUICK)
    with run, pytest.raises(TrainingError) as error:
        train(run, QUICK, data)
    assert str(error.value) == (
        "advantage: expected a problem that is measured by bytes of code, found "
        "InliningForObjects, which is by bytes of all sections"
    )


def test_the_teacher_weighs_bytes() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(4000, 3))
    # Below 0 in the first feature inlining often saves little; sometimes it costs a lot.
    advantages = np.where(random.random(4000) < 0.8, 5.0, -60.0)
    advantages[features[:, 0] > 0] = 10.0
    packages = np.arange(4000) % 5
    labels = Labels(tuple("abc"), features, advantages, np.ones(4000), -np.ones(4000), packages)
    teacher = fit_teacher(labels, TeacherConfig(bags=2, iterations=30), seed=0)
    assert teacher(features).shape == (2, 4000)
    answers = teacher(features).mean(axis=0)
    assert (answers[features[:, 0] > 0.1] > 0).mean() > 0.95
    assert (answers[features[:, 0] < -0.1] > 0).mean() < 0.2
    blind = TeacherConfig(bags=1, iterations=30, clip_bytes=1e-3)
    unweighted = fit_teacher(labels, blind, seed=0)
    assert (unweighted(features)[0, features[:, 0] < -0.1] > 0).mean() < 0.05  # the pull decides
    with pytest.raises(NothingToLearnError) as error:
        fit_teacher(
            Labels(
                tuple("abc"), features, np.full(4000, 3.0), np.ones(4000), np.ones(4000), packages
            ),
            TeacherConfig(),
            seed=0,
        )
    assert str(error.value) == (
        "labels: expected calls that are better inlined and calls that are not, "
        "found 8000 of one kind"
    )


MODELS = Path(__file__).parents[1] / "models"
INLINING = InliningForSize()


def test_a_round_goes_on_from_the_model_before(
    compiler: Compiler, sample: Corpus, tmp_path: Path
) -> None:
    module = sample["frame_stream.c"]
    expected = compiler.compile_module(module, problem=INLINING, policy=never)
    with TrainingRun(tmp_path / "run", "advantage", INLINING, QUICK) as run:
        shutil.copytree(MODELS / "never", run.directory / "rounds" / "1")
        found = []
        for number in (0, 1):
            run.save(number, {}, {"validations": []})
            with _Trainer(run, INLINING, QUICK, data_of(sample))._policy() as policy:
                result = compiler.compile_module(module, problem=INLINING, policy=policy)
                found.append(result.object_sha256)
    plain = compiler.compile_module(module, problem=INLINING, policy=default)
    assert found == [plain.object_sha256, expected.object_sha256]


def test_a_run_that_is_done_is_validated_again(sample: Corpus, tmp_path: Path) -> None:
    config = replace(QUICK, rounds=1)
    stages: list[str] = []
    data = replace(
        data_of(sample, "graph.cpp"),
        validation=Packages.of({"held-out": sample.only(("frame_stream.c",))}),
    )
    with TrainingRun(tmp_path / "run", "advantage", INLINING, config, doing=stages.append) as run:
        run.save(1, {}, {"validations": [{"loss": 0.0}]})
        (run.directory / "survey.json").write_text("{}")
        shutil.copytree(MODELS / "never", run.model)
        found = train(run, config, data)
    assert stages == []
    assert (found.modules, found.worse) == (1, 1)


@pytest.mark.e2e
def test_a_round_that_is_no_better_is_not_the_model(sample: Corpus, tmp_path: Path) -> None:
    """Learned of another run's labels alone, which is one round."""
    packages = Packages.of({"sample": sample.only(("json_write.c", "hash_map.c"))})
    data = replace(data_of(sample), packages=packages)
    config = replace(QUICK, rounds=0, labels=(str(tmp_path / "first" / "labels"),))
    with TrainingRun(tmp_path / "first", "advantage", INLINING, QUICK) as first:
        LabelRounds(first, INLINING, QUICK, data).label(0, INLINING.policy("default"), {})
    validation = Packages.of({"held-out": sample.only(("frame_stream.c",))})
    with TrainingRun(tmp_path / "run", "advantage", INLINING, config) as run:
        run.save(0, {}, {"validations": [{"loss": -9.0}]})
        shutil.copytree(MODELS / "never", run.model)
        found = train(run, config, replace(data, validation=validation))
        assert (run.directory / "rounds" / "1" / "model.tflite").exists()
        assert (run.model / "model.tflite").read_bytes() == (
            MODELS / "never" / "model.tflite"
        ).read_bytes()
        state = run.restore()
    assert state is not None
    assert state.step == 1
    first, second = state.state["validations"]
    assert (first, second["modules"]) == ({"loss": -9.0}, 1)
    assert second["loss"] < found.changes["linked_text"]
    assert found.worse == 1  # of the model that was kept
