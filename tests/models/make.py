"""Makes the models that tests use, with TensorFlow and its real TFLite converter.

``python tests/models/make.py`` writes ``tests/models/inliner``: a policy for the inliner with
LLVM's signature (``action``, inputs under the features' names), random weights, a decision and
logits. It needs tensorflow; the result is committed, so tests do not.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from mlgo_gym.problems._inlining_for_size import InliningForSize

LAYERS = (38, 16, 2)
SEED = 5  # with it, about half the answers on the sample corpus are to inline


def policy(seed: int) -> Any:
    random = np.random.default_rng(seed)
    module = tf.Module()
    module.weights = [
        tf.Variable(random.normal(0, 0.3, (rows, columns)).astype(np.float32))
        for rows, columns in itertools.pairwise(LAYERS)
    ]

    def action(**features: Any) -> dict[str, Any]:
        names = list(InliningForSize().layout.feature_names)
        values = tf.stack([tf.cast(features[name], tf.float32) for name in names], axis=-1)
        hidden = tf.sign(values) * tf.math.log(1 + tf.abs(values))
        logits = tf.nn.relu(hidden @ module.weights[0]) @ module.weights[1]
        decision = tf.argmax(logits, axis=-1, output_type=tf.int64)
        return {"inlining_decision": decision, "logits": logits}

    module.action = tf.function(action)
    return module


def make(folder: Path, seed: int) -> None:
    module = policy(seed)
    signature = module.action.get_concrete_function(
        **{
            each.spec.name: tf.TensorSpec((1,), tf.int64, name=each.spec.name)
            for each in InliningForSize().layout.features
        }
    )
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures={"action": signature})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=["action"])
        graph = converter.convert()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.tflite").write_bytes(graph)
    outputs = (("inlining_decision", 0, "int64_t", [1]), ("logits", 1, "float", [1, 2]))
    specs = [
        {
            "logging_name": name,
            "tensor_spec": {
                "name": "StatefulPartitionedCall",
                "port": port,
                "type": scalar_type,
                "shape": shape,
            },
        }
        for name, port, scalar_type, shape in outputs
    ]
    (folder / "output_spec.json").write_text(json.dumps(specs, indent=2) + "\n")
    card = {
        "problem": InliningForSize.name,
        "llvm_version": "22.1.0",
        "features": list(InliningForSize().layout.feature_names),
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    make(target / "inliner", SEED)
