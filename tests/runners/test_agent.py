"""Models that act in environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym import Compiler, Corpus
from mlgo_gym.envs import DefaultAdviceObservation, SignedLogObservation, make_env
from mlgo_gym.errors import ModelError, UsageError
from mlgo_gym.runners import ModelAgent, RunnerPolicy, runner_factory


@pytest.mark.parametrize("name", ["inlining-for-size", "inlining-for-size-derived"])
def test_an_agent_answers_as_the_policy_does(sample: Corpus, name: str) -> None:
    module = sample["expr_compile.c"]
    with ModelAgent(name) as agent:
        env = make_env(agent.problem, sample)
        observation, info = env.reset(options={"module": module.name})
        ended = False
        while not ended:
            observation, _, terminated, truncated, info = env.step(agent(observation))
            ended = terminated or truncated
        env.close()
        policy = RunnerPolicy(runner_factory(name, "release"))
        with Compiler() as compiler:
            expected = compiler.compile_module(module, problem=agent.problem, policy=policy)
    assert info["object_sha256"] == expected.object_sha256


def test_an_agent_of_the_register_allocator(sample: Corpus) -> None:
    with ModelAgent("regalloc-eviction") as agent:
        env = make_env(agent.problem, sample)
        observation, info = env.reset(options={"module": "expr_vm.c", "function": "expr_run"})
        for _ in range(5):
            action = agent(observation)
            assert info["action_mask"][action]
            observation, *_, info = env.step(action)
        env.close()


def test_observations_of_others(sample: Corpus) -> None:
    with ModelAgent("inlining-for-size-derived") as agent:
        env = make_env("inlining-for-size", sample)
        with pytest.raises(UsageError, match=r"expected the feature '\w+', found none; an environ"):
            agent(env.reset(seed=0)[0])
        env.close()
        env = make_env(agent.problem, sample)
        more = DefaultAdviceObservation(env)
        assert agent(more.reset(seed=0)[0]) in {0, 1}
        changed = SignedLogObservation(env)
        with pytest.raises(UsageError, match=r"sroa_savings: expected int64 \(1,\), found float32"):
            agent(changed.reset(seed=0)[0])
        env.close()


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'nothing': expected a model directory, a frozen model "):
        ModelAgent("nothing")
    with pytest.raises(ModelError, match=r"cannot be read: No such file"):
        ModelAgent(tmp_path)
