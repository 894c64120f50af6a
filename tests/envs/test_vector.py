"""The vector environment: the same as Gymnasium's own loop over single ones, whatever happens."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._vector import CompilationVectorEnv
from mlgo_gym.errors import CorpusError, OptionsError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from tests.conftest import one_in
from tests.waiting import time_is_up

ID = "mlgo_gym/InliningForSize-v0"


@pytest.fixture
def envs(small: Corpus) -> Iterator[CompilationVectorEnv]:
    envs = CompilationVectorEnv(
        InliningForSize(), 3, corpus=small, illegal_action="error", autoreset_mode="Disabled"
    )
    yield envs
    envs.close()


def test_make_vec_makes_it(small: Corpus) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gymnasium.make_vec(
            ID, num_envs=2, vectorization_mode="vector_entry_point", corpus=str(small.folder)
        )
    assert isinstance(envs.unwrapped, CompilationVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, _ = envs.reset(seed=1)
    assert observations in envs.observation_space
    assert envs.action_space.sample() in envs.action_space
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    wrapped.reset(seed=1)
    wrapped.close()


@pytest.mark.e2e
@pytest.mark.parametrize("mode", one_in(3, list(AutoresetMode)))
def test_it_equals_a_loop_over_single_environments(small: Corpus, mode: AutoresetMode) -> None:
    ours = CompilationVectorEnv(InliningForSize(), 2, autoreset_mode=mode, corpus=small)
    theirs = SyncVectorEnv(
        [lambda: CompilationEnv(InliningForSize(), small)] * 2, autoreset_mode=mode
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    generator = np.random.default_rng(5)
    assert data_equivalence(ours.reset(seed=3), theirs.reset(seed=3), exact=True)
    ended = np.zeros(2, bool)
    episodes = 0
    while episodes < 4:
        if mode is AutoresetMode.DISABLED and ended.any():
            mine = ours.reset(options={"reset_mask": ended})
            assert data_equivalence(mine, theirs.reset(options={"reset_mask": ended}), exact=True)
        actions = generator.integers(2, size=2)
        step = ours.step(actions)
        assert data_equivalence(step, theirs.step(actions), exact=True)
        ended = step[2] | step[3]
        episodes += int(ended.sum())
    ours.close()
    theirs.close()


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP])
def test_a_crash_or_a_timeout_touches_its_own_row(small: Corpus, kill: signal.Signals) -> None:
    envs = CompilationVectorEnv(
        InliningForSize(), 3, corpus=small, timeout_s=120, autoreset_mode="Disabled"
    )
    alone = CompilationEnv(InliningForSize(), small)
    envs.reset(options={"module": "frame_stream.c"})
    expected, _ = alone.reset(options={"module": "frame_stream.c"})
    worker = envs.envs[1].compiler.worker_pid
    assert worker is not None
    os.kill(worker, kill)
    if kill == signal.SIGSTOP:
        time_is_up(envs.envs[1].compiler)
    observations, rewards, terminations, truncations, infos = envs.step(np.zeros(3, np.int64))
    expected, *_ = alone.step(0)
    for row in (0, 2):
        assert {name: array[row] for name, array in observations.items()} == expected
    assert (rewards.tolist(), terminations.tolist()) == ([0.0, -1.0, 0.0], [False] * 3)
    assert truncations.tolist() == [False, True, False]
    assert [bool(each) for each in infos["error"]] == [False, True, False]
    assert "module 'frame_stream.c': LLVM " in infos["error"][1]
    mask = np.array([False, True, False])
    _, infos = envs.reset(options={"reset_mask": mask, "module": "frame_stream.c"})
    assert infos["_module"].tolist() == mask.tolist()
    assert not envs.step(np.zeros(3, np.int64))[3].any()
    envs.close()
    alone.close()


@pytest.mark.e2e
def test_rows_have_seeds_of_their_own(sample: Corpus) -> None:
    envs = CompilationVectorEnv(InliningForSize(), 3, corpus=sample)
    modules = envs.reset(seed=8)[1]["module"].tolist()
    assert envs.reset(seed=[8, 9, 10])[1]["module"].tolist() == modules
    assert envs.reset(seed=[10, 9, 8])[1]["module"].tolist() == modules[::-1]
    assert all(text is None for text in envs.render())
    envs.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs: expected a whole number above 0, found 0"),
        ({"num_envs": 1.5}, "num_envs: expected a whole number above 0, found 1.5"),
        (
            {"autoreset_mode": "Never"},
            "autoreset_mode: expected one of NextStep, SameStep, Disabled, found 'Never'",
        ),
        (
            {"opt_level": "O0"},
            "opt_level: expected one of O1, O2, O3, Os, Oz, "
            "Os+attributes, Oz+attributes, found 'O0'",
        ),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        CompilationVectorEnv(InliningForSize(), **settings)
    assert str(caught.value) == message


def test_bad_resets(envs: CompilationVectorEnv) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"seed": [1, 2]}, "seed: expected one or 3 seeds, found 2"),
        ({"options": {"speed": 1}}, "reset options: expected only 'module', found ['speed']"),
        (
            {"options": {"reset_mask": np.zeros(3, bool)}},
            "reset_mask: expected bool (3,) with some true, all at first; "
            "found array([False, False, False])",
        ),
        (
            {"options": {"reset_mask": np.array([True, False, False])}},
            "reset_mask: expected bool (3,) with some true, all at first; "
            "found array([ True, False, False])",
        ),
        (
            {"options": {"reset_mask": [True]}},
            "reset_mask: expected bool (3,) with some true, all at first; found [True]",
        ),
    ]
    for arguments, message in bad:
        with pytest.raises(OptionsError) as caught:
            envs.reset(**arguments)
        assert str(caught.value) == message
    envs.reset(seed=1)


def test_bad_steps(envs: CompilationVectorEnv) -> None:
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none; call re"):
        envs.step(np.zeros(3, np.int64))
    envs.reset(seed=1)
    with pytest.raises(UsageError, match="^step: expected 3 actions, found 2$"):
        envs.step(np.zeros(2, np.int64))
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found 2$"):
        envs.step(np.array([0, 2, 0]))
    with pytest.raises(CorpusError, match="has no|expected one of its"):
        envs.reset(options={"module": "no such module"})
    assert not envs.reset(seed=2)[1]["decision"].any()


def test_an_action_that_is_none_moves_no_row(envs: CompilationVectorEnv) -> None:
    envs.reset(seed=1)
    for bad in ([0, 2, 0], [0, 0, 7]):
        with pytest.raises(UsageError):
            envs.step(np.array(bad))
    infos = envs.step(np.zeros(3, np.int64))[-1]
    assert infos["decision"].tolist() == [1, 1, 1]


@pytest.mark.e2e
def test_a_row_that_has_ended_holds_the_others(envs: CompilationVectorEnv) -> None:
    """With the mode Disabled, it has to be reset first."""
    envs.reset(seed=1)
    worker = envs.envs[1].compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    assert envs.step(np.zeros(3, np.int64))[3].tolist() == [False, True, False]
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none; call re"):
        envs.step(np.zeros(3, np.int64))
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert envs.step(np.zeros(3, np.int64))[-1]["decision"].tolist() == [2, 1, 2]


@pytest.mark.e2e
def test_a_reset_that_fails_in_one_row(envs: CompilationVectorEnv) -> None:
    """The others have gone on: all rows have to be reset."""
    envs.reset(seed=1)
    envs.envs[1].compiler.interrupt()
    with pytest.raises(UsageError, match="^compiler: closed$"):
        envs.reset()
    with pytest.raises(UsageError, match="^step: expected a pending decision, found none; call re"):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(OptionsError, match="^reset_mask: .* all at first; "):
        envs.reset(options={"reset_mask": np.array([True, False, True])})


@pytest.mark.e2e
def test_rows_are_asked_by_name(sample: Corpus) -> None:
    """As Gymnasium's own vector environments have it."""
    corpus = Corpus(sample.folder, ("expr_vm.c",))
    ours = CompilationVectorEnv(RegallocEviction(), 2, corpus=corpus)
    theirs = SyncVectorEnv([lambda: AllocationEnv(RegallocEviction(), corpus)] * 2)
    ours.reset(seed=1)
    theirs.reset(seed=1)
    assert data_equivalence(ours.call("action_masks"), theirs.call("action_masks"), exact=True)
    assert ours.call("render") == ours.get_attr("render_mode") == (None, None)
    ours.set_attr("render_mode", ["ansi", None])
    assert [text is None for text in ours.call("render")] == [False, True]
    ours.set_attr("render_mode", "ansi")
    assert ours.get_attr("render_mode") == ("ansi", "ansi")
    assert ours.np_random_seed == theirs.np_random_seed == (1, 2)
    with pytest.raises(AttributeError, match="no_such"):
        ours.get_attr("no_such")
    with pytest.raises(ValueError, match="length equal to the number of environments"):
        ours.set_attr("render_mode", ["ansi"])
    ours.close()
    theirs.close()


