"""From labelled decisions to a network: what a teacher learns of them, it learns to answer.

The teacher is gradient boosting (scikit-learn). Trees see thresholds in single features where a
small network sees slopes, and need fewer labels here. They are no graph that LLVM could run, so a
network learns to answer as they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from mlgo_gym.base import OptionsError
from mlgo_gym.datasets import Episode
from mlgo_gym.problems import DEFAULT_ADVICE, MOST_SHARE, SHARE_STEPS
from mlgo_gym.training._fitting import FitConfig, Rows, fit_advantages
from mlgo_gym.training._networks import ALL_FEATURES, InliningNetwork, Normalization, PolicyNetwork
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import (
    Band,
    Cost,
    Count,
    NothingToLearnError,
    NotNegative,
    Part,
    Positive,
    Ranged,
    Seed,
    Share,
    Whole,
    Widths,
)
from mlgo_gym.training._validation import WORSE_WEIGHT

_Array = np.ndarray[Any, Any]
Teacher = Callable[[_Array], _Array]
"""From features ``[M, features]`` to each ensemble's log-odds of inlining, ``[bags, M]``."""

_SHARE: Final = "call_share"
_AT_ONCE: Final = 1 << 16
"""Rows that a network answers at once."""

MOST_CERTAIN: Final = 3.0
"""In log-odds, of a network that is learned from."""

_PARTS: Final = 10_000
"""A teacher's limits are meant for bytes of a module: a share's ten-thousandth is about as much."""


@dataclass(frozen=True)
class TeacherConfig(Ranged):
    """How trees are fitted; docs/guides/training.md says what each setting means."""

    bags: Count = 8
    bag_share: Share = 0.7
    iterations: Count = 250
    learning_rate: Positive = 0.06
    least_leaf_rows: Count = 40
    l2: NotNegative = 1.0
    clip_bytes: Positive = 400.0
    default_pull_bytes: NotNegative = 0.5


@dataclass(frozen=True)
class Labels:
    """The labels of decisions: features ``[N, numbers]``, ``[N]`` of all else.

    Each number has its feature's name. Advantages are bytes that inlining saves, or NaN; defaults,
    LLVM's, are 1 or -1, and those of a model as far from 0 as it is certain.
    """

    names: tuple[str, ...]
    features: _Array
    advantages: _Array
    weights: _Array
    defaults: _Array
    packages: _Array

    @property
    def is_known(self) -> _Array:
        """``bool [N]``: where `advantages` says something."""
        return np.isfinite(self.advantages)


def fit_teacher(labels: Labels, config: TeacherConfig, seed: int) -> Teacher:
    """Fit a classifier of whether to inline, where a mistake costs the bytes that it loses."""
    known = labels.is_known & (labels.weights > 0)
    table, packages = labels.features[known].astype(np.float64), labels.packages[known]
    saved, weights = labels.advantages[known], labels.weights[known]
    costs = np.minimum(np.abs(saved), config.clip_bytes) * weights
    pulls = config.default_pull_bytes * weights
    rows = np.concatenate([table, table])
    is_better = np.concatenate([saved > 0, labels.defaults[known] > 0])
    cost = np.concatenate([costs, pulls])
    counted = cost > 0
    if len(set(is_better[counted])) < 2:
        raise NothingToLearnError(
            f"labels: expected calls that are better inlined and calls that are not, found "
            f"{int(counted.sum())} of one kind"
        )
    models = [
        HistGradientBoostingClassifier(
            learning_rate=config.learning_rate,
            max_iter=config.iterations,
            min_samples_leaf=config.least_leaf_rows,
            l2_regularization=config.l2,
            early_stopping=False,
            random_state=seed + bag,
        ).fit(rows[chosen], is_better[chosen], sample_weight=cost[chosen])
        for bag, chosen in enumerate(_bags(packages, is_better, counted, config, seed))
    ]

    def log_odds(values: _Array) -> _Array:
        table = values.astype(np.float64)
        return np.stack([each.decision_function(table) for each in models])

    return log_odds


def _bags(
    packages: _Array, is_better: _Array, counted: _Array, config: TeacherConfig, seed: int
) -> Iterator[_Array]:
    """The rows of each ensemble: of some packages, or of all where those say one thing only."""
    random = np.random.default_rng(seed)
    names = np.unique(packages)
    size = max(1, round(config.bag_share * len(names))) if config.bags > 1 else len(names)
    for _ in range(config.bags):
        drawn = np.isin(packages, random.permutation(names)[:size])
        chosen = np.concatenate([drawn, drawn]) & counted
        yield chosen if len(set(is_better[chosen])) == 2 else counted


@dataclass(frozen=True)
class AdvantageConfig(Ranged):
    """The settings that decide the result; docs/guides/training.md explains each."""

    seed: Seed = 0
    rounds: Whole = 3
    labels: tuple[str, ...] = ()
    start: str = ""
    batches: Count = 2
    flips: Count = 12
    features: str = ALL_FEATURES
    linked_weight: Part = 0.4
    hot_bytes: NotNegative = 0.0
    hidden: Widths = (128, 128)
    band: Band = (-25, 120)
    threshold: Cost = 5
    distillation_rows: Count = 200_000
    caution: NotNegative = 0.15
    logit_limit: Positive = 3.0
    worse_weight: NotNegative = WORSE_WEIGHT
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    fit: FitConfig = field(default_factory=lambda: FitConfig(epochs=25))

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.band
        if low >= high:
            raise OptionsError(f"band: expected two costs, the lower one first, found {self.band}")


