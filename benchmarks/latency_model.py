"""The network that latency is measured with: 35 int64 inputs, 100-100-1, a decision.

``python -m benchmarks.latency_model FOLDER`` makes its SavedModel, TFLite graph and
``output_spec.json``; it needs tensorflow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

NAMES = tuple(f"feature_{index}" for index in range(35))
LAYERS = ((35, 100), (100, 100), (100, 1))


def make(folder: Path) -> None:
    random = np.random.default_rng(0)
    module = tf.Module()
    module.weights = [
        tf.Variable(random.normal(0, 0.1, shape).astype(np.float32)) for shape in LAYERS
    ]

    def action(**features: Any) -> dict[str, Any]:
        values = tf.stack([tf.cast(features[name], tf.float32) for name in NAMES], axis=-1)
        for weights in module.weights[:-1]:
            values = tf.nn.relu(values @ weights)
        logit = tf.reshape(values @ module.weights[-1], [1])
        return {"decision": tf.cast(logit > 0, tf.int64), "logit": logit}

    specs = {name: tf.TensorSpec((1,), tf.int64, name=name) for name in NAMES}
    signature = tf.function(action).get_concrete_function(**specs)
    tf.saved_model.save(module, folder, signatures={"action": signature})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=["action"])
    (folder / "model.tflite").write_bytes(converter.convert())
    outputs = [
        {
            "logging_name": name,
            "tensor_spec": {
                "name": "StatefulPartitionedCall",
                "port": port,
                "type": kind,
                "shape": [1],
            },
        }
        for port, (name, kind) in enumerate((("decision", "int64_t"), ("logit", "float")))
    ]
    (folder / "output_spec.json").write_text(json.dumps(outputs))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
