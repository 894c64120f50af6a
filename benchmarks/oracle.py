"""What the search oracle saves against LLVM's default, module by module, on one core.

Some modules of each set, ten by default, evenly spaced by the size of their bitcode among those of
at least 50 kB.
The default is the plain compilation, with the advisor off.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.search import SearchSetting, search_corpus

LEAST_BYTES = 50_000


def run(sets: Sequence[Sequence[Corpus]], budget_s: float, modules: int) -> None:
    total = [0, 0]
    with Compiler() as compiler, tempfile.TemporaryDirectory() as folder:
        for corpora in sets:
            for corpus, name in evenly_spaced(corpora, modules):
                plain = compiler.compile_module(corpus[name]).text_size_bytes
                module, setting = corpus.only([name]), SearchSetting(budget_s)
                (found,) = search_corpus(module, Path(folder), InliningForSize(), setting)
                best = min(plain, found.size_bytes)
                total = [total[0] + plain, total[1] + best]
                print(
                    f"{name}: {plain:,} bytes, found {best:,}: {1 - best / plain:.2%} less; "
                    f"{found.compilations} compilations and branches, {found.spent_s:.0f} s, "
                    f"load average {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    print(f"total: {total[0]:,} bytes, found {total[1]:,}: {1 - total[1] / total[0]:.2%} less")


def evenly_spaced(corpora: Sequence[Corpus], count: int) -> list[tuple[Corpus, str]]:
    sized = [
        ((corpus.folder / f"{name}.bc").stat().st_size, corpus, name)
        for corpus in corpora
        for name in corpus
    ]
    large = sorted((each for each in sized if each[0] >= LEAST_BYTES), key=lambda each: each[0])
    step = (len(large) - 1) / max(1, count - 1)
    return [large[round(index * step)][1:] for index in range(count)]