def labels_of(
    episodes: Iterable[Episode],
    features: Sequence[str],
    linked_weight: float,
    *,
    by_reward: bool = False,
    hot_bytes: float = 0.0,
    start: PolicyNetwork | None = None,
) -> Labels:
    """Return the bytes that inlining would save; those of linked text have a weight.

    By a reward it is in ten-thousandths of the baseline. To inline a call of all the counts of a
    profile would be worth so many hot bytes besides, and others their share of that. What a network
    to start from answers takes the place of LLVM's default.
    """
    known = list(episodes)
    if not known:
        raise NothingToLearnError("advantage: expected labelled decisions, found none")
    observations = np.concatenate([each.observations for each in known])
    advantages = []
    for each in known:
        if by_reward:
            saved = _PARTS * each.label("saved_share")
        else:
            saved = (1 - linked_weight) * each.label("saved_bytes")
            saved = saved + linked_weight * each.label("saved_linked_bytes")
        advantages.append(np.where(each.actions == 0, saved, -saved))
        if hot_bytes:
            advantages[-1] += hot_bytes * _part_of_counts(each)
    packages = np.unique([each.source.package for each in known], return_inverse=True)[1]
    return Labels(
        tuple(features),
        np.concatenate([_table(observations[name]) for name in dict.fromkeys(features)], axis=-1),
        np.concatenate(advantages),
        np.concatenate([each.label("sample_weight") for each in known]),
        _defaults(observations, start),
        np.repeat(packages, [len(each) for each in known]),
    )


def _defaults(
    observations: np.ndarray[Any, Any], start: PolicyNetwork | None
) -> np.ndarray[Any, Any]:
    """Above 0 where a call is inlined: by default, 1 or -1; by a network, as certain as it is."""
    if start is None:
        inlined: np.ndarray[Any, Any] = observations[DEFAULT_ADVICE].reshape(-1) == 1
        return np.where(inlined, 1, -1)
    tables = {name: _table(observations[name]) for name in start.features()}
    columns = {name: each[:, 0] if each.shape[1] == 1 else each for name, each in tables.items()}
    return log_odds(start, columns).clip(-MOST_CERTAIN, MOST_CERTAIN)


def log_odds(
    network: PolicyNetwork, columns: Mapping[str, np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """How certain an inliner is to inline each call: float64 ``[calls]``, above 0 where it does.

    Args:
        network: answers with two logits.
        columns: its features by their names, each ``[calls]`` or ``[calls, width]``.
    """
    parts = []
    for at in range(0, len(next(iter(columns.values()))), _AT_ONCE):
        logits = network({name: each[at : at + _AT_ONCE] for name, each in columns.items()}).numpy()
        parts.append(logits[:, 1] - logits[:, 0])
    return np.concatenate(parts).astype(np.float64)


def _part_of_counts(episode: Episode) -> np.ndarray[Any, Any]:
    """Each call's part of all counts of the profile, from 0 to 1."""
    if _SHARE not in (episode.observations.dtype.names or ()):
        raise OptionsError(
            f"hot_bytes: expected labels with the feature {_SHARE!r}, which 'hotness' adds, "
            f"found none in those of {episode.source.package}"
        )
    shares = episode.observations[_SHARE].reshape(len(episode)).astype(np.float64)
    return np.where(shares > 0, 2 ** ((shares - MOST_SHARE) / SHARE_STEPS), 0.0)


def distilled(
    run: TrainingRun, labels: Labels, config: AdvantageConfig, number: int
) -> InliningNetwork:
    """Fit a teacher to labels of `labels_of`, and a new network to the teacher."""
    run.doing("fitting the teacher")
    teacher = fit_teacher(labels, config.teacher, config.seed)
    chosen = _rows(labels, config)
    features = labels.features[chosen]
    answers = teacher(features).mean(axis=0) + config.caution * labels.defaults[chosen]
    answers = np.clip(answers, -config.logit_limit, config.logit_limit)
    names = np.array(labels.names)
    places = {name: np.flatnonzero(names == name).squeeze() for name in dict.fromkeys(labels.names)}
    columns = {name: features[:, place] for name, place in places.items()}
    normalization = Normalization.fit(columns, labels.names)
    network = InliningNetwork(
        normalization, config.hidden, config.seed, config.band, config.threshold
    )
    run.doing("fitting")
    rows = Rows(columns, answers, np.ones(len(answers)))
    fitting = fit_advantages(network, rows, config.fit, config.seed)
    for step, numbers in enumerate(fitting, number * config.fit.epochs):
        run.scalars(step, {f"fit/{key}": value for key, value in numbers.items()})
    return network


def _table(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``[N]`` or ``[N, numbers]`` as ``[N, numbers]``."""
    return values.reshape(len(values), -1)


def _rows(labels: Labels, config: AdvantageConfig) -> np.ndarray[Any, Any]:
    """Rows inside the band: labelled decisions first, then others at random."""
    low, high = config.band
    costs = labels.features[:, labels.names.index("cost_estimate")]
    inside = np.flatnonzero((low <= costs) & (costs < high))
    if not inside.size:
        raise NothingToLearnError(
            f"advantage: expected decisions that cost from {low} to below {high}, found none"
        )
    random = np.random.default_rng(config.seed)
    order = np.argsort(random.random(inside.size) - labels.is_known[inside])
    return np.sort(inside[order[: config.distillation_rows]])
