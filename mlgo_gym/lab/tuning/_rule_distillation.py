"""From a model to a rule that people can read: fitted to answers and labels, chosen by linked text.

Decisions are recorded under the model first and then, in the manner of DAgger (Ross, Gordon,
Bagnell 2011), under the best rule so far, which sees other calls. The network says of each what it
would answer; where there are labels, so does a teacher that is fitted to them. A tree is fitted to
what both say together, weighed by how certain they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from sklearn.tree import DecisionTreeClassifier

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import DatasetError, ModelError, OptionsError, TrainingError
from mlgo_gym.datasets import Episode, Source, episodes_of_report
from mlgo_gym.lab.tuning._rule import (
    KNOWN,
    LEAST_LINES,
    Rule,
    RuleNode,
    cpp_text,
    features_of,
    line_count,
    narrowed,
    python_text,
    simplified,
)
from mlgo_gym.llvm import llvm_version
from mlgo_gym.model import find_description, read_card
from mlgo_gym.problems import InliningForSize, Problem
from mlgo_gym.rollout import rollout
from mlgo_gym.runners import native_policy
from mlgo_gym.training import (
    MOST_CERTAIN,
    AdvantageConfig,
    Data,
    InliningNetwork,
    TeacherConfig,
    Validation,
    fit_teacher,
    labels_in,
    labels_of,
    load_network,
    log_odds,
    save_model,
    validate_all,
)

_Array = np.ndarray[Any, Any]

_LEAST_LEAF_ROWS: Final = 40
_SHARES: Final = (1.0, 0.75, 0.5)
"""The parts that are tried of the leaves for which there is room: small rules overfit less."""
_ROUNDED: Final = 0.002
"""The part of a question's rows, by weight, that may be answered otherwise for a round number."""

_MOST_OF_A_MODULE: Final = 2000
_MOST_CALLS: Final = 100_000
_SAYS_NOTHING: Final = 15.0
"""From here on the network answers by the cost alone, beyond its band."""
_NETWORKS_PART: Final = 0.5
"""The network's weight beside labels."""
_NETWORK: Final = "network"


@dataclass(frozen=True)
class Calls:
    """Features ``[N]`` by name, and how certainly they are to be inlined ``[N]``, as log-odds."""

    columns: Mapping[str, _Array]
    certainties: _Array

    def only(self, chosen: _Array) -> Calls:
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Calls(columns, self.certainties[chosen])


def fit_rules(calls: Calls, lines: int, band: tuple[int, int] | None, seed: int) -> list[Rule]:
    """The rule of most leaves that so many lines hold, and smaller ones.

    Outside of the band of costs, as the network has it, a rule answers as LLVM's rule does.
    """
    if band:
        costs = calls.columns["cost_estimate"]
        calls = calls.only((band[0] <= costs) & (costs < band[1]))
    found: list[Rule] = []
    leaves = _most_leaves(calls, lines, band, seed)
    for share in _SHARES:
        rule = _fitted(calls, max(2, round(share * leaves)), band, seed)
        if isinstance(rule, RuleNode) and rule not in found:
            found.append(rule)
    return found


def _most_leaves(calls: Calls, lines: int, band: tuple[int, int] | None, seed: int) -> int:
    """By bisection: a tree of more leaves is one of fewer with questions added."""
    fewest, beyond = 2, 2 * lines
    while beyond - fewest > 1:
        middle = (fewest + beyond) // 2
        if line_count(_fitted(calls, middle, band, seed)) <= lines:
            fewest = middle
        else:
            beyond = middle
    return fewest


def _fitted(calls: Calls, leaves: int, band: tuple[int, int] | None, seed: int) -> Rule:
    names = list(calls.columns)
    if not calls.certainties.size:
        return False
    model = DecisionTreeClassifier(
        criterion="entropy",
        max_leaf_nodes=leaves,
        min_samples_leaf=_LEAST_LEAF_ROWS,
        random_state=seed,
    ).fit(
        np.stack([calls.columns[name] for name in names], axis=1).astype(np.float64),
        calls.certainties > 0,
        sample_weight=np.abs(calls.certainties),
    )
    rule = simplified(_converted(model.tree_, names, 0, calls))
    if band:
        rule = RuleNode("cost_estimate", band[1], rule, high=False)
        if narrowed(rule, "cost_estimate", band[0] - 1) is not True:
            rule = RuleNode("cost_estimate", band[0], low=True, high=rule)
    return simplified(rule)


def _converted(tree: Any, names: list[str], node: int, calls: Calls) -> Rule:
    """A node of scikit-learn's tree and those below it; its answer is that of its calls' sum."""
    if tree.children_left[node] < 0 or not calls.certainties.size:
        return bool(calls.certainties.sum() > 0)
    name = names[tree.feature[node]]
    values = calls.columns[name]
    if KNOWN[name].unit == "flag":
        least, is_low = 1, values == 0
    else:
        least = _rounded(values, np.abs(calls.certainties), int(np.floor(tree.threshold[node])) + 1)
        is_low = values < least
    low, high = (
        _converted(tree, names, child[node], calls.only(chosen))
        for child, chosen in ((tree.children_left, is_low), (tree.children_right, ~is_low))
    )
    return RuleNode(name, least, low, high)


