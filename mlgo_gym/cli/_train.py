"""``mlgo-gym train``: from corpora to a model directory."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from mlgo_gym.cli._options import (
    add_budget_option,
    add_corpus_options,
    add_output_option,
    add_problem_option,
    add_seed_option,
    add_setting_options,
    add_worker_options,
    packages_of,
    problem_of,
)
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import hold_out
from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.problems._problem import Problem

TRAINERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clone": "imitate LLVM's default, or a named policy",
        "imitate": "imitate the best traces that 'search' has found",
        "advantage": "learn which single answers save bytes (inliner)",
        "group": "policy gradient on allocations of one function, compared (eviction)",
    }
)
"""The trainers, and what each does."""

DESCRIPTION = (
    "Train a policy and write a model directory. Started again with the same "
    "folder, it goes on where it was. Trainers: "
    + "; ".join(f"{name}: {what}" for name, what in TRAINERS.items())
    + "."
)
EXAMPLE = "mlgo-gym train advantage --corpus corpora --output run --budget 30m"

_TENSORFLOW_SETTINGS: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""TensorFlow greets nobody, and its sums do not depend on the machine's load."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trainer", choices=tuple(TRAINERS), help="how it is trained")
    add_corpus_options(parser)
    parser.add_argument(
        "--hold-out",
        action="append",
        default=[],
        metavar="NAME",
        help="a package to choose the model on, not to train on; repeat for more (default: every "
        "fourth module)",
    )
    add_output_option(parser, "the run's folder")
    add_budget_option(parser, "for all runs in the folder together")
    add_problem_option(parser, of_model=False)
    add_seed_option(parser, "everything random")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the trainer, the value as JSON, such as 'rounds=2' or "
        "'fit.epochs=10'; repeat for more",
    )
    add_setting_options(parser)
    add_worker_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    request = TrainingRequest(
        trainer=options.trainer,
        problem=problem_of(options),
        output=options.output,
        settings=tuple(options.set),
        seed=options.seed,
        budget_s=options.budget,
        jobs=options.jobs,
        timeout_s=options.timeout,
    )
    packages, held_out = hold_out(packages_of(options), options.hold_out)
    trained = train_model(request, packages, held_out, output)
    output.print(f"Model: {trained.model}", *_summary(trained.validation))
    output.json(
        {
            "model": str(trained.model),
            "spent_s": round(trained.spent_s, 1),
            "validation": trained.validation,
            "left_out": list(trained.left_out),
        }
    )
    return 0


@dataclass(frozen=True)
class TrainingRequest:
    """What a training run is asked for.

    Attributes:
        trainer: the name of one of `TRAINERS`.
        problem: what is trained.
        output: the run's folder.
        settings: texts such as ``fit.epochs=10``, as `configured` takes them.
        seed: of everything random.
        budget_s: for all runs in the folder together, in seconds; ``None`` is no limit.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.
    """

    trainer: str
    problem: Problem
    output: Path
    settings: tuple[str, ...] = ()
    seed: int = 0
    budget_s: float | None = None
    jobs: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Trained:
    """What came of a training run.

    Attributes:
        model: the model directory.
        validation: what it is worth on the modules that were held out, as JSON values.
        spent_s: how long all runs in the folder took, in seconds.
        left_out: why modules were left out.
    """

    model: Path
    validation: Mapping[str, Any]
    spent_s: float
    left_out: tuple[str, ...]


def train_model(
    request: TrainingRequest,
    packages: Mapping[str, Corpus],
    held_out: Mapping[str, Corpus],
    output: Output,
) -> Trained:
    """Train, or go on with a run, behind a line of progress.

    Args:
        request: what is asked for.
        packages: corpora to train on, by the names of their packages.
        held_out: corpora to choose the model on.
        output: where warnings and progress go.

    Raises:
        EnvironmentSetupError: the extra ``train`` is not installed.
        OptionsError: a setting cannot be.
        TrainingError: the folder holds another run, or there is nothing to train on.
    """
    trainer = _imported(request.trainer)
    config = configured(trainer.Config(seed=request.seed), list(request.settings))
    data_module, run_module = _imported("data"), _imported("run")
    failures: dict[str, None] = {}

    def warn(message: str) -> None:
        if message not in failures:
            failures[message] = None
            output.warn(f"{message}; left out")

    data = data_module.Data(packages, held_out, request.jobs, request.timeout_s, warn)
    provenance = {
        "command": shlex.join(["mlgo-gym", *sys.argv[1:]]),
        "trained_on": data_module.describe(packages),
        "validated_on": data_module.describe(held_out),
    }
    with (
        output.training() as line,
        run_module.TrainingRun(
            request.output,
            request.trainer,
            request.problem,
            config,
            budget_s=request.budget_s,
            report=line.report,
            doing=line.doing,
            provenance=provenance,
        ) as run,
    ):
        found = trainer.train(run, config, data)
        return Trained(run.model, found.to_json(), run.spent_s, tuple(failures))


def configured(config: Any, settings: list[str]) -> Any:
    """A configuration with some of its fields set.

    Args:
        config: a dataclass, maybe of dataclasses.
        settings: texts such as ``fit.epochs=10``; the value is JSON.

    Raises:
        OptionsError: a text has another form, there is no such field, or its value is of another
            type.
    """
    for setting in settings:
        name, found, text = setting.partition("=")
        try:
            value = json.loads(text) if found else None
        except ValueError:
            value = text
        if not found:
            raise OptionsError(f"--set: expected NAME=VALUE, found {setting!r}")
        config = _with(config, name.split("."), value, name)
    return config


def _with(config: Any, path: list[str], value: Any, name: str) -> Any:
    known = {field.name: getattr(config, field.name) for field in fields(config)}
    if path[0] not in known:
        raise OptionsError(f"--set {name}: expected one of {', '.join(known)}, found {path[0]!r}")
    current = known[path[0]]
    if is_dataclass(current) and len(path) > 1:
        return replace(config, **{path[0]: _with(current, path[1:], value, name)})
    if isinstance(current, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if len(path) > 1 or (current is not None and type(value) is not type(current)):
        expected = type(current).__name__
        raise OptionsError(f"--set {name}: expected a value of type {expected}, found {value!r}")
    return replace(config, **{path[0]: value})


def _imported(name: str) -> ModuleType:
    """A module of `mlgo_gym.training`, which needs the extra ``train``."""
    for variable, value in _TENSORFLOW_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(f"mlgo_gym.training._{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mlgo_gym"):
            raise
        raise EnvironmentSetupError(
            f"train: expected the package {error.name!r}, found none; "
            "pip install 'mlgo-gym[train]' brings it"
        ) from error


def _summary(found: Mapping[str, Any]) -> list[str]:
    """What the model is worth, for people."""
    changes = {key: value for key, value in found.items() if isinstance(value, float)}
    lines = [f"  {key.replace('_', ' ')}: {value:+.2%}" for key, value in changes.items()]
    return [
        f"On {found['modules']} held-out modules, against LLVM's own heuristic:",
        *lines,
        f"  modules worse by more than 1 %: {found['worse_modules']}",
    ]
