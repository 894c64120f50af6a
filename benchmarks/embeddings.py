"""What IR2Vec's embeddings cost: the same answers with and without them, and the same objects.

Every module is compiled under LLVM's default answers, module by module and in turns: with the 38
features alone, and with embeddings by each vocabulary that has a name. Times are sums over modules
of the median over the rounds.
"""

from __future__ import annotations

import math
from functools import partial
from statistics import median

from benchmarks.measuring import timed
from mlgo_gym import Compiler, Corpus, InliningForSize, Module

VOCABULARIES = ("ones", "one-hot", "seed-75")


def run(corpus: Corpus, rounds: int) -> None:
    ways = {"38 features": InliningForSize(math.inf)}
    ways |= {name: InliningForSize(math.inf, ir2vec=name) for name in VOCABULARIES}
    times = dict.fromkeys(ways, 0.0)
    equal = dict.fromkeys(ways, 0)
    modules = [corpus[name] for name in corpus]
    with Compiler() as compiler:
        for module in modules:
            plain = compiler.compile_module(module).object_sha256
            samples: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(rounds):
                for way, problem in ways.items():
                    spent, found = timed(partial(compiled, compiler, module, problem))
                    samples[way].append(spent)
                    equal[way] += number == 0 and found == plain
            for way, each in samples.items():
                times[way] += median(each)
    for way, seconds in times.items():
        ratio = seconds / times["38 features"]
        print(
            f"{way:12} {seconds:7.3f} s   {ratio:.3f} x   "
            f"{equal[way]} of {len(modules)} objects as LLVM alone makes them"
        )


def compiled(compiler: Compiler, module: Module, problem: InliningForSize) -> str | None:
    """The hash of the object under default answers."""
    policy = InliningForSize.policy()
    return compiler.compile_module(module, problem=problem, policy=policy).object_sha256
