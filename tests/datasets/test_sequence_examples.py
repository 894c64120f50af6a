"""TFRecord files: parsed as ml-compiler-opt's ``create_parser_fn`` parses them."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode
from mlgo_gym.datasets._sequence_examples import export_tfrecord, sequence_example
from mlgo_gym.errors import DatasetError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import problems
from tests.datasets.samples import episode, same, source, write

FILLS_THE_DISK = """
import resource, sys
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._sequence_examples import export_tfrecord
from mlgo_gym.errors import DatasetError
dataset = Dataset.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    export_tfrecord(dataset, sys.argv[2])
except DatasetError as error:
    print(error)
"""


def parsed(record: Any, problem: Problem) -> dict[str, np.ndarray[Any, Any]]:
    """What ml-compiler-opt makes of a record: every tensor as its specs have it."""
    specs = (*problem.layout.specs, problem.advice)
    features = {
        spec.name: tf.io.FixedLenSequenceFeature(shape=spec.shape[1:], dtype=spec.dtype.type)
        for spec in specs
    }
    features["reward"] = tf.io.FixedLenSequenceFeature(shape=(), dtype=tf.float32)
    context, tensors = tf.io.parse_single_sequence_example(
        record, context_features={}, sequence_features=features
    )
    assert context == {}
    return {name: tensor.numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", problems().values())
def test_the_reader_of_ml_compiler_opt_gets_what_was_recorded(
    kind: type[Problem], tmp_path: Path
) -> None:
    problem = kind()
    expected = [
        episode(source(number), size, seed=number, problem=problem)
        for number, size in enumerate((5, 1, 3))
    ]
    dataset = Dataset.open(write(tmp_path / "set", *expected, problem=problem))
    path = tmp_path / "out.tfrecord"
    assert export_tfrecord(dataset, path) == 3
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["out.tfrecord"]
    records = list(tf.data.TFRecordDataset(str(path)))
    assert len(records) == 3
    for record, each in zip(records, expected, strict=True):
        found = parsed(record, problem)
        for name in each.observations.dtype.names or ():
            np.testing.assert_array_equal(found[name], each.observations[name])
        np.testing.assert_array_equal(found[problem.advice.name], each.actions)
        assert found["reward"].tolist() == [0.25] * len(each)
        assert len(found) == len(problem.layout.specs) + 2


def test_rewards_that_are_not_known(tmp_path: Path) -> None:
    known = episode(source(1))
    unknown = dataclasses.replace(episode(source(2)), reward=math.nan)
    dataset = Dataset.open(write(tmp_path / "set", known, unknown))
    path = tmp_path / "out.tfrecord"
    with pytest.raises(DatasetError, match="episode 'm2.c': expected a reward, found none"):
        export_tfrecord(dataset, path)
    assert not path.exists()
    export_tfrecord(dataset, path, missing_reward=-1)
    rewards = [
        parsed(each, InliningForSize())["reward"] for each in tf.data.TFRecordDataset([path])
    ]
    assert [each[0] for each in rewards] == [0.25, -1]


def test_an_example_has_a_list_for_each_tensor() -> None:
    example = sequence_example(episode(source()))
    lists = example.feature_lists.feature_list
    assert {len(each.feature) for each in lists.values()} == {3}
    assert len(lists["inlining_decision"].feature[0].int64_list.value) == 1
    assert lists["reward"].feature[2].float_list.value[0] == 0.25
    assert not example.context.feature


@pytest.mark.e2e
def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "out.tfrecord"
    path.write_bytes(b"old")
    write(tmp_path / "set", episode(source(), 50))
    command = [sys.executable, "-c", FILLS_THE_DISK, str(tmp_path / "set"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"dataset {str(path)!r}: cannot be written: "), done.stderr
    assert done.stdout.endswith("File too large\n")
    assert path.read_bytes() == b"old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.tfrecord", "set"]


def test_what_is_there_and_no_file(tmp_path: Path) -> None:
    found: Episode = episode(source())
    dataset = Dataset.open(write(tmp_path / "set", found))
    assert all(map(same, dataset.episodes(), [found]))
    with pytest.raises(DatasetError) as caught:
        export_tfrecord(dataset, tmp_path / "set")
    assert str(caught.value) == (
        f"dataset {str(tmp_path / 'set')!r}: expected a file or nothing there, found something else"
    )
