r"""What other features would bring the inliner: trained on all packages but one, asked about that.

The labels are of one run, whose vocabulary counts every entity of IR2Vec by itself (`--vocabulary`
writes it), so that embeddings by any vocabulary follow from them, and with derived features::

    python -m benchmarks.ablation --vocabulary entities.json
    mlgo-gym train advantage --corpus corpora --derived --ir2vec entities.json \
        --set rounds=1 --output run
    python -m benchmarks.ablation --labels run/labels

Printed is the share of the bytes of all beneficial flips of LLVM's default answers that the teacher
of `advantage` gets on the package that it has not seen, less what its harmful ones lose: the mean
over packages, with a bootstrap's interval, of the means over the seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.measuring import mean_interval
from mlgo_gym.datasets import Dataset
from mlgo_gym.problems import InliningForSize, Vocabulary
from mlgo_gym.problems._vocabulary import ARGUMENTS, OPCODES, TYPES
from mlgo_gym.training._distillation import (
    AdvantageConfig,
    Labels,
    TeacherConfig,
    fit_teacher,
    labels_of,
)
from mlgo_gym.training._networks import network_features

_Array = np.ndarray[Any, Any]

SECTIONS: Final = {"Opcodes": OPCODES, "Types": TYPES, "Arguments": ARGUMENTS}
WEIGHTS: Final = {"Opcodes": 1.0, "Types": 0.5, "Arguments": 0.2}
"""What LLVM multiplies each section's vectors by (``llvm/lib/Analysis/IR2Vec.cpp``)."""
ENTITIES: Final = tuple((section, name) for section, names in SECTIONS.items() for name in names)
CORE: Final = len(InliningForSize().layout.features)
FEWEST: Final = 200
"""A package with fewer labels is learned from, and not asked about."""
_ROWS: Final = ("features", "advantages", "weights", "defaults", "packages")


def vocabulary() -> dict[str, dict[str, list[float]]]:
    """One dimension for each entity, in which a function has how often it occurs."""
    vectors: dict[str, dict[str, list[float]]] = {section: {} for section in SECTIONS}
    for place, (section, name) in enumerate(ENTITIES):
        vector = [0.0] * len(ENTITIES)
        vector[place] = 1 / WEIGHTS[section]
        vectors[section][name] = vector
    return vectors


def embedded(counts: _Array, of: str) -> _Array:
    """Embeddings by a vocabulary of functions of which every entity was counted."""
    known = Vocabulary.of(of)
    vectors = json.loads(known.data)
    matrix = [
        np.array(vectors[section].get(name, [0.0] * known.dimension)) * WEIGHTS[section]
        for section, name in ENTITIES
    ]
    found: _Array = counts @ np.array(matrix)
    return found


def sizes(counts: _Array) -> _Array:
    found: _Array = counts[:, : len(OPCODES)].sum(axis=1, keepdims=True)
    return found


def opcodes_and_types(counts: _Array) -> _Array:
    return counts[:, : len(OPCODES) + len(TYPES)]


DERIVED: Final = "derived"
SETS: Final[dict[str, tuple[Callable[[_Array], _Array] | str, ...]]] = {
    "core": (),
    "core + sizes": (sizes,),
    "core + counts": (opcodes_and_types,),
    "core + derived": (DERIVED,),
    "core + derived + counts": (DERIVED, opcodes_and_types),
    "core + seed-75": (lambda counts: embedded(counts, "seed-75"),),
    "core + all": (DERIVED, opcodes_and_types, lambda counts: embedded(counts, "seed-75")),
}


def chosen(labels: Labels, parts: tuple[Callable[[_Array], _Array] | str, ...]) -> Labels:
    """The labels with the core features and these of callee and caller, or of their call."""
    columns = np.array(labels.names)
    counts = [labels.features[:, columns == f"{which}_embedding"] for which in ("callee", "caller")]
    found = [part(each) for part in parts if not isinstance(part, str) for each in counts]
    if DERIVED in parts:
        found.append(labels.features[:, np.isin(columns, InliningForSize.optional[DERIVED])])
    table = np.concatenate([labels.features[:, :CORE], *found], axis=1)
    names = (*labels.names[:CORE], *("other",) * (table.shape[1] - CORE))
    return replace(labels, features=table, names=names)


def flipped(labels: Labels, package: int, config: TeacherConfig, seed: int) -> _Array:
    """Where a teacher that has not seen a package departs from LLVM's default there."""
    seen = labels.packages != package
    rows = {key: getattr(labels, key)[seen] for key in _ROWS}
    log_odds = fit_teacher(replace(labels, **rows), config, seed)(labels.features[~seen])
    flips: _Array = np.sign(log_odds.mean(axis=0)) != labels.defaults[~seen]
    return flips


def share(gains: _Array, flips: _Array) -> float:
    return float(gains[flips].sum() / np.maximum(gains, 0).sum())


def run(folders: Sequence[Path], seeds: int, config: TeacherConfig) -> None:
    entities = Vocabulary.parse(json.dumps(vocabulary()).encode(), "entities")
    features = network_features(InliningForSize(ir2vec=entities, derived=True))
    episodes = [each for folder in folders for each in Dataset.open(folder).episodes()]
    labels = labels_of(episodes, features, AdvantageConfig().linked_weight)
    gains = {}  # of answering otherwise than LLVM's default; nothing where nobody knows
    for measure, weight in (("text", 0.0), ("linked", 1.0)):
        saved = labels_of(episodes, features, weight).advantages
        gains[measure] = np.nan_to_num(-labels.defaults * saved) * labels.weights
    names = sorted({each.source.package for each in episodes})
    known = np.bincount(labels.packages[labels.is_known], minlength=len(names))
    asked = [place for place, count in enumerate(known) if count >= FEWEST]
    print(f"{known.sum()} labels of {len(names)} packages, {len(asked)} of which are asked about")
    for title, parts in SETS.items():
        own = chosen(labels, parts)
        shares: dict[str, list[list[float]]] = {measure: [] for measure in gains}
        for place in asked:
            flips = [flipped(own, place, config, seed) for seed in range(seeds)]
            for measure, each in gains.items():
                here = each[labels.packages == place]
                shares[measure].append([share(here, flip) for flip in flips])
        for measure, found in shares.items():
            packages = [names[place] for place in asked]
            print(line(title, measure, np.array(found), packages), flush=True)


def line(title: str, measure: str, found: _Array, packages: list[str]) -> str:
    """Shares ``[packages, seeds]`` as a line."""
    low, high = mean_interval(found.mean(axis=1))
    seeds = ", ".join(f"{each:.3f}" for each in found.mean(axis=0))
    rest = ", ".join(
        f"{name} {each:.2f}" for name, each in zip(packages, found.mean(axis=1), strict=True)
    )
    mean = f"{found.mean():.3f} [{low:.3f}, {high:.3f}]"
    return f"{title:23} {measure:6} {mean}; by seed {seeds}; {rest}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("--vocabulary", type=Path, help="write the vocabulary of entities")
    parser.add_argument("--labels", type=Path, nargs="*", help="of runs with embeddings by it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bags", type=int, default=TeacherConfig.bags)
    parser.add_argument("--iterations", type=int, default=TeacherConfig.iterations)
    options = parser.parse_args()
    if options.vocabulary:
        options.vocabulary.write_text(json.dumps(vocabulary()))
    if options.labels:
        config = TeacherConfig(bags=options.bags, iterations=options.iterations)
        run(options.labels, options.seeds, config)


if __name__ == "__main__":
    main()