@pytest.mark.e2e
def test_an_environment_can_be_forked(small: Corpus) -> None:
    env = gymnasium.make(ID, corpus=small)
    with pytest.raises(UsageError, match="^fork: expected a pending decision, found none; call re"):
        env.unwrapped.fork()  # type: ignore[attr-defined]
    env.reset(seed=4)
    env.action_space.seed(4)
    env.step(0)
    twin = env.unwrapped.fork()  # type: ignore[attr-defined]
    ends = []
    for each, action in ((env, 0), (twin, 1), (twin.fork(), 0)):
        ended = False
        while not ended:
            observation, reward, ended, _, info = each.step(action)
        ends.append((reward, info["object_sha256"], info["decision"]))
        assert not any(array.any() for array in observation.values())
    assert ends[0] == ends[2] != ends[1]
    # Both go on to the same next episodes, each with a worker and generators of its own.
    assert [env.reset()[1] for _ in range(4)] == [twin.reset()[1] for _ in range(4)]
    samples = [[each.action_space.sample() for _ in range(32)] for each in (env, twin)]
    assert samples[0] == samples[1]
    assert env.unwrapped.compiler.worker_pid != twin.compiler.worker_pid  # type: ignore[attr-defined]
    twin.close()
    env.close()


def test_a_fork_of_an_environment_is_closed_by_itself(small: Corpus) -> None:
    env = CompilationEnv(InliningForSize(), small)
    env.reset(seed=1)
    twin, other = env.fork(), env.fork()
    twin.close()
    other.reset()  # abandons the branch
    assert env.step(0)[0]
    env.close()
    assert other.step(0)[0]
    other.close()


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["RegallocEviction", "RegallocPriority"])
def test_register_allocation_equals_a_loop_over_single_environments(
    sample: Corpus, name: str
) -> None:
    identity = f"mlgo_gym/{name}-v0"
    settings: dict[str, Any] = {"corpus": sample}
    ours = gymnasium.make_vec(
        identity, num_envs=2, vectorization_mode="vector_entry_point", **settings
    )
    entry = gymnasium.spec(identity)
    single = [lambda: gymnasium.make(entry, disable_env_checker=True, **settings).unwrapped] * 2
    theirs = SyncVectorEnv(single, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    generator = np.random.default_rng(5)
    options = {"module": "hash_map.c"}
    first = ours.reset(seed=3, options=options)
    assert data_equivalence(first, theirs.reset(seed=3, options=options), exact=True)
    episodes = 0
    while episodes < 3:
        if name == "RegallocEviction":
            actions = generator.integers(33, size=2)
        else:
            actions = generator.uniform(0, 1e6, (2, 1)).astype(np.float32)
        step = ours.step(actions)
        assert data_equivalence(step, theirs.step(actions), exact=True)
        episodes += int((step[2] | step[3]).sum())
    ours.close()
    theirs.close()
