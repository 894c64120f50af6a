"""How many labels two workers make in a second: by a policy in the worker, and by one here.

Beside them, what LLVM takes by itself to compile the modules as often: no way of asking it for
labels would be faster. Rounds are in turns, and medians are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from benchmarks.measuring import in_turns
from mlgo_gym import Compiler, Corpus
from mlgo_gym.corpus import Packages
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.llvm._schedule import each
from mlgo_gym.problems import PolicyLike
from mlgo_gym.problems._inlining_for_size import default
from mlgo_gym.runners import WorkerPolicy
from mlgo_gym.training._labels import LabelSetting, label_modules

JOBS = 2
SETTING = LabelSetting(jobs=JOBS)
COMPILATIONS = 1 + 2 * SETTING.batches


def run(corpus: Corpus, modules: int, rounds: int) -> None:
    packages = Packages.of(Corpus(corpus.folder, corpus.names[:modules]))
    ways: dict[str, Callable[[], int]] = {
        "in the worker": partial(labelled, packages, WorkerPolicy(default)),
        "here": partial(labelled, packages, default),
        "LLVM by itself": partial(compiled, packages),
    }
    labels = ways["here"]()
    times = in_turns(ways, rounds)
    print(f"{len(packages)} modules, {labels} labels, {JOBS} workers")
    for way, found in times.items():
        print(f"{way:14} {median(found):7.2f} s   {labels / median(found):.1f} labels a second")


def labelled(packages: Packages, policy: PolicyLike) -> int:
    found = label_modules(packages, policy, "default", {}, SETTING)
    episodes = [episode for done in found if (episode := done.value[1])]
    return sum(int(np.isfinite(episode.label("saved_bytes")).sum()) for episode in episodes)


def compiled(packages: Packages) -> int:
    """The modules, as often as they are compiled for labels."""

    def compile_all(compiler: Compiler, key: ModuleKey) -> None:
        for _ in range(COMPILATIONS):
            compiler.compile_module(packages[key], keep_object=True)

    for done in each(packages, compile_all, Compiler, jobs=JOBS):
        done.value  # noqa: B018 - raises what went wrong
    return 0
