"""Learn when to compile, by the cross-entropy method, and look at programs not trained on.

python examples/tier_up_search.py --train a.npz b.npz --test c.npz --rounds 30

Recordings are made by `mlgo-gym tiers record`. The policy is linear: a function is compiled at the
tier whose score is highest, or not at all where none is above 0; it enters no loops and guesses
nothing. Each line says how many percent a program takes above the best decisions in hindsight,
after ski rental and after what was learned.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlgo_gym.lab.tiers import (
    SAMPLE_RECORDING,
    Recording,
    Replay,
    oracle_s,
    played,
    schedule_named,
)

TIERS = (1, 2)
FEATURES = 6
POPULATION, ELITE = 32, 8


class Linear:
    """Compiles where a weighted sum is above 0: of logarithms of time, calls and size."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = [tuple(row) for row in np.reshape(weights, (len(TIERS), FEATURES))]

    def __call__(self, replay: Replay) -> int:
        """The tier to compile at, or 0."""
        function = replay.function
        spent = math.log2(1e-6 + replay.spent_s[function])
        calls = math.log2(1 + replay.calls[function])
        backs = math.log2(1 + replay.backs[function])
        size = math.log2(1 + replay.sizes[function])
        now = math.log2(1e-6 + replay.now_s)
        best, chosen = 0.0, 0
        for tier, (constant, a, b, c, d, e) in zip(TIERS, self._weights, strict=True):
            if replay.is_allowed(tier):
                due = spent - math.log2(1e-6 + replay.cost_s(tier))
                score = constant + (1 + a) * due + b * calls + c * backs + d * size
                score += e * (now - spent)
                if score > best:
                    best, chosen = score, tier
        return chosen


class Programs:
    """Recordings, and the least seconds of each."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.names = [path.stem for path in paths]
        self._replays = [Replay(Recording.load(path)) for path in paths]
        self._best = [oracle_s(each.recording) for each in self._replays]

    def above(self, policy: Linear | None) -> list[float]:
        """How many times the least each takes; under ski rental without a policy."""
        chosen = policy or schedule_named("ski-rental")
        return [
            played(replay.recording, chosen, replay=replay).total_s / best
            for replay, best in zip(self._replays, self._best, strict=True)
        ]


def learned(programs: Programs, rounds: int, seed: int) -> Linear:
    """The middle of the last elite: it began at ski rental with a rule for each tier."""
    numbers = np.random.default_rng(seed)
    mean = np.zeros(len(TIERS) * FEATURES)
    spread = np.tile([1.0, 0.3, 0.1, 0.1, 0.1, 0.1], len(TIERS))
    for _ in range(rounds):
        tried = [mean, *(mean + spread * numbers.standard_normal((POPULATION - 1, len(mean))))]
        losses = [float(np.log(programs.above(Linear(each.tolist()))).mean()) for each in tried]
        elite = np.array(tried)[np.argsort(losses)[:ELITE]]
        mean, spread = elite.mean(axis=0), elite.std(axis=0) + 0.01
    return Linear(mean.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", nargs="+", type=Path, default=[SAMPLE_RECORDING])
    parser.add_argument("--test", nargs="+", type=Path, default=[SAMPLE_RECORDING])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train = Programs(options.train)
    policy = learned(train, options.rounds, options.seed)
    for split, programs in (("train", train), ("test", Programs(options.test))):
        rented, mine = programs.above(None), programs.above(policy)
        for name, a, b in zip(programs.names, rented, mine, strict=True):
            print(
                f"{split} {name}: ski rental {100 * (a - 1):.1f} %, learned {100 * (b - 1):.1f} %"
            )
        a, b = (100 * (np.exp(np.log(each).mean()) - 1) for each in (rented, mine))
        print(f"{split}: mean (geometric) {a:.1f} %, {b:.1f} %")


if __name__ == "__main__":
    main()
