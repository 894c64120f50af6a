"""Environments over several corpora, as commands take them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import CorpusError, ModuleError, OptionsError, WorkloadError

MODULES = ("expr_vm.c", "lru_cache.cpp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Corpora ``a`` for training, ``b`` to test with and ``c``, which is final; a module each."""
    for name, split, module in (
        ("a", "train", "expr_vm.c"),
        ("b", "test", "lru_cache.cpp"),
        ("c", "final", "base64.c"),
    ):
        own = tmp_path / name
        own.mkdir()
        (own / "corpus_info.json").write_text(json.dumps({"split": split}))
        manifest = {"has_thinlto": False, "modules": [module]}
        (own / "corpus_description.json").write_text(json.dumps(manifest))
        source = SAMPLE_CORPUS / f"{MODULES[name == 'b']}.bc"
        shutil.copy(source, own / f"{module}.bc")
        shutil.copy(source.with_suffix(".cmd"), own / f"{module}.cmd")
    return tmp_path


Given = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (Path, ("a/expr_vm.c", "b/lru_cache.cpp")),
        (str, ("a/expr_vm.c", "b/lru_cache.cpp")),
        (lambda folder: [folder / "b", str(folder / "a")], ("b/lru_cache.cpp", "a/expr_vm.c")),
        (lambda folder: [folder / "a", folder / "c"], ("a/expr_vm.c", "c/base64.c")),
        (lambda folder: folder / "a", ("expr_vm.c",)),
        (lambda folder: [folder / "a"], ("expr_vm.c",)),
        (lambda folder: {"x": Corpus.load(folder / "a")}, ("expr_vm.c",)),
        (lambda folder: Packages.load([folder]), ("a/expr_vm.c", "b/lru_cache.cpp")),
        (
            lambda folder: {each: Corpus.load(folder / each) for each in "ab"},
            ("a/expr_vm.c", "b/lru_cache.cpp"),
        ),
    ],
)
def test_what_is_taken(folder: Path, given: Given, names: tuple[str, ...]) -> None:
    env = make_env("inlining-for-size", given(folder))
    assert tuple(env.corpus.names) == names
    env.close()


@pytest.mark.parametrize(("split", "names"), [("train", ("expr_vm.c",)), ("final", ("base64.c",))])
def test_a_split(folder: Path, split: str, names: tuple[str, ...]) -> None:
    env = make_env("regalloc-eviction", folder, split=split)
    assert tuple(env.corpus.names) == names
    env.close()


@pytest.mark.parametrize("name", ["InliningForSize", "RegallocEviction"])
def test_an_episode_of_each(folder: Path, name: str) -> None:
    env = gymnasium.make(f"mlgo_gym/{name}-v0", corpus=str(folder))
    for module in ("a/expr_vm.c", "b/lru_cache.cpp"):
        _, info = env.reset(options={"module": module})
        assert info["module"] == module
    names = {str(env.reset(seed=seed)[1]["module"]) for seed in range(8)}
    assert names == {"a/expr_vm.c", "b/lru_cache.cpp"}
    env.close()


@pytest.mark.parametrize("reward", ["linked_text_icf", "text:0.5,linked:0.5"])
def test_a_reward_is_measured_in_the_module_s_own_corpus(folder: Path, reward: str) -> None:
    """As where that corpus is alone."""
    found = []
    for corpus in (folder / "a", folder / "b", folder):
        with closing(make_env("inlining-for-size", corpus, reward=reward)) as env:
            found.append([_never(env, module) for module in env.corpus.names])
    alone = [*found[0], *found[1]]
    assert found[2] == alone
    assert len({each["episode_reward"] for each in alone}) == 2


def _never(env: DecisionEnv, module: str) -> dict[str, Any]:
    """The scores of an episode in which nothing is inlined."""
    _, info = env.reset(options={"module": module})
    reward, is_over = 0.0, False
    while not is_over:
        _, reward, is_over, _, info = env.step(0)
    names = [each for each in info if each.endswith(("_bytes", "mix"))]
    return {name: info[name] for name in names} | {"episode_reward": reward}


def test_a_reward_of_programs_where_a_corpus_has_none(folder: Path) -> None:
    """Its modules are skipped, and are an error by name."""
    shutil.copytree(SAMPLE_CORPUS / "workloads", folder / "a" / "workloads")
    with closing(make_env("inlining-for-size", folder, reward="instructions")) as env:
        for module in ("a/expr_vm.c", "b/lru_cache.cpp"):
            with pytest.raises(ModuleError, match="expected a description in|expected objects"):
                env.reset(options={"module": module})


def test_a_reward_of_a_module_from_elsewhere(folder: Path) -> None:
    """It is of no package."""
    module = replace(Corpus.load(folder / "a")["expr_vm.c"], name="mine.c")
    with closing(make_env("inlining-for-size", folder, reward="linked")) as env:
        with pytest.raises(CorpusError, match="expected PACKAGE/MODULE of a, b, found 'mine.c'"):
            env.reset(options={"module": module})
        assert env.reset(options={"module": "a/expr_vm.c"})[1]["decision"] == 0


def test_a_vector_of_several(folder: Path) -> None:
    envs = gymnasium.make_vec("mlgo_gym/InliningForSize-v0", num_envs=3, corpus=[str(folder)])
    _, infos = envs.reset(seed=1)
    assert set(infos["module"]) <= {"a/expr_vm.c", "b/lru_cache.cpp"}
    envs.close()


@pytest.mark.parametrize(
    ("given", "settings", "error", "message"),
    [
        (lambda _: [], {}, OptionsError, "corpus: expected a corpus, its folder, .*, found \\[\\]"),
        (lambda _: {}, {}, OptionsError, "corpus: expected a corpus, its folder, .*, found {}"),
        (lambda _: [1], {}, OptionsError, "corpus: expected a corpus, its folder, .*, found \\[1"),
        (
            lambda folder: Corpus.load(folder / "a"),
            {"split": "train"},
            OptionsError,
            "split: expected folders of corpora to choose of, found Corpus",
        ),
        (
            lambda folder: folder,
            {"split": "dev"},
            OptionsError,
            "split: expected one of train, test, final, found 'dev'",
        ),
        (
            lambda folder: folder / "a",
            {"split": "test"},
            CorpusError,
            "corpora: expected some of the split 'test', found none",
        ),
        (
            lambda folder: folder,
            {"reward": "linkd"},
            OptionsError,
            "reward: expected measures out of text, linked, .*, found 'linkd'",
        ),
        (
            lambda folder: folder,
            {"reward": "instructions"},
            WorkloadError,
            "workloads: expected a description in .*/a/workloads, .*, found none",
        ),
        (lambda folder: folder / "none", {}, CorpusError, "expected corpus_description.json in it"),
    ],
)
def test_what_is_refused(
    folder: Path, given: Given, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_env("inlining-for-size", given(folder), **settings)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("expr_vm.c", "module: expected PACKAGE/MODULE of a, b, found 'expr_vm.c'"),
        ("a/x.c", "expected one of its 1 modules, found 'x.c'"),
    ],
)
def test_modules_that_there_are_not(folder: Path, module: str, message: str) -> None:
    env = make_env("inlining-for-size", folder)
    with pytest.raises(CorpusError, match=message):
        env.reset(options={"module": module})
    env.close()
