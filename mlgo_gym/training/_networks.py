"""Networks that answer LLVM, in Keras on TensorFlow; their features, and how these are normalised.

A network takes a batch of observations as LLVM sends them, by feature, and returns one logit for
each action; its decision is the largest. It starts as a policy that is known: the inliner's as
LLVM's own heuristic, to which the network adds, so that every trainer begins at the baseline.

The features that it is given are a text of names, joined by ``+`` and ``-``, such as
``core-edge_count``: sets, such as ``core``, what LLVM's advisor sends, ``ir2vec``, embeddings of
callee and caller, or ``counts``, the same where the vocabulary counts, ``derived``, what is read
from LLVM's module besides, and single features. What comes first is what there is to begin with; a
text that begins with ``-`` leaves out of all.

Every feature becomes two numbers, by statistics that are fitted once and kept inside the graph: its
signed logarithm, standardised, which keeps large counts apart, and its value clipped to the bulk of
what was seen and scaled to [-1, 1], which keeps costs near the threshold apart. Infinities are
clipped; NaN becomes the upper bound, since LLVM sends it for what is infinitely heavy
(``use_def_density``).
"""

from __future__ import annotations

import math
import operator
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Final, Self

import keras
import numpy as np
import tensorflow as tf

from corpus_tools.printable import listed
from corpus_tools.reading import brief
from mlgo_gym.base import InputError, OptionsError
from mlgo_gym.problems import (
    ASKING_POSITION,
    POSITIONS,
    InliningForSize,
    Problem,
    RegallocEviction,
    Vocabulary,
    problem_named,
    problems,
)
from mlgo_gym.training._trials import FORBIDDEN

CORE: Final = "core"
EMBEDDINGS: Final = "ir2vec"
"""The set of the features that LLVM sends where it has a vocabulary."""
COUNTS: Final = "counts"
"""The name of that set where the vocabulary is one that counts."""
ALL_FEATURES: Final = ""
"""The text of all features that there are."""
_MASK: Final = "mask"
_TERM: Final = re.compile(r"([+-]?)([^+-]+)")
_LOWEST_SCALE: Final = 1e-3
_LARGEST: Final = 1e9
_DEVIATIONS: Final = 5.0

_BULK: Final = (0.5, 99.5)

_MOST_WEIGHTS: Final = 1 << 26
MOST_LAYERS: Final = 64
_COSTS: Final = 1 << 31
_CONFIG_ERRORS: Final = (
    *(AttributeError, KeyError, MemoryError, OverflowError, TypeError, ValueError),
    tf.errors.OpError,
)
"""Errors of making a network of values that describe none."""

# LLVM's own rules as logits.
_THRESHOLD: Final = 5
"""The least cost that LLVM's default does not inline at -Oz."""

_RULE_SCALE: Final = 20.0
_RULE_LIMIT: Final = 4.0
_CERTAIN: Final = 20.0
_HEAVIEST: Final = 2.0
_LIGHTER: Final = 6.0
_BROKEN_HINT: Final = 4.0
_NOTHING: Final = 0.01
_STAGES: Final = 7


def feature_sets(problem: Problem) -> dict[str, tuple[str, ...]]:
    """The sets that a text can name, each with its features: all but masks.

    >>> from mlgo_gym.problems import InliningForSize
    >>> feature_sets(InliningForSize(ir2vec="ones"))["counts"]
    ('callee_embedding', 'caller_embedding')
    """
    names = tuple(name for name in problem.layout.feature_names if name != _MASK)
    sets = {CORE: tuple(name for name in names if name not in problem.optional_names())}
    for setting, optional in problem.optional.items():
        if there := tuple(name for name in names if name in optional):
            sets[setting] = there
    if EMBEDDINGS in sets and _counts(problem):
        sets[COUNTS] = sets[EMBEDDINGS]
    return sets


def _counts(problem: Problem) -> bool:
    """Whether a setting names a vocabulary that counts."""
    files = (getattr(problem, name, None) for name in problem.file_settings)
    return any(isinstance(each, Vocabulary) and each.counts for each in files)


