"""What a sweep of eviction decisions costs: through the environment, and without it.

Three ways through the same optimised modules, in turns, module by module, every decision answered
with the first legal position:

- replay: LLVM generates the modules' objects, with the decisions from a file, so that nobody is
  asked, and nothing is scored; llvmlite is called directly, in this process;
- whole: the worker allocates the registers of whole modules, a Python function answers, and all
  functions are scored;
- environment: ``gymnasium.make(...)``, an episode for every function that asks.

Modules are optimised and baselines known before the clock starts, as they are after the first
episode of a function. Times are sums over modules of the median over the rounds.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import gymnasium

import mlgo_gym
from benchmarks.measuring import in_turns
from mlgo_gym import Compiler, Corpus, RegallocEviction
from mlgo_gym.llvm import options_of
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.problems._regalloc_eviction import first_legal
from mlgo_gym.rollout._allocation import Allocator, OptimizedModule
from mlgo_gym.stream import Observation


def run(corpus: Corpus, rounds: int) -> None:
    env = gymnasium.make("mlgo_gym/RegallocEviction-v0", corpus=corpus)
    session = binding.Session()
    times = dict.fromkeys(("replay", "whole", "environment"), 0.0)
    decisions = functions = 0
    with Compiler() as compiler, tempfile.TemporaryDirectory() as folder:
        allocator = Allocator(compiler, RegallocEviction())
        for name in corpus:
            module = corpus[name]
            known = prepared(allocator, corpus, name)
            if not known.functions:
                continue
            answers = Path(folder, "channel.in")
            answers.write_bytes(recorded(allocator, known))
            out = Path(folder, "channel.out")
            out.unlink(missing_ok=True)
            out.symlink_to("/dev/null")
            ways: dict[str, Callable[[], object]] = {
                "replay": functools.partial(replay, session, known, f"{folder}/channel"),
                "whole": functools.partial(allocator.allocate, known, first_legal),
                "environment": functools.partial(episodes, env, module, known),
            }
            ways["environment"]()
            for way, each in in_turns(ways, rounds).items():
                times[way] += median(each)
            decisions += answers.stat().st_size // 8
            functions += len(known.functions)
    env.close()
    print(f"mlgo_gym {mlgo_gym.__version__}, {functions} functions, {decisions} decisions")
    for way, seconds in times.items():
        print(f"{way:12} {seconds:7.3f} s   {seconds / times['replay']:.3f} x replay")


def prepared(allocator: Allocator, corpus: Corpus, name: str) -> OptimizedModule:
    module = corpus[name]
    optimized = allocator.find_functions(allocator.optimize(module, options_of(module)))
    return allocator.baseline(optimized)[1]


def recorded(allocator: Allocator, known: OptimizedModule) -> bytes:
    advice: list[bytes] = []

    def answer(observation: Observation) -> int:
        advice.append(allocator.problem.encode_advice(first_legal(observation), observation))
        return first_legal(observation)

    allocator.allocate(known, answer)
    return b"".join(advice)


def replay(session: binding.Session, known: OptimizedModule, base: str) -> None:
    session.set_options([*RegallocEviction().advisor_options(base), *COMPILE.llvm_options()])
    target = known.options.target()
    with binding.parse(known.module.data, is_text=False, verify=False) as parsed:
        binding.emit_object(parsed, target, known.options.opt_level or "")


def episodes(
    env: gymnasium.Env[object, object], module: mlgo_gym.Module, known: OptimizedModule
) -> None:
    options: dict[str, object] | None = {"module": module}
    for _ in known.functions:
        _, info = env.reset(options=options)
        options = None
        ended = False
        while not ended:
            action = int(info["action_mask"].argmax())
            _, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
        if info["error"]:
            raise RuntimeError(info["error"])