def _rounded(values: _Array, weights: _Array, least: int) -> int:
    """The threshold of the fewest digits that changes next to nothing."""
    most = _ROUNDED * weights.sum()
    lowest, highest = (_bound(values, weights, least, most, sign) for sign in (-1, 1))
    for zeros in range(len(str(abs(least))) - 1, 0, -1):
        below = least // 10**zeros * 10**zeros
        fitting = [each for each in (below, below + 10**zeros) if lowest <= each <= highest]
        if fitting:
            return int(min(fitting, key=lambda each: abs(each - least)))
    return least


def _bound(values: _Array, weights: _Array, least: int, most: float, sign: int) -> int:
    """How far a threshold can go down or up before calls of more than so much weight move."""
    beyond = values < least if sign < 0 else values >= least
    places = np.argsort(sign * values[beyond], kind="stable")
    near, moved = values[beyond][places], np.cumsum(weights[beyond][places])
    kept = near[moved > most]
    if not kept.size:
        return least
    return int(kept[0]) + (1 if sign < 0 else 0)


class RuleNetwork(keras.Model):  # type: ignore[misc, unused-ignore]
    """Comparisons and selections. Its weights are the two answers.

    A graph without variables would have another output than LLVM's signature names.
    """

    def __init__(self, rule: Rule, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self._rule = rule
        self._answers = self.add_weight(
            shape=(2,), initializer=keras.initializers.Constant([-1.0, 1.0])
        )
        self.built = True

    def features(self) -> tuple[str, ...]:
        return features_of(self._rule)

    def config(self) -> dict[str, Any]:
        """Its configuration as JSON values; `load_network` does not make it."""
        rule = self._rule if isinstance(self._rule, bool) else asdict(self._rule)
        return {"kind": "rule", "problem": self.problem.name, "rule": rule}

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The logits, ``float32 [batch, 2]``: not to inline, and to inline."""
        inline = self._answer(self._rule, observations)
        return tf.stack([-inline, inline], axis=-1)

    def _answer(self, rule: Rule, observations: Mapping[str, Any]) -> Any:
        if isinstance(rule, bool):
            return self._answers[int(rule) : int(rule) + 1]
        values = observations[rule.feature]
        is_low = tf.equal(values, 0) if rule.is_flag else tf.less(values, rule.least)
        low, high = (self._answer(each, observations) for each in (rule.low, rule.high))
        return tf.where(is_low, low, high)


@dataclass(frozen=True)
class RuleConfig:
    """The settings that decide the rule; docs/guides/rules.md explains each."""

    lines: int = 40
    labels: tuple[str, ...] = ()
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.lines < LEAST_LINES:
            raise OptionsError(
                f"lines: expected at least {LEAST_LINES}, which a rule of one question takes, "
                f"found {self.lines}"
            )


@dataclass(frozen=True)
class Distilled:
    """The rule, and what it and the network are worth on what is held out."""

    rule: Rule
    network: Validation
    found: Validation
    decisions: int
    labelled: int


def distill(
    model: Path,
    problem: InliningForSize,
    config: RuleConfig,
    data: Data,
    *,
    output: Path,
    card: Mapping[str, Any],
) -> Distilled:
    """Write the model directory of a rule, with the rule as Python and as C++."""
    network = _network(model)
    distillation = _Distillation(model, network, problem, config, data)
    found = distillation.run()
    name = re.sub(r"[^\w.+-]", "_", model.resolve().name)  # it stands in comments
    title = f"Shall LLVM inline this call? Distilled from {name}."
    texts = {"rule.py": python_text(found.rule, title), "rule.h": cpp_text(found.rule, title)}
    facts = {
        "trainer": "distill",
        "config": asdict(config),
        "seed": config.seed,
        "model": model.name,
        **card,
        "results": {
            "decisions": found.decisions,
            "labelled_decisions": found.labelled,
            "lines": line_count(found.rule),
            "validation": found.found.to_json(),
            "network": found.network.to_json(),
        },
    }
    save_model(RuleNetwork(found.rule, problem), problem, output, facts, texts)
    return found


def _network(model: Path) -> InliningNetwork:
    """A model's network, which is asked about calls that its own compilations do not see."""
    if model.suffix == ".json" or find_description(model):
        raise ModelError(
            str(model), "expected a model directory with its network, found a frozen model"
        )
    if card := read_card(model):
        card.check_llvm(llvm_version(), str(model))
    try:
        network = load_network(model)
    except OptionsError as error:  # of a rule, or of PyTorch's
        raise ModelError(str(model), str(error)) from error
    if not isinstance(network, InliningNetwork):
        raise ModelError(
            str(model), f"expected the inliner's network, found {type(network).__name__}"
        )
    return network


class _Distillation:
    def __init__(
        self,
        model: Path,
        network: InliningNetwork,
        problem: InliningForSize,
        config: RuleConfig,
        data: Data,
    ) -> None:
        self._model, self._network, self._problem = model, network, problem
        self._config, self._data = config, data
        self._names = tuple(name for name in KNOWN if name in network.features())
        self._labels = [
            _checked(episode, network.features(), folder)
            for folder in config.labels
            for episode in labels_in(Path(folder), problem.name, data, llvm_version())
        ]
        self._columns = [self._taken(each.observations) for each in self._labels]
        self._teacher = self._taught()

    def run(self) -> Distilled:
        validations: dict[str, Validation] = {}
        rules: dict[str, Rule] = {}
        policy = self._model
        with scratch_folder() as folder:
            for number in range(self._config.rounds):
                self._record(policy)
                models = {} if number else {_NETWORK: self._model}
                for place, rule in enumerate(self._fitted()):
                    if rule in rules.values():
                        continue
                    name = f"{number}-{place}"
                    rules[name], models[name] = rule, folder / name
                    save_model(RuleNetwork(rule, self._problem), self._problem, folder / name, {})
                if models:
                    validations |= validate_all(models, self._data, self._problem)
                best = min(rules, key=lambda name: validations[name].loss())
                policy = folder / best
        return Distilled(
            rules[best],
            validations[_NETWORK],
            validations[best],
            sum(len(each[self._names[0]]) for each in self._columns),
            sum(int(np.isfinite(each.label("saved_bytes")).sum()) for each in self._labels),
        )

    def _record(self, model: Path) -> None:
        """Add what is asked under a model on what is trained on."""
        data = self._data
        how: dict[str, Any] = {"jobs": data.jobs, "timeout_s": data.timeout_s}
        with ExitStack() as stack:
            policies = {_NETWORK: native_policy(model, self._problem, stack)}
            reports = rollout(data.packages, policies, self._problem, keep_decisions=True, **how)
            for report in stack.enter_context(closing(reports)):
                for failure in report.failures:
                    data.warn(failure)
                for attempt in report.attempts:
                    source = Source(*report.key)
                    for each in episodes_of_report(report, attempt, self._problem, source):
                        self._columns.append(self._taken(each.observations))

    def _taken(self, observations: _Array) -> dict[str, _Array]:
        """The network's features of so many calls at most, drawn at random."""
        random = np.random.default_rng([self._config.seed, len(observations)])
        drawn = np.sort(random.permutation(len(observations))[:_MOST_OF_A_MODULE])
        return {name: observations[name][drawn] for name in self._network.features()}

    def _taught(self) -> Any:
        if not self._labels:
            return None
        labels = labels_of(self._labels, self._names, AdvantageConfig().linked_weight)
        return fit_teacher(labels, TeacherConfig(), self._config.seed)

    def _fitted(self) -> list[Rule]:
        if not self._columns:
            raise TrainingError(
                f"distill: expected modules that ask for decisions, found none of "
                f"{len(self._data.packages)}"
            )
        merged = {
            name: np.concatenate([each[name] for each in self._columns])
            for name in self._network.features()
        }
        calls = Calls({name: merged[name] for name in self._names}, self._certainties(merged))
        count = len(calls.certainties)
        random = np.random.default_rng(self._config.seed)
        calls = calls.only(np.sort(random.permutation(count)[:_MOST_CALLS]))
        config = self._config
        rules = fit_rules(calls, config.lines, self._network.band, config.seed)
        if not rules:
            raise TrainingError(
                f"distill: expected a model whose answers a rule can tell apart, found one answer "
                f"to {count} calls"
            )
        return rules

    def _certainties(self, merged: Mapping[str, _Array]) -> _Array:
        """How certainly each call is to be inlined, as log-odds."""
        said = log_odds(self._network, merged)
        certainties = said.clip(-MOST_CERTAIN, MOST_CERTAIN)
        if self._teacher is None:
            return certainties
        table = np.stack([merged[name] for name in self._names], axis=1)
        taught = self._teacher(table).mean(axis=0).clip(-MOST_CERTAIN, MOST_CERTAIN)
        return _NETWORKS_PART * certainties + np.where(np.abs(said) < _SAYS_NOTHING, taught, 0.0)


def _checked(episode: Episode, features: Sequence[str], folder: str) -> Episode:
    there = episode.observations.dtype.names or ()
    if missing := [name for name in features if name not in there]:
        raise DatasetError(
            folder,
            f"expected decisions with {', '.join(missing)}, which the model takes, found none",
        )
    return episode
