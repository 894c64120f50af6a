"""``mlgo-gym train``: from corpora to a model directory."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages
from mlgo_gym.training import (
    Trained,
    Watcher,
    check_trainer_settings,
    described_trainers,
    train,
    trainer_names,
)


def _description() -> str:
    trainers = "; ".join(f"{name}: {what}" for name, what in described_trainers().items())
    return (
        "Train a policy and write a model directory. Started again with the same "
        f"folder, it continues. Trainers: {trainers}."
    )


DESCRIPTION = _description
EXAMPLE = "mlgo-gym train advantage --corpus corpora --output run --budget 30m"


def add_options(add: shared.Options) -> None:
    add("trainer", trainer_names(), "the method of training")
    add.corpus()
    what = "a package to choose the model on, not to train on; repeat for more (default: every "
    add("--hold-out", "NAME", what + "fourth module)", many=True)
    add.output("the run's folder", may_be_remote=True)
    add.budget("for all runs in the folder together")
    add.problem(of_model=False)
    add.reward("the problem's own measure", "prefer models that make")
    add.seed("everything random")
    what = "a setting of the trainer, the value as JSON, such as 'rounds=2' or 'fit.epochs=10'; "
    add("--set", "NAME=VALUE", what + "repeat for more", many=True)
    add.settings()
    add.workers(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    check_trainer_settings(options.trainer, options.set)
    trained = train_watched(
        options.trainer,
        shared.packages_of(options),
        options,
        output,
        output=options.output,
        hold_out_packages=options.hold_out,
        settings=options.set,
    )
    model = f"{options.output}/{trained.model.name}"
    output.verbatim(f"Model: {model}")
    output.print(*_summary(trained.validation))
    output.json(
        {
            "model": model,
            "spent_s": round(trained.spent_s, 1),
            "validation": trained.validation,
            "left_out": list(trained.left_out),
        }
    )
    return 0


def train_watched(
    trainer: str,
    packages: Packages,
    options: argparse.Namespace,
    shown: Output,
    **settings: Any,
) -> Trained:
    """Train as the options say, behind a line of progress."""
    with shown.line() as show:
        return train(
            trainer,
            packages,
            problem=shared.problem_of(options),
            budget_minutes=options.budget and options.budget / 60,
            seed=options.seed,
            reward=getattr(options, "reward", None),
            most_text=getattr(options, "most_text", None),
            watcher=Shown(show, shown),
            **shared.workers_of(options),
            **settings,
        )


class Shown(Watcher):
    """The display of a training run."""

    def __init__(self, show: Callable[[str], None], output: Output) -> None:
        self._show = show
        self._output = output
        self.doing("training")

    def doing(self, what: str) -> None:
        self._what = what
        self._show(what)

    def report(self, step: int, values: Mapping[str, float]) -> None:
        numbers = (f"{name.rpartition('/')[2]} {value:.4g}" for name, value in values.items())
        self._show("  ".join([f"{self._what} {step}:", *numbers]))

    def warn(self, message: str) -> None:
        self._output.warn(message)


def _summary(found: Mapping[str, Any]) -> list[str]:
    changes = {key: value for key, value in found.items() if isinstance(value, float)}
    lines = [f"  {key.replace('_', ' ')}: {value:+.2%}" for key, value in changes.items()]
    return [
        f"On {found['modules']} held-out modules, against LLVM's own heuristic:",
        *lines,
        f"  modules worse by more than 1 %: {found['worse_modules']}",
    ]
