"""Makes the models that the compiler driver is tested with, with TensorFlow and its converter.

``python tests/models/make_driver_models.py`` writes

- ``tests/models/default``: answers the inliner as LLVM's own heuristic would, which it is told;
- ``tests/models/never``: inlines nothing;
- ``tests/models/short``: inlines what has less than six instructions, by the vocabulary `ones`;
- ``tests/models/last_use``: inlines what is local and called once more, as is derived;
- ``tests/models/hot``: inlines what is hot by the module's counts;
- ``tests/models/unknown_feature``: the same, and needs a feature that no LLVM has;
- ``tests/models/lowest_density``: evicts the legal live range of the lowest ``use_def_density``;
- ``tests/models/forbidden``: evicts the first position that LLVM's mask rules out;
- ``tests/models/outside``: evicts what stands far behind the last position.

It needs tensorflow; the results are committed, so tests do not.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]


def write(
    folder: Path,
    advice: str,
    inputs: dict[str, Any],
    decide: Callable[..., Any],
    problem: str,
    **more: Any,
) -> None:
    module = tf.Module()
    module.action = tf.function(lambda **features: {advice: decide(**features)})
    signature = module.action.get_concrete_function(**inputs)
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures={"action": signature})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=["action"])
        graph = converter.convert()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.tflite").write_bytes(graph)
    (output,) = tf.lite.Interpreter(model_content=graph).get_output_details()
    tensor = {"name": output["name"].split(":")[0], "port": 0, "type": "int64_t", "shape": [1]}
    specs = [{"logging_name": advice, "tensor_spec": tensor}]
    (folder / "output_spec.json").write_text(json.dumps(specs, indent=2) + "\n")
    card = {"problem": problem, "llvm_version": "22.1.0", "features": sorted(inputs), **more}
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")


def number(name: str) -> Any:
    return tf.TensorSpec((1,), tf.int64, name=name)


def candidates(name: str, dtype: Any) -> Any:
    return tf.TensorSpec((1, 33), dtype, name=name)


def lowest_density(mask: Any, use_def_density: Any) -> Any:
    legal = tf.cast(mask, tf.float32)
    return tf.argmin(use_def_density * legal + 1e30 * (1.0 - legal), axis=-1)


def forbidden(mask: Any) -> Any:
    return tf.argmin(tf.cast(mask, tf.float32), axis=-1)


def outside(mask: Any) -> Any:
    """Taken for a position, it would be where ``max_stage`` is of a live range that is there."""
    return tf.argmax(tf.cast(mask, tf.float32), axis=-1) + 363


def last_use(callee_call_sites: Any, callee_is_local: Any) -> Any:
    return tf.cast(callee_call_sites == callee_is_local, tf.int64)


def make(target: Path) -> None:
    inliner = ("inlining_decision", "InliningForSize")
    for name, feature, answer in (
        ("default", "inlining_default", lambda inlining_default: tf.maximum(inlining_default, 0)),
        ("never", "callee_users", lambda callee_users: tf.minimum(tf.maximum(callee_users, 0), 0)),
        ("unknown_feature", "moon_phase", lambda moon_phase: tf.maximum(moon_phase, 0)),
    ):
        inputs = {feature: number(feature)}
        write(target / name, inliner[0], inputs, answer, inliner[1])
    size = {"callee_embedding": tf.TensorSpec((1,), tf.float32, name="callee_embedding")}
    write(
        target / "short",
        inliner[0],
        size,
        lambda callee_embedding: tf.cast(callee_embedding < 6.0, tf.int64),
        inliner[1],
        settings={"ir2vec": "ones"},
    )
    derived = {name: number(name) for name in ("callee_call_sites", "callee_is_local")}
    write(target / "last_use", inliner[0], derived, last_use, inliner[1])
    hot = {"call_is_hot": number("call_is_hot")}
    write(
        target / "hot", inliner[0], hot, lambda call_is_hot: tf.maximum(call_is_hot, 0), inliner[1]
    )
    eviction = ("index_to_evict", "RegallocEviction")
    inputs = {"mask": candidates("mask", tf.int64)}
    write(target / "forbidden", eviction[0], inputs, forbidden, eviction[1])
    write(target / "outside", eviction[0], inputs, outside, eviction[1])
    inputs["use_def_density"] = candidates("use_def_density", tf.float32)
    write(target / "lowest_density", eviction[0], inputs, lowest_density, eviction[1])


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
