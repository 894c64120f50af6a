"""Model directories: every form of a network gives the same answers, and a save is whole."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.lite.python import lite

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import ModelError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.model._card import read_card
from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._vocabulary import Vocabulary
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner, ReleaseModeModelRunner
from mlgo_gym.runners._models import load_model, settings_of_models
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.training._export import load_network, save_model
from mlgo_gym.training._networks import Normalization, PolicyNetwork, network_features, network_for
from tests.conftest import no_room, one_in
from tests.training.conftest import Recorded, record


def network_of(problem: Problem, recorded: Recorded) -> PolicyNetwork:
    """A network with random weights, which answers otherwise than a new one."""
    fitted = Normalization.fit(problem.layout.columns(recorded), network_features(problem))
    network = network_for(problem, fitted, (16, 8))
    random = np.random.default_rng(5)
    network.set_weights([random.normal(0, 0.7, each.shape) for each in network.get_weights()])
    return network


@pytest.mark.e2e
@pytest.mark.parametrize(
    "problem", one_in(2, [InliningForSize(), RegallocEviction()]), ids=lambda p: p.name
)
def test_all_forms_answer_alike(
    problem: Problem, request: pytest.FixtureRequest, sample: Corpus, tmp_path: Path
) -> None:
    name = "inlining" if isinstance(problem, InliningForSize) else "eviction"
    recorded: Recorded = request.getfixturevalue(name)
    network = network_of(problem, recorded)
    save_model(network, problem, tmp_path / "model", {"seed": 5})
    expected = network(problem.layout.columns(recorded)).numpy().argmax(-1)
    assert len(set(expected)) > 1
    specs = problem.layout.specs
    for runner_class in (ReleaseModeModelRunner, ModelUnderTrainingRunner):
        with runner_class(tmp_path / "model", specs, problem.advice) as runner:
            found = []
            for row in recorded:
                runner.fill(row.tobytes())
                found.append(runner.evaluate().item())
        assert np.mean(np.array(found) == expected) > 0.99, runner_class
    loaded = load_network(tmp_path / "model")
    assert np.array_equal(
        loaded(problem.layout.columns(recorded)).numpy(),
        network(problem.layout.columns(recorded)).numpy(),
    )
    card = read_card(tmp_path / "model", specs)
    assert card is not None
    assert card.problem == problem.name
    assert json.loads((tmp_path / "model" / "card.json").read_text())["seed"] == 5
    with Compiler(timeout_s=120) as compiler:
        result = compiler.compile_module(
            sample["scene.cpp"],
            problem=problem,
            policy=RunnerPolicy(functools.partial(ReleaseModeModelRunner, tmp_path / "model")),
        )
    assert result.decisions > 0


@pytest.mark.e2e
@pytest.mark.parametrize("vocabulary", ["ones", "one-hot", "of a file"])
def test_a_model_that_looks_at_embeddings(vocabulary: str, sample: Corpus, tmp_path: Path) -> None:
    """The vocabulary comes with it; where embeddings are not sent, it says so before modules do."""
    given = tmp_path / "vectors.json"
    given.write_bytes(Vocabulary.of("one-hot").data.replace(b"2.0", b"1.0"))
    file = given if vocabulary == "of a file" else None
    problem, model = InliningForSize(ir2vec=file or vocabulary), tmp_path / "model"
    save_model(network_of(problem, record(sample, problem, ("scene.cpp",))), problem, model, {})
    found = InliningForSize(**settings_of_models([str(model)], InliningForSize))
    assert found.files() == problem.files()
    card = read_card(model, problem.layout.specs)
    assert card
    assert card.settings["ir2vec"] == ("ir2vec.json" if file else vocabulary)
    assert (model / "ir2vec.json").exists() == bool(file)
    results = []
    with Compiler(timeout_s=120) as compiler:
        for runner_class in (ReleaseModeModelRunner, ModelUnderTrainingRunner):
            policy = RunnerPolicy(functools.partial(runner_class, model))
            done = compiler.compile_module(sample["scene.cpp"], problem=problem, policy=policy)
            results.append(done.object_sha256)
    assert results[0] == results[1]
    with pytest.raises(ModelError) as caught:
        load_model(model, InliningForSize())
    assert str(caught.value) == (
        f"model {str(model)!r}: was trained on features of LLVM 22.1.0 that are not offered: "
        "'callee_embedding', 'caller_embedding'"
    )
    numbers = {"ones": 1}.get(vocabulary, 80)
    about = json.loads((model / "card.json").read_text())
    (model / "card.json").write_text(json.dumps(about | {"settings": {}}))  # somebody else's
    with pytest.raises(ModelError) as caught:
        load_model(model, InliningForSize(ir2vec=given if numbers == 1 else "ones"))
    assert str(caught.value) == (
        f"model '{model}/model.tflite': input 'callee_embedding': the model takes float "
        f"[{numbers}], offered is float [{81 - numbers}]"
    )
    assert network_features(problem).count("caller_embedding") == numbers
    assert network_features(problem, "core") == network_features(InliningForSize())


@pytest.mark.e2e
@pytest.mark.parametrize("setting", ["derived", "hotness"])
def test_a_model_that_looks_at_call_sites(setting: str, sample: Corpus, tmp_path: Path) -> None:
    """Its card's features say that they are to be read, and a frozen model has the card."""
    problem, model = InliningForSize(**{setting: True}), tmp_path / "model"  # type: ignore[arg-type]
    save_model(network_of(problem, record(sample, problem, ("scene.cpp",))), problem, model, {})
    freeze(model, tmp_path / "frozen", name="model")
    for folder in (model, tmp_path / "frozen"):
        assert settings_of_models([str(folder)], InliningForSize) == {setting: True}
    results = []
    with Compiler(timeout_s=120) as compiler:
        for path, runner_class in (
            (tmp_path / "frozen", ReleaseModeModelRunner),
            (model, ModelUnderTrainingRunner),
        ):
            policy = RunnerPolicy(functools.partial(runner_class, path))
            done = compiler.compile_module(sample["scene.cpp"], problem=problem, policy=policy)
            results.append(done.object_sha256)
    assert results[0] == results[1]
    with pytest.raises(ModelError) as caught:
        load_model(model, InliningForSize())
    assert str(caught.value) == (
        f"model {str(model)!r}: was trained on features of LLVM 22.1.0 that are not offered: "
        + ", ".join(map(repr, InliningForSize.optional[setting]))
    )
    assert network_features(problem, f"core+{setting}") == network_features(problem)
    assert network_features(problem, "core") == network_features(InliningForSize())


