"""What a frozen model costs a compilation: modules through ``mlgo-cc``, beside plain clang.

::

    python -m benchmarks driver_modules
    python -m benchmarks.driver_modules --corpus corpora/lupa --rounds 5

Bitcode at -Oz, from its start to the object, by clang alone and by clang under a shipped model,
which answers in clang's process or, if it needs no more than LLVM's own features, over FIFOs too,
alternating, the median of several. Ratios of wall
time: of all modules together, and the geometric mean over modules, with a bootstrap interval over
modules.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.driver_builds import (
    CLANG,
    FIFOS,
    WAYS,
    alternating,
    compile_file,
    compilers,
    settings_of,
)
from benchmarks.recipes import built
from mlgo_gym import Corpus
from mlgo_gym.model._card import find_model
from mlgo_gym.policies._models import problem_of_models, settings_of_models

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
    inside = {Path(find_model(each)).name for each in models if needs_clangs_process(each)}
    for model in (name for name in settings if name != "clang"):
        ways = WAYS[:1] if model in inside else WAYS
        times = np.array([times_of(path, settings[model], ways, rounds) for path in paths])
        for number, way in enumerate(ways, 1):
            report(f"{model}, {way}", times[:, 0], times[:, number])


def needs_clangs_process(model: str) -> bool:
    """Whether a model has inputs that are read in LLVM's module."""
    folder = find_model(model)
    return bool(settings_of_models([folder], problem_of_models([folder])))


def report(name: str, base: NDArray[np.float64], mine: NDArray[np.float64]) -> None:
    ratios = np.log(mine / base)
    drawn = np.random.default_rng(0).integers(len(ratios), size=(10_000, len(ratios)))
    low, high = np.quantile(ratios[drawn].mean(axis=1), (0.025, 0.975))
    print(
        f"{name}: {len(ratios)} modules, clang {base.sum():.1f} s, mlgo-cc {mine.sum():.1f} s, "
        f"{mine.sum() / base.sum():.3f} x; geometric mean {np.exp(ratios.mean()):.3f} x "
        f"[{np.exp(low):.3f}, {np.exp(high):.3f}]"
    )


def times_of(path: Path, settings: dict[str, str], ways: Sequence[str], rounds: int) -> list[float]:
    """Seconds of one compilation by clang, and by clang under a model in each of the ways."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "module.o"
        arguments = ["-w", "-Oz", "-x", "ir", "-c", str(path), "-o", str(made)]
        driver = compilers(driver=True)["CC"]
        compile_file(driver, arguments, settings)  # once before, so that the model is compiled
        calls = {
            WAYS[0]: lambda: compile_file(driver, arguments, settings),
            WAYS[1]: lambda: compile_file(driver, arguments, {**settings, **FIFOS}),
        }
        plain = partial(compile_file, CLANG, arguments, {})
        return alternating((plain, *(calls[way] for way in ways)), rounds)


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