def choose_features(problem: Problem, text: str, needed: Sequence[str]) -> tuple[str, ...]:
    """The features that a text chooses, in LLVM's order.

    Args:
        problem: whose features these are.
        text: names joined by ``+`` and ``-``; empty chooses all.
        needed: what the network cannot do without, since LLVM's own rule is a part of it.

    Raises:
        OptionsError: a name is unknown, or one that is needed is left out.

    >>> from mlgo_gym.problems import InliningForSize
    >>> choose_features(InliningForSize(), "core-edge_count", ("cost_estimate",))[:2]
    ('sroa_savings', 'sroa_losses')
    >>> choose_features(InliningForSize(), "callee_users+cost_estimate", ("cost_estimate",))
    ('cost_estimate', 'callee_users')
    """
    sets = feature_sets(problem)
    every = tuple(dict.fromkeys(name for names in sets.values() for name in names))
    if text and "".join(sign + name for sign, name in _TERM.findall(text)) != text:
        raise OptionsError(f"features: expected names joined by + and -, found {text!r}")
    chosen = set() if re.match(r"[^+-]", text) else {*every}
    for sign, name in _TERM.findall(text):
        names = sets.get(name, (name,))
        if name not in sets and name not in every:
            known = listed((*sets, *every), name)
            raise OptionsError(f"features: expected some of {known}, found {name!r}")
        chosen = chosen.difference(names) if sign == "-" else chosen.union(names)
    for name in needed:
        if name not in chosen:
            raise OptionsError(
                f"features: expected {name!r}, by which LLVM's rule goes that the network adds to, "
                f"found {text!r}"
            )
    return tuple(name for name in every if name in chosen)


