"""TFRecord files of ``tf.train.SequenceExample``, as google/ml-compiler-opt reads them.

Its reader (``compiler_opt/rl/data_reader.py``) takes a record for each trajectory, and in it a
feature list for each of LLVM's features, for the action under the advice's name, and for the
``reward``: the trajectory's at every step, as ``compilation_runner.py`` puts it there. A step of an
integer tensor is an ``int64_list``, of a float tensor a ``float_list``. Trajectories of one or two
steps are written; its reader leaves them out.

Its PPO also wants the logits of the policy that acted, which a dataset does not have: this is data
for behavioural cloning. Needs TensorFlow, of the extra ``train``.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.base import DatasetError, EnvironmentSetupError
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode
from mlgo_gym.datasets._parts import staged

_Array = np.ndarray[Any, Any]

_QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Settings under which TensorFlow prints no greeting."""


def export_tfrecord(
    dataset: Dataset, path: str | Path, *, missing_reward: float | None = None
) -> int:
    """Write a dataset as a TFRecord file, a record for each episode; returns how many.

    An episode whose reward is not known is an error, unless something stands in for it; behavioural
    cloning does not look at it.
    """
    tf = _tensorflow()
    count = 0
    with staged(Path(path)) as file:
        try:
            with tf.io.TFRecordWriter(file.name) as writer:
                for episode in dataset.episodes():
                    example = sequence_example(episode, missing_reward=missing_reward)
                    writer.write(example.SerializeToString(deterministic=True))
                    count += 1
        except tf.errors.OpError as error:
            raise DatasetError(str(path), f"cannot be written: {error.message}") from error
    return count


def sequence_example(episode: Episode, *, missing_reward: float | None = None) -> Any:
    """The ``tf.train.SequenceExample`` of an episode."""
    train = _tensorflow().train
    reward = episode.reward
    if math.isnan(reward) and missing_reward is not None:
        reward = missing_reward
    if math.isnan(reward):
        where = episode.context or episode.source.module
        raise DatasetError(
            episode.source.package,
            f"episode {where!r}: expected a reward, found none; missing_reward stands in for it",
        )
    arrays = {name: episode.observations[name] for name in episode.observations.dtype.names or ()}
    arrays[episode.layout.advice.name] = episode.actions
    arrays["reward"] = np.full(len(episode), reward, np.float32)
    lists = {name: _feature_list(train, array) for name, array in arrays.items()}
    return train.SequenceExample(feature_lists=train.FeatureLists(feature_list=lists))


def _feature_list(train: Any, array: _Array) -> Any:
    steps = array.reshape(len(array), -1).tolist()
    if array.dtype.kind == "f":
        features = [train.Feature(float_list=train.FloatList(value=step)) for step in steps]
    else:
        features = [train.Feature(int64_list=train.Int64List(value=step)) for step in steps]
    return train.FeatureList(feature=features)


def _tensorflow() -> Any:
    for name, setting in _QUIET.items():
        os.environ.setdefault(name, setting)
    try:
        import tensorflow as tf  # noqa: PLC0415 - it takes seconds, and nothing else here needs it
    except ImportError as error:
        raise EnvironmentSetupError(
            "TFRecord files: need TensorFlow; run: pip install 'mlgo-gym[train]'"
        ) from error
    return tf
