"""``mlgo-gym dataset``: decisions in Parquet files, from rollouts, training logs and traces."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from mlgo_gym.cli._options import (
    add_opt_level_option,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    add_setting_options,
    add_worker_options,
)
from mlgo_gym.cli.show._output import Output, add_json_option
from mlgo_gym.model._shipped import find_model
from mlgo_gym.runners._load import MODES


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own subcommands."""
    parser = commands.add_parser(
        "dataset",
        help="record decisions for training, and read or write training logs",
        description="Datasets are folders of Parquet files with a row for each decision; "
        "docs/datasets.md has the columns.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_record(actions)
    _add_info(actions)
    _add_import(actions)
    _add_export(actions)


def _add_record(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "record",
        help="roll a policy out and record its decisions",
        description="Compile every module under a policy and under LLVM's default, and write the "
        "decisions with their rewards. Started again, it goes on with the modules that are left.",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        metavar="DIR",
        help="the corpus of a package, once for each (default: the sample in this package)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="the dataset's folder"
    )
    add_problem_option(parser)
    add_policy_option(parser)
    parser.add_argument(
        "--model", type=find_model, metavar="DIR", help="a model that answers, as in 'rollout'"
    )
    parser.add_argument(
        "--mode", choices=MODES, default="release", help="how the model runs (default: release)"
    )
    add_seed_option(parser)
    add_opt_level_option(parser)
    add_setting_options(parser)
    add_worker_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=_later("record"))


def _add_info(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "info",
        help="say what is in datasets, and whether they go together",
        description="Read the metadata of datasets. The exit status is 1 where they were made "
        "with different versions of LLVM or different options.",
    )
    _add_datasets(parser)
    add_json_option(parser)
    parser.set_defaults(run=_later("info"))


def _add_import(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "import",
        help="read training logs and traces into a dataset",
        description="Read LLVM's training logs, and traces with observations. A file that cannot "
        "be used, or is one of another LLVM, is reported and left out.",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a log or a trace")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="the dataset's folder"
    )
    parser.add_argument("--package", default="", metavar="NAME", help="the corpus that they are of")
    parser.add_argument(
        "--llvm-version",
        metavar="VERSION",
        help="the LLVM that wrote the training logs, such as 22.1.0; they do not say it",
    )
    add_json_option(parser)
    parser.set_defaults(run=_later("import_"))


def _add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "export",
        help="write datasets as a training log or as TFRecord",
        description="Write all decisions, in their order, as LLVM's training log, or as the "
        "SequenceExamples that google/ml-compiler-opt trains from.",
    )
    _add_datasets(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--log", type=Path, metavar="FILE", help="write a training log")
    target.add_argument("--tfrecord", type=Path, metavar="FILE", help="write a TFRecord file")
    parser.add_argument(
        "--missing-reward",
        type=_finite,
        metavar="NUMBER",
        help="for TFRecord: stands in for rewards that are not known",
    )
    parser.add_argument(
        "--allow-mixed",
        action="store_true",
        help="take different versions of LLVM and different options together",
    )
    add_json_option(parser)
    parser.set_defaults(run=_later("export"))


def _add_datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("datasets", type=Path, nargs="+", metavar="DIR", help="a dataset")


def _later(name: str) -> Callable[[argparse.Namespace, Output], int]:
    """An action, imported when it runs: it needs an extra."""

    def run(options: argparse.Namespace, output: Output) -> int:
        from mlgo_gym.cli import _dataset_actions as dataset_actions  # noqa: PLC0415 - needs an extra

        return int(getattr(dataset_actions, name)(options, output))

    return run


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}")
    return value