@pytest.mark.e2e
def test_tensorflow_compiles_the_saved_model_with_llvms_names(
    inlining: Recorded, tmp_path: Path
) -> None:
    problem = InliningForSize()
    save_model(network_of(problem, inlining), problem, tmp_path / "model", {})
    tool = Path(sys.executable).with_name("saved_model_cli")
    command: list[str | Path] = [
        tool,
        "aot_compile_cpu",
        "--dir",
        tmp_path / "model",
        "--tag_set",
        "serve",
    ]
    command += ["--signature_def_key", "action", "--output_prefix", tmp_path / "aot"]
    subprocess.run([*command, "--cpp_class", "Inliner"], check=True, capture_output=True)
    header = (tmp_path / "aot.h").read_text()
    for feature in problem.layout.features:
        assert f'"feed_{feature.spec.name}"' in header
    assert '"fetch_inlining_decision"' in header
    assert (tmp_path / "aot.o").stat().st_size > 0


@pytest.mark.e2e
def test_an_interrupted_save_leaves_the_old_model(
    inlining: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, model = InliningForSize(), tmp_path / "model"
    network = network_of(problem, inlining)
    save_model(network, problem, model, {"version": 1})
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(ModelError) as error:
        save_model(network, problem, model, {"version": 2})
    assert str(error.value) == f"model {str(model)!r}: cannot be written: No space left on device"
    assert {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.e2e
def test_what_tensorflow_cannot_read_again(
    inlining: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its converter reads the graph once more, and has errors of its own over that."""
    problem, model = InliningForSize(), tmp_path / "model"
    convert = lite._convert_saved_model

    def reading(saved_model_dir: str, **settings: Any) -> Any:
        (Path(saved_model_dir) / "saved_model.pb").unlink()
        return convert(saved_model_dir=saved_model_dir, **settings)

    monkeypatch.setattr(lite, "_convert_saved_model", reading)
    with pytest.raises(ModelError) as error:
        save_model(network_of(problem, inlining), problem, model, {})
    said = f"model {str(model)!r}: cannot be written: "
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.e2e
def test_what_tensorflow_cannot_write_leaves_the_old_model(
    inlining: Recorded, tmp_path: Path
) -> None:
    problem, model = InliningForSize(), tmp_path / "model"
    network = network_of(problem, inlining)
    model.mkdir()
    with no_room(), pytest.raises(ModelError) as error:
        save_model(network, problem, model, {})
    said = str(error.value)
    assert said.startswith(f"model {str(model)!r}: cannot be written: {tmp_path}/.model.")
    assert said.endswith("; File too large")
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]


@pytest.mark.e2e
def test_a_copy_of_a_model_has_another_card(inlining: Recorded, tmp_path: Path) -> None:
    problem, model, copied = InliningForSize(), tmp_path / "model", tmp_path / "copy"
    save_model(network_of(problem, inlining), problem, model, {"trainer": "clone", "seed": 1})
    save_model(model, problem, copied, {"trainer": "clone", "results": {"validation": 5}})
    names = {path.relative_to(model) for path in model.rglob("*") if path.is_file()}
    assert names == {path.relative_to(copied) for path in copied.rglob("*") if path.is_file()}
    different = [
        name for name in names if (model / name).read_bytes() != (copied / name).read_bytes()
    ]
    assert different == [Path("card.json")]
    expected = json.loads((model / "card.json").read_text()) | {"results": {"validation": 5}}
    assert json.loads((copied / "card.json").read_text()) == expected


@pytest.mark.e2e
def test_a_damaged_network_is_refused(inlining: Recorded, tmp_path: Path) -> None:
    problem, model = InliningForSize(), tmp_path / "model"
    save_model(network_of(problem, inlining), problem, model, {})
    weights = model / "weights.npz"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(ModelError, match=r"weights.npz: expected the network's weights: "):
        load_network(model)
    with pytest.raises(ModelError, match=r"network.json cannot be read: No such file"):
        load_network(tmp_path)


def test_decisions_of_another_batch_size(inlining: Recorded) -> None:
    problem = InliningForSize()
    network = network_of(problem, inlining)
    whole = network(problem.layout.columns(inlining)).numpy()
    row = problem.layout.array([inlining[7].tobytes()])
    assert network(problem.layout.columns(row)).numpy()[0] == pytest.approx(
        whole[7], rel=1e-4, abs=1e-5
    )


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_weights_that_are_no_numbers(value: float, inlining: Recorded, tmp_path: Path) -> None:
    """Also those that are not finite in 32 bits."""
    network = network_of(InliningForSize(), inlining)
    (tmp_path / "network.json").write_text(json.dumps(network.config()))
    weights = [each.astype(np.float64) for each in network.get_weights()]
    arrays: dict[str, Any] = {str(index): each for index, each in enumerate(weights)}
    np.savez(tmp_path / "weights.npz", **arrays)
    load_network(tmp_path)
    weights[1].flat[0] = value
    np.savez(tmp_path / "weights.npz", **arrays)
    with pytest.raises(ModelError) as error:
        load_network(tmp_path)
    assert str(error.value) == (
        f"model {str(tmp_path)!r}: weights.npz: expected the network's weights: "
        "ValueError('1: expected finite numbers, found others')"
    )


def test_weights_that_are_not_there(inlining: Recorded, tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(
        json.dumps(network_of(InliningForSize(), inlining).config())
    )
    with pytest.raises(ModelError) as error:
        load_network(tmp_path)
    assert str(error.value) == (
        f"model {str(tmp_path)!r}: weights.npz cannot be read: No such file or directory"
    )
