"""What a frozen model costs a compilation: modules through ``mlgo-cc``, beside plain clang.

::

    python -m benchmarks driver_modules
    python -m benchmarks.driver_modules --corpus corpora/lupa --rounds 5

Bitcode at -Oz, from its start to the object, by clang alone and by clang under a shipped model,
which answers in clang's process or, if it needs no more than LLVM's own features, over FIFOs too,
alternating, the median of several. Ratios of wall time: of all modules together, and the geometric
mean over modules, with a bootstrap interval over modules.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.driver_builds import seconds_of, settings_of
from benchmarks.measuring import mean_interval
from benchmarks.recipes import built
from mlgo_gym import Corpus

MODELS = ("inlining-for-size", "inlining-for-size-derived", "regalloc-eviction")
RECIPES = ("box2d-py", "cmarkgfm", "libsass", "lupa", "pycares", "yara-python")


def run(
    corpora: Sequence[Corpus] | None = None, rounds: int = 3, models: Sequence[str] = MODELS
) -> None:
    """Measure modules.

    Args:
        corpora: of these; ``None`` takes the recipes' test split.
        rounds: how often each is compiled each way.
        models: names of shipped models, or folders.
    """
    corpora = corpora or [built(name) for name in RECIPES]
    paths = [corpus.folder / f"{name}.bc" for corpus in corpora for name in corpus]
    settings = settings_of(models)
    for model in (name for name in settings if name != "clang"):
        times = [times_of(path, settings[model], rounds) for path in paths]
        base = np.array([plain for plain, _ in times])
        for way in times[0][1]:
            report(f"{model}, {way}", base, np.array([mine[way] for _, mine in times]))


def report(name: str, base: NDArray[np.float64], mine: NDArray[np.float64]) -> None:
    ratios = np.log(mine / base)
    low, high = mean_interval(ratios)
    print(
        f"{name}: {len(ratios)} modules, clang {base.sum():.1f} s, mlgo-cc {mine.sum():.1f} s, "
        f"{mine.sum() / base.sum():.3f} x; geometric mean {np.exp(ratios.mean()):.3f} x "
        f"[{np.exp(low):.3f}, {np.exp(high):.3f}]"
    )


def times_of(
    path: Path, settings: Mapping[str, str], rounds: int
) -> tuple[float, dict[str, float]]:
    """Seconds of one compilation by clang, and by clang under a model in each way of answering."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "module.o"
        arguments = ["-w", "-Oz", "-x", "ir", "-c", str(path), "-o", str(made)]
        return seconds_of(arguments, settings, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_modules")
    parser.add_argument("--corpus", action="append", type=Path, help="repeat")
    parser.add_argument("--model", action="append", help="a folder or a shipped one's name; repeat")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    corpora = [Corpus.load(path) for path in options.corpus or ()]
    run(corpora or None, options.rounds, options.model or MODELS)


if __name__ == "__main__":
    main()