@dataclass(frozen=True, slots=True)
class Normalization:
    """Mean, deviation and two percentiles of ``sign(x) * log(1 + |x|)``, for each number.

    A feature of several numbers that differ in kind, such as an embedding, is named for each.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for key in ("mean", "scale", "low", "high"):
            if len(getattr(self, key)) != len(self.names):
                raise OptionsError(
                    f"normalisation: {key}: expected {len(self.names)} numbers, "
                    f"found {len(getattr(self, key))}"
                )

    @classmethod
    def fit(cls, columns: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]) -> Self:
        """The statistics of what was observed, as far as it is finite.

        Args:
            columns: arrays ``[N, ...]`` by feature; of a feature that is named once, all numbers
                are of one kind, such as positions.
            names: one for each number.
        """
        numbers = Counter(names)
        rows = [
            _statistics(name, part)
            for name, count in numbers.items()
            for part in np.split(np.asarray(columns[name], np.float64).reshape(-1, count), count, 1)
        ]
        mean, scale, low, high = zip(*rows, strict=True)
        return cls(tuple(names), mean, scale, low, high)

    def to_json(self) -> dict[str, Any]:
        return {key: list(getattr(self, key)) for key in ("names", "mean", "scale", "low", "high")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        try:
            numbers = [tuple(map(float, value[key])) for key in ("mean", "scale", "low", "high")]
            names = tuple(map(str, value["names"]))
        except (KeyError, TypeError, ValueError) as error:
            raise OptionsError(f"normalisation: expected its statistics: {error!r}") from error
        if not all(map(math.isfinite, chain(*numbers))):
            raise OptionsError("normalisation: expected finite statistics, found others")
        return cls(names, *numbers)

    def __call__(self, values: Any) -> Any:
        """Normalise inside a graph: ``float32 [..., features]`` to ``[..., 2 * features]``."""
        low, high, mean, scale = (
            tf.constant(each, tf.float32) for each in (self.low, self.high, self.mean, self.scale)
        )
        known = tf.where(tf.equal(values, values), values, high)
        clipped = tf.minimum(tf.maximum(known, low), high)
        linear = (clipped - low) * (2.0 / tf.maximum(high - low, _LOWEST_SCALE)) - 1.0
        bounded = tf.minimum(tf.maximum(known, -_LARGEST), _LARGEST)
        logarithm = tf.sign(bounded) * tf.math.log(1.0 + tf.abs(bounded))
        standard = (logarithm - mean) / scale
        standard = tf.minimum(tf.maximum(standard, -_DEVIATIONS), _DEVIATIONS)
        return tf.concat([standard, linear], axis=-1)


def _statistics(name: str, values: np.ndarray[Any, Any]) -> tuple[float, float, float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise OptionsError(f"normalisation: expected finite values of {name!r}, found none")
    logarithm = np.sign(finite) * np.log1p(np.abs(finite))
    low, high = np.percentile(finite, _BULK)
    scale = max(float(logarithm.std()), _LOWEST_SCALE)
    return float(logarithm.mean()), scale, float(low), float(high)


class PolicyNetwork(keras.Model):  # type: ignore[misc, unused-ignore]
    """The base of every network: its configuration, and a head that starts at zero."""

    problem: ClassVar[type[Problem]]
    rule_features: ClassVar[tuple[str, ...]] = ()
    """The features of the rule that the network adds to; they cannot be left out."""

    def __init__(self, normalization: Normalization, hidden: Sequence[int], seed: int) -> None:
        super().__init__()
        self.normalization = normalization
        self.hidden = tuple(hidden)
        self.seed = seed
        he = keras.initializers.HeNormal
        self._hidden_layers = [
            keras.layers.Dense(width, "relu", kernel_initializer=he(seed=seed * 100 + index))
            for index, width in enumerate(hidden)
        ]
        self._head = keras.layers.Dense(1, kernel_initializer="zeros")

    def config(self) -> dict[str, Any]:
        """The configuration to make the network again, without weights, as JSON values."""
        return {
            "problem": self.problem.name,
            "normalization": self.normalization.to_json(),
            "hidden": list(self.hidden),
            "seed": self.seed,
        }

    def features(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.normalization.names))

    def _score(self, values: Any) -> Any:
        for layer in self._hidden_layers:
            values = layer(values)
        return self._head(values)[..., 0]


class InliningNetwork(PolicyNetwork):
    """The inliner's policy: a small dense network, added to LLVM's own rule.

    The rule is to inline what costs less than a threshold (``cost_estimate``), by default that of
    -Oz, 5. Its logit goes from 4 to -4 as the cost goes from 80 below the threshold to 80 above.
    Outside of the band, from the first cost to below the second, the network has no say.
    """

    problem = InliningForSize
    rule_features = ("cost_estimate",)

    def __init__(
        self,
        normalization: Normalization,
        hidden: Sequence[int] = (64, 64),
        seed: int = 0,
        band: tuple[int, int] | None = None,
        threshold: int = _THRESHOLD,
    ) -> None:
        super().__init__(normalization, hidden, seed)
        self.band = band
        self.threshold = threshold
        self._numbers = dict(Counter(normalization.names))
        self.build(dict.fromkeys(self.features(), (None,)))

    def config(self) -> dict[str, Any]:
        more: dict[str, Any] = {"band": list(self.band)} if self.band else {}
        if self.threshold != _THRESHOLD:
            more["threshold"] = self.threshold
        return super().config() | more

    def build(self, _: Any) -> None:
        self.call({name: tf.zeros([count]) for name, count in self._numbers.items()})
        self.built = True

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The logits, ``float32 [batch, 2]``: not to inline, and to inline."""
        parts = [
            tf.reshape(tf.cast(observations[name], tf.float32), [-1, count])
            for name, count in self._numbers.items()
        ]
        values = tf.concat(parts, axis=-1)
        cost = tf.cast(observations["cost_estimate"], tf.float32)
        prior = (self.threshold - 0.5 - cost) / _RULE_SCALE
        prior = tf.minimum(tf.maximum(prior, -_RULE_LIMIT), _RULE_LIMIT)
        advantage = self._score(self.normalization(values)) + prior
        if self.band:
            advantage = tf.where(cost < self.band[0], _CERTAIN, advantage)
            advantage = tf.where(cost >= self.band[1], -_CERTAIN, advantage)
        return tf.stack([-0.5 * advantage, 0.5 * advantage], axis=-1)


