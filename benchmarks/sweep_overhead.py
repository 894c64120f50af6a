"""What decisions cost: a sweep answering with LLVM's default, against plain LLVM.

Ways through the same modules, in turns, module by module:

- bare: llvmlite called in this process, with nothing of mlgo_gym's workers around it;
- plain: the worker process compiles, and nothing is asked;
- environment: ``gymnasium.make(...)``, every decision answered with LLVM's default;
- here: the same by a function in this process;
- named: the same, and the worker tells who calls whom, as for `search` and labels;
- function: the same by a function in the worker;
- recorded: the same by answers that were recorded, in the worker;
- model: the shipped model as machine code in the worker, whose code is another;
- recorded model: its answers, recorded.

Baselines are known before the clock starts, as they are after the first episode of a module.
Times are sums over modules of the median over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import median

import gymnasium

import mlgo_gym
from benchmarks.measuring import in_turns
from mlgo_gym import Compiler, Corpus, InliningForSize, Module
from mlgo_gym.llvm import options_of
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike
from mlgo_gym.problems._inlining_for_size import default
from mlgo_gym.rollout import record, replay
from mlgo_gym.runners import WorkerPolicy, model_policies
from mlgo_gym.search import NamingCompiler


def run(corpus: Corpus, rounds: int) -> None:
    env = gymnasium.make(
        "mlgo_gym/InliningForSize-v0", corpus=corpus, size_increase_threshold=math.inf
    )
    session = binding.Session()
    problem = InliningForSize(size_increase_threshold=math.inf)
    with (
        Compiler() as compiler,
        model_policies([find_model("inlining-for-size")], "release", problem) as found,
    ):
        (model,) = found.values()
        modules = [corpus[name] for name in corpus if asks(compiler, corpus[name], problem)]
        policies: dict[str, PolicyLike] = {
            "here": default,
            "function": WorkerPolicy(default),
            "model": model,
        }
        traces = {
            name: {module.name: record(compiler, module, problem, policy) for module in modules}
            for name, policy in (("recorded", default), ("recorded model", model))
        }

        def compiled(policy: PolicyLike) -> Callable[[Module], int]:
            return lambda module: (
                compiler.compile_module(module, problem=problem, policy=policy).decisions
            )

        def repeated(name: str) -> Callable[[Module], int]:
            return lambda module: replay(compiler, traces[name][module.name], module).decisions

        ways: dict[str, Callable[[Module], int]] = {
            "bare": lambda module: bare(session, module),
            "plain": lambda module: compiler.compile_module(module).decisions,
            "environment": lambda module: episode(env, module),
            "named": lambda module: named(compiler, module, problem),
            **{name: compiled(policy) for name, policy in policies.items()},
            **{name: repeated(name) for name in traces},
        }
        times: dict[str, float] = dict.fromkeys(ways, 0.0)
        decisions = sum(ways["environment"](module) for module in modules)
        for module in modules:
            calls = {way: partial(compile_once, module) for way, compile_once in ways.items()}
            for way, each in in_turns(calls, rounds).items():
                times[way] += median(each)
    env.close()
    print(f"mlgo_gym {mlgo_gym.__version__}, {len(modules)} modules, {decisions} decisions")
    for way, seconds in times.items():
        print(f"{way:14} {seconds:7.3f} s   {seconds / times['plain']:.3f} x plain")
    print(f"environment / bare  {times['environment'] / times['bare']:.3f}")
    extra = (times["environment"] - times["plain"]) / decisions
    print(f"a decision costs {1e6 * extra:.0f} us more than none, LLVM's features included")


def bare(session: binding.Session, module: Module) -> int:
    session.set_options(["-enable-ml-inliner=default"])
    target = options_of(module).target()
    with binding.parse(module.data, is_text=False, verify=False) as parsed:
        binding.emit_object(parsed, target, binding.optimize(parsed, target))
    return 0


def named(compiler: Compiler, module: Module, problem: InliningForSize) -> int:
    return len(NamingCompiler(compiler, module, default, problem).compile().decisions)


def asks(compiler: Compiler, module: Module, problem: InliningForSize) -> bool:
    with compiler.start(module, problem) as compilation:
        return compilation.next_observation() is not None


def episode(env: gymnasium.Env[object, object], module: Module) -> int:
    _, info = env.reset(options={"module": module})
    ended = False
    while not ended:
        _, reward, terminated, truncated, info = env.step(info["default_advice"])
        ended = terminated or truncated
    if reward != 0:
        raise RuntimeError(f"{module.name}: LLVM's default answers scored {reward}, expected 0")
    return int(info["decision"])
