"""Look-alikes of the released models of google/ml-compiler-opt, as TensorFlow saves them.

Their signatures, names and shapes are those of that repository: ``compiler_opt/rl/inlining`` and
``regalloc`` say what is observed, ``feature_ops.py`` how it is normalised, ``policy_saver.py`` what
stands in the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mlgo_gym.problems import InliningForSize, Problem, RegallocEviction

_BUCKETS = [0.0, 1.0, 2.0, 5.0, 9.0, 50.0, 400.0]
_UNSEEN = ("mask", "inlining_default")
_STEP = {"step_type": "int32", "reward": "float32", "discount": "float32"}


def saved_model(kind: type[Problem], folder: Path) -> Path:
    """Make one, in a process of its own: TensorFlow stays out of this one."""
    target = folder / kind.name
    command = [sys.executable, "-m", __name__, kind.name, str(target)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    return target


def _make(kind: type[Problem], folder: Path) -> None:
    import tensorflow as tf  # noqa: PLC0415 - see above

    seen = [each for each in kind().layout.specs if each.name not in _UNSEEN]
    width = max(each.element_count for each in seen)
    module = tf.Module()
    drawn = np.random.default_rng(3).normal(size=(4 * len(seen), 1))
    module.weights = tf.Variable(drawn.astype(np.float32))

    def normalized(values: Any) -> Any:
        values = tf.expand_dims(values, -1)
        buckets = tf.raw_ops.Bucketize(input=values, boundaries=_BUCKETS)
        share = tf.cast(buckets, tf.float32) / len(_BUCKETS)
        real = tf.minimum(tf.maximum(tf.cast(values, tf.float32), -1e6), 1e6)
        return tf.concat([share, share * share, tf.sqrt(share), (real - 10.0) / 40.0], axis=-1)

    def action(**given: Any) -> dict[str, Any]:
        columns = []
        for each in seen:
            rows = tf.reshape(normalized(given[each.name]), [each.element_count, 4])
            columns.append(tf.tile(rows, [width // each.element_count, 1]))
        scores = (tf.concat(columns, axis=-1) @ module.weights)[:, 0]
        if width == 1:
            decision = tf.cast(scores > tf.reduce_mean(module.weights), tf.int64)
        else:
            allowed = tf.cast(tf.reshape(given["mask"], [-1]), tf.float32)
            decision = tf.argmax(scores * allowed - 1e9 * (1 - allowed))[None]
        return {kind.advice.name: decision}

    signature = tf.function(action).get_concrete_function(
        **{name: tf.TensorSpec([1], dtype, name=name) for name, dtype in _STEP.items()},
        **{
            each.name: tf.TensorSpec(each.shape, each.dtype, each.name)
            for each in kind().layout.specs
        },
    )
    tf.saved_model.save(module, str(folder), signatures={"action": signature})
    tensor = {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    spec = [{"logging_name": kind.advice.name, "tensor_spec": tensor}]
    (folder / "output_spec.json").write_text(json.dumps(spec))


if __name__ == "__main__":
    _make(
        {each.name: each for each in (InliningForSize, RegallocEviction)}[sys.argv[1]],
        Path(sys.argv[2]),
    )