class EvictionNetwork(PolicyNetwork):
    """Eviction's policy: a score for each position, by one small network, added to LLVM's own rule.

    The network sees a position's features, how they differ from those of the live range that asks,
    whether it is that one, and its stages as embeddings.

    The rule is what ``RegAllocEvictionAdvisor`` does, as far as the features tell: evict what is
    lighter than the range that asks (``use_def_density``), what breaks the fewest hints before all,
    and then the lightest; where nothing is, evict nothing. The network never evicts what is heavier
    than the range that asks, unless something must go: such evictions look good one by one, and
    together go round in circles.

    It answers otherwise than the rule only where its logit is larger by more than the margin, which
    is added to that of the rule's choice.
    """

    problem = RegallocEviction
    rule_features = ("use_def_density", "nr_broken_hints", "max_stage", "min_stage")

    def __init__(
        self,
        normalization: Normalization,
        hidden: Sequence[int] = (32, 16),
        seed: int = 0,
        margin: float = 0.0,
    ) -> None:
        super().__init__(normalization, hidden, seed)
        if not 0 <= margin < -FORBIDDEN:
            raise OptionsError(f"margin: expected a number from 0 to below 1e9, found {margin!r}")
        self.margin = margin
        self._embeddings = {
            name: self.add_weight(
                shape=(_STAGES, 2),
                initializer=keras.initializers.RandomNormal(stddev=0.1, seed=seed * 100 + 50 + i),
                name=f"embedding_{name}",
            )
            for i, name in enumerate(("max_stage", "min_stage"))
        }
        self.build(dict.fromkeys(self.features(), (None,)))

    def config(self) -> dict[str, Any]:
        return super().config() | ({"margin": self.margin} if self.margin else {})

    def build(self, _: Any) -> None:
        self.call({s.name: tf.zeros(s.shape, s.dtype) for s in RegallocEviction().layout.specs})
        self.built = True

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The logits, ``float32 [batch, 33]``; what is not chosen in any case has -1e9."""
        columns = []
        for name in self.features():
            values = tf.cast(observations[name], tf.float32)
            if name == "progress":
                values = tf.tile(tf.expand_dims(values, -1), [1, POSITIONS])
            columns.append(values)
        normal = self.normalization(tf.stack(columns, axis=-1))
        asking = normal[:, ASKING_POSITION:, :]
        is_asking = tf.reshape(tf.one_hot([ASKING_POSITION], POSITIONS), [1, POSITIONS, 1])
        flags = tf.zeros_like(normal[:, :, :1]) + is_asking
        stages = [
            tf.matmul(tf.one_hot(observations[name], _STAGES), table)
            for name, table in self._embeddings.items()
        ]
        scores = self._score(tf.concat([normal, normal - asking, flags, *stages], axis=-1))
        density = observations["use_def_density"]
        weight = tf.minimum(tf.where(tf.equal(density, density), density, _HEAVIEST), _HEAVIEST)
        is_lighter = tf.cast(weight < weight[:, ASKING_POSITION:], tf.float32)
        is_asking = tf.one_hot([ASKING_POSITION], POSITIONS)
        rule = _LIGHTER * is_lighter - _BROKEN_HINT * observations["nr_broken_hints"] - weight
        rule = rule * (1.0 - is_asking) + _NOTHING * is_asking
        mask = tf.cast(observations["mask"], tf.float32)
        must_evict = 1.0 - mask[:, ASKING_POSITION:]
        allowed = mask * tf.maximum(must_evict, tf.maximum(is_lighter, is_asking))
        if self.margin:
            choice = tf.argmax(rule * allowed + FORBIDDEN * (1.0 - allowed), axis=-1)
            rule += self.margin * tf.one_hot(choice, POSITIONS)
        return (scores + rule) * allowed + FORBIDDEN * (1.0 - allowed)


def network_features(problem: Problem, text: str = ALL_FEATURES) -> tuple[str, ...]:
    """The features that a text chooses for a problem's network (`choose_features`).

    An embedding is named for each of its numbers, of which each is normalised by itself; a feature
    that has a number for each position is named once.
    """
    chosen = choose_features(problem, text, _kind(type(problem)).rule_features)
    numbers = {each.spec.name: each.spec.element_count for each in problem.layout.features}
    wide = {each.spec.name for each in problem.layout.features if each.is_wide}
    return tuple(
        name for each in chosen for name in [each] * (1 if each in wide else numbers[each])
    )


def networked_problems() -> str:
    """The names of the problems that networks answer."""
    return ", ".join(kind.name for kind in problems().values() if kind.network)


def network_for(
    problem: Problem, normalization: Normalization, hidden: Sequence[int], seed: int = 0
) -> PolicyNetwork:
    """A new network for a problem."""
    return _made(type(problem), normalization, hidden, seed)


def with_margin(network: PolicyNetwork, margin: float) -> PolicyNetwork:
    """A network of the same weights and this margin; 0 leaves it as it is.

    Raises:
        OptionsError: it cannot be, or the network is one without.
    """
    if not margin:
        return network
    if not isinstance(network, EvictionNetwork):
        raise OptionsError(f"margin: expected 0 for {network.problem.name}, found {margin!r}")
    found = network_from_config(network.config() | {"margin": margin})
    found.set_weights(network.get_weights())
    return found


def _kind(problem: type[Problem]) -> type[PolicyNetwork]:
    if not problem.network:
        raise OptionsError(
            f"network: expected one of {networked_problems()}, found {problem.name!r}"
        )
    kind: type[PolicyNetwork] = pkgutil.resolve_name(problem.network)
    return kind


def _made(kind: type[Problem], *parts: Any, **more: Any) -> PolicyNetwork:
    """The network that a problem names, for this problem: a third party's may name one of ours."""
    network: PolicyNetwork = _kind(kind)(*parts, **more)
    network.problem = kind  # type: ignore[misc]
    return network


