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

import numpy as np

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import DatasetError, ModelError, OptionsError, TrainingError
from mlgo_gym.datasets import Episode, Source, episodes_of_report
from mlgo_gym.lab.tuning._rule import (
    KNOWN,
    LEAST_LINES,
    Rule,
    cpp_text,
    line_count,
    python_text,
)
from mlgo_gym.lab.tuning._rule_fit import Calls, fit_rules
from mlgo_gym.lab.tuning._rule_network import RuleNetwork
from mlgo_gym.llvm import llvm_version
from mlgo_gym.model import find_description, read_card
from mlgo_gym.problems import InliningForSize
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

_MOST_OF_A_MODULE: Final = 2000
_MOST_CALLS: Final = 100_000
_SAYS_NOTHING: Final = 15.0
"""From here on the network answers by the cost alone, beyond its band."""
_NETWORKS_PART: Final = 0.5
"""The network's weight beside labels."""
_NETWORK: Final = "network"


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
    """Write the model directory of a rule, with the rule as Python and as C++.

    Raises:
        ModelError: the model is not one whose network is there, or of another LLVM.
        TrainingError: no decision was recorded, or no rule tells the model's answers apart.
    """
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
