"""``mlgo-gym dataset export``: datasets as a training log, as TFRecord, or for Minari."""

from __future__ import annotations

import argparse
import math

from mlgo_gym.cli import options as shared
from mlgo_gym.cli._values import place
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show._output import Output

DESCRIPTION = (
    "Write all decisions, in their order, as LLVM's training log, as the SequenceExamples that "
    "google/ml-compiler-opt trains from, or as a dataset for Minari."
)
EXAMPLE = "mlgo-gym dataset export sets/default --log default.log"


def add_options(add: shared.Options) -> None:
    add("datasets", "DIR", "a dataset, also as s3://BUCKET/KEY", nargs="+", type=place)
    add_target = add.either()
    add_target.file("--log", "write a training log")
    add_target.file("--tfrecord", "write a TFRecord file")
    add_target("--minari", "ID", "write a dataset for Minari, such as inlining/random-v0")
    what = "for TFRecord: the number for unknown rewards"
    add("--missing-reward", "NUMBER", what, type=_finite)
    add("--allow-mixed", "", "allow different versions of LLVM and different options")


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.datasets import Dataset

    dataset = Dataset.open(*options.datasets, allow_mixed=options.allow_mixed)
    if options.log is not None:
        from mlgo_gym.datasets import export_log

        with writing(options.log) as file:
            count = export_log(dataset, file)
        text = f"{count:,} decisions in {options.log}"
        value = {"log": str(options.log), "decisions": count}
    elif options.minari is not None:
        from mlgo_gym.datasets import export_minari
        from mlgo_gym.envs import register_envs

        register_envs()  # which programs that make none do without
        count = export_minari(dataset, options.minari)
        text = f"{count:,} decisions in Minari's {options.minari}"
        value = {"minari": options.minari, "decisions": count}
    else:
        from mlgo_gym.datasets import export_tfrecord

        count = export_tfrecord(dataset, options.tfrecord, missing_reward=options.missing_reward)
        text = f"{count:,} trajectories in {options.tfrecord}"
        value = {"tfrecord": str(options.tfrecord), "trajectories": count}
    output.print(text)
    output.json(value)
    return 0


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}")
    return value