def network_from_config(config: Any, most_weights: int = _MOST_WEIGHTS) -> PolicyNetwork:
    """The network that `PolicyNetwork.config` describes, with initial weights.

    Args:
        config: JSON values, which may be anything.
        most_weights: how many weights there are for it, which bounds its layers.

    Raises:
        OptionsError: they are no network's, or one of more weights.
    """
    try:
        hidden = tuple(map(operator.index, config["hidden"]))
        if len(hidden) > MOST_LAYERS:
            expected = f"network: hidden: expected at most {MOST_LAYERS} layers"
            raise OptionsError(f"{expected}, found {len(hidden):,}")
        normalization = Normalization.from_json(config["normalization"])
        widths = (len(normalization.names), *hidden, 1)
        if min(hidden, default=1) < 1 or _weights_between(widths) > most_weights:
            raise OptionsError(
                f"network: hidden: expected widths for at most {most_weights:,} weights, found "
                f"{brief(hidden)} behind {widths[0]:,} numbers"
            )
        kind = problem_named(config["problem"])
        more: dict[str, Any] = {}
        if "band" in config:
            low, high = (_cost("band", each) for each in config["band"])
            more["band"] = low, high
        if "threshold" in config:
            more["threshold"] = _cost("threshold", config["threshold"])
        if "margin" in config:
            more["margin"] = float(config["margin"])
        return _made(kind, normalization, hidden, int(config["seed"]), **more)
    except InputError:
        raise
    except _CONFIG_ERRORS as error:
        raise OptionsError(
            f"network: expected problem, normalization, hidden and seed: {brief(error)}"
        ) from error


def _cost(name: str, value: Any) -> int:
    """A cost of LLVM's, which the graph has in 32 bits."""
    cost = int(value)
    if not -_COSTS <= cost < _COSTS:
        expected = f"network: {name}: expected costs from {-_COSTS} to below {_COSTS}"
        raise OptionsError(f"{expected}, found {brief(cost)}")
    return cost


def _weights_between(widths: Sequence[int]) -> int:
    """How many weights dense layers have at least that lead from width to width."""
    return sum(before * after for before, after in pairwise(widths))


def check_arrays(found: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """See that there are arrays like those of a network, by their names, of finite numbers.

    Raises:
        ValueError: one is missing, or is another; the message names it.
    """
    for name, expected in like.items():
        if name not in found:
            raise ValueError(f"expected an array {name!r}, found none")
        array, kind = found[name], expected.dtype.kind
        if (array.shape, array.dtype.kind) != (expected.shape, kind):
            what = f"expected {expected.dtype} of shape {expected.shape}"
            raise ValueError(f"{name}: {what}, found {array.dtype} of shape {array.shape}")
        with np.errstate(over="ignore"):
            if not np.isfinite(array.astype(expected.dtype)).all():
                raise ValueError(f"{name}: expected finite numbers, found others")
