"""Makes ``tests/model/models``: small networks, through TensorFlow's own TFLite converter.

Run: ``python -m tests.model.make_models [FOLDER]`` with TensorFlow installed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

FOLDER: Final = Path(__file__).parent / "models"

Inputs = list[tuple[str, str, tuple[int | None, ...]]]
Networks = dict[str, tuple[Callable[..., Any], Inputs]]


def convert(compute: Callable[..., Any], inputs: Inputs, *, quantize: bool = False) -> bytes:
    """A function as a TFLite model, by way of a SavedModel with the signature ``action``."""
    import tensorflow as tf  # noqa: PLC0415 - tests run without it

    specs = [tf.TensorSpec(shape, dtype, name=name) for name, dtype, shape in inputs]
    module = tf.Module()
    module.action = tf.function(compute, input_signature=specs, autograph=False)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"action": module.action})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["action"])
        if quantize:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return bytes(converter.convert())


def networks() -> Networks:
    """Every network: what it computes, and its inputs."""
    return {**_policies(), **_elementwise(), **_arrays(), **_reductions()}


def _policies() -> Networks:
    import tensorflow as tf  # noqa: PLC0415

    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return tf.constant(random.normal(0, 1 / shape[0] ** 0.5, shape).astype("f4"))

    first, second, third = weights(9, 37), weights(37, 20), weights(20, 1)
    bias = weights(37)

    def dense(*features: Any) -> Any:
        x = tf.stack([tf.cast(each, tf.float32) for each in features], axis=-1)
        x = tf.nn.relu(tf.math.log(tf.abs(x) + 1.0) @ first + bias)
        logit = tf.tanh(x @ second) @ third
        return {
            "inlining_decision": tf.cast(tf.reshape(logit, [1]) > 0, tf.int64),
            "logit": logit,
        }

    table, head = weights(16, 8), weights(28, 5)

    def embedding(opcode: Any, level: Any, size: Any) -> Any:
        x = tf.concat(
            [
                tf.gather(table, opcode),
                tf.one_hot(level, 12),
                tf.gather(table, tf.clip_by_value(opcode + level, 0, 15)),
            ],
            axis=1,
        )
        scores = tf.nn.softmax(x @ head + tf.math.rsqrt(size + 1.0))
        return {"choice": tf.argmax(scores, axis=-1), "scores": scores}

    unary, score = weights(3, 24), weights(24, 1)

    def candidates(mask: Any, hints: Any, weight: Any, progress: Any) -> Any:
        x = tf.stack([tf.cast(hints, tf.float32), weight, tf.tile(progress, [33])[None]], axis=-1)
        x = tf.nn.relu(tf.tensordot(x, unary, 1))
        x = tf.squeeze(tf.tensordot(x, score, 1), -1)
        x = tf.where(mask > 0, x, tf.fill([1, 33], np.float32(-1e9)))
        return {"index_to_evict": tf.argmax(x, axis=1), "scores": x}

    return {
        "dense": (dense, [(f"f{number}", "int64", (1,)) for number in range(9)]),
        "embedding": (
            embedding,
            [("opcode", "int64", (1,)), ("level", "int64", (1,)), ("size", "float32", (1,))],
        ),
        "candidates": (
            candidates,
            [
                ("mask", "int64", (1, 33)),
                ("hints", "int64", (1, 33)),
                ("weight", "float32", (1, 33)),
                ("progress", "float32", (1,)),
            ],
        ),
    }


def _elementwise() -> Networks:
    import tensorflow as tf  # noqa: PLC0415

    floats: Inputs = [("x", "float32", (3, 19))]
    pair: Inputs = [("x", "float32", (3, 19)), ("y", "float32", (19,))]
    both = ("float32", "int32", "int64")
    made: Networks = {
        name: (function, floats)
        for name, function in {
            "relu": tf.nn.relu, "relu6": tf.nn.relu6, "tanh": tf.tanh, "logistic": tf.sigmoid,
            "abs": tf.abs, "neg": tf.negative, "sqrt": lambda x: tf.sqrt(tf.abs(x)),
            "rsqrt": lambda x: tf.math.rsqrt(tf.abs(x)), "log": lambda x: tf.math.log(tf.abs(x)),
            "sign": tf.sign, "exp": tf.exp, "floor": tf.floor, "ceil": tf.math.ceil,
            "square": tf.square, "leaky_relu": lambda x: tf.nn.leaky_relu(x, 0.3),
            "fused": lambda x: tf.nn.relu6(x + 1.5) - tf.nn.relu(2.0 * x),
            "relu_n1_to_1": lambda x: tf.minimum(tf.maximum(x, -1.0), 1.0),
        }.items()
    }  # fmt: skip
    for name, function in {
        "add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "maximum": tf.maximum,
        "minimum": tf.minimum, "less": tf.less, "less_equal": tf.less_equal,
        "greater": tf.greater, "greater_equal": tf.greater_equal, "equal": tf.equal,
        "not_equal": tf.not_equal, "squared_difference": tf.math.squared_difference,
    }.items():  # fmt: skip
        for dtype in both:
            if (name, dtype) == ("squared_difference", "int64"):
                continue
            made[f"{name}_{dtype}"] = (
                function,
                [("x", dtype, (2, 1, 5)), ("y", dtype, (3, 5))],
            )
    made["div"] = (tf.divide, pair)
    made["div_int32"] = (tf.truncatediv, [("x", "int32", (3, 5)), ("y", "int32", (5,))])
    made["logical"] = (
        lambda x, y: tf.logical_not(tf.logical_or(tf.logical_and(x > 0, y > 0), x > y)),
        pair,
    )
    made["select"] = (lambda x, y: tf.where(x > y, x, 2.0 * x), pair)
    made["select_scalar"] = (lambda x, y: tf.where(x[0, 0] > 0, x, y * 3.0), pair[:1] + pair[1:])
    for source in both:
        made[f"cast_{source}"] = (
            lambda x: {each: tf.cast(x, each) for each in ("float32", "int32", "int64", "bool")},
            [("x", source, (7,))],
        )
    made["cast_bool"] = (
        lambda x: {each: tf.cast(x > 0, each) for each in both},
        [("x", "float32", (7,))],
    )
    return made


def _arrays() -> Networks:
    import tensorflow as tf  # noqa: PLC0415

    x: Inputs = [("x", "float32", (2, 3, 4))]
    return {
        "concatenation": (
            lambda x, y: tf.concat([x, y, x], axis=1),
            [*x, ("y", "float32", (2, 5, 4))],
        ),
        "pack": (lambda x, y: tf.stack([x, y], axis=1), [*x, ("y", "float32", (2, 3, 4))]),
        "reshape": (lambda x: tf.reshape(x, [4, 6]) + 1.0, x),
        "transpose": (lambda x: tf.transpose(x, [2, 0, 1]), x),
        "slice": (lambda x: tf.slice(x, [1, 0, 1], [1, 2, -1]), x),
        "strided_slice": (
            lambda x: {
                "reversed": x[:, ::-2, 1:3],
                "shrunk": x[:, 1],
                "new": x[None, 1:, None, 2, -1],
            },
            x,
        ),
        "expand_dims": (lambda x: tf.expand_dims(x, 1) + tf.expand_dims(x, 2), x),
        "squeeze": (lambda x: tf.squeeze(x, [1]) * 2.0, [("x", "float32", (2, 1, 4))]),
        "tile": (lambda x: tf.tile(x, [2, 1, 3]), x),
        "broadcast_to": (lambda x: tf.broadcast_to(x, [5, 2, 3, 4]), [("x", "int64", (3, 1))]),
        "gather": (
            lambda x, at: tf.gather(x, at, axis=1),
            [*x, ("at", "int32", (2, 2))],
        ),
        "gather_int64": (
            lambda x, at: tf.gather(x, at, axis=0),
            [("x", "int64", (2, 3)), ("at", "int64", (4,))],
        ),
        "one_hot": (
            lambda at: tf.one_hot(at, 5, 2.0, -1.0, axis=1),
            [("at", "int32", (3, 2))],
        ),
        "bucketize": (
            lambda x, y: {
                "float": tf.raw_ops.Bucketize(input=x, boundaries=[-1.5, 0.0, 0.25, 3.0, 40.0]),
                "int": tf.raw_ops.Bucketize(input=y, boundaries=[-1.0, 0.0, 2.0, 100.0]),
            },
            [*x, ("y", "int64", (3, 2))],
        ),
        "one_hot_int64": (
            lambda at: tf.one_hot(at, 5, on_value=tf.constant(1, tf.int64), dtype=tf.int64),
            [("at", "int64", (3,))],
        ),
        "passthrough": (lambda x: {"same": tf.identity(x), "double": x * 2.0}, x),
    }


def _reductions() -> Networks:
    import tensorflow as tf  # noqa: PLC0415

    x: Inputs = [("x", "float32", (3, 4, 21))]
    random = np.random.default_rng(1)
    wide = tf.constant(random.normal(0, 0.1, (45, 131)).astype("f4"))
    made: Networks = {
        "fully_connected": (lambda x: tf.nn.relu(x @ wide), [("x", "float32", (4, 45))]),
        "fully_connected_3d": (lambda x: tf.tensordot(x, wide, 1), [("x", "float32", (2, 3, 45))]),
        "fully_connected_narrow": (lambda x: x @ wide[:, :3], [("x", "float32", (3, 45))]),
        "matmul": (
            lambda x, w: x @ w,
            [("x", "float32", (4, 45)), ("w", "float32", (45, 70))],
        ),
        "matmul_3d": (tf.matmul, [("x", "float32", (2, 3, 45)), ("w", "float32", (45, 13))]),
        "matmul_narrow": (tf.matmul, [("x", "float32", (1, 5, 45)), ("w", "float32", (45, 1))]),
        "matmul_given": (
            lambda x, w, b: tf.nn.relu(tf.reshape(tf.matmul(x, w, transpose_b=True), [2, 9]) + b),
            [("x", "float32", (2, 45)), ("w", "float32", (9, 45)), ("b", "float32", (9,))],
        ),
        "softmax": (lambda x: tf.nn.softmax(x, axis=-1), x),
        "argmax": (lambda x: tf.argmax(x, axis=1), x),
        "argmax_int32": (
            lambda x: tf.argmax(x, axis=-1, output_type=tf.int32),
            [("x", "int32", (4, 6))],
        ),
        "argmin": (lambda x: tf.argmin(x, axis=-1), x),
        "any": (lambda x: tf.reduce_any(x > 2.0, axis=2), x),
        "all": (lambda x: tf.reduce_all(x > -2.0, axis=[0, 2]), x),
    }
    for name, function in {
        "sum": tf.reduce_sum, "mean": tf.reduce_mean, "max": tf.reduce_max,
        "min": tf.reduce_min, "prod": tf.reduce_prod,
    }.items():  # fmt: skip
        made[name] = (_reduced(function, axis=[0, 2]), x)
        made[f"{name}_keep"] = (_reduced(function, axis=1, keepdims=True), x)
        made[f"{name}_scalar"] = (_reduced(function), x)
        if name != "mean":
            made[f"{name}_int32"] = (_reduced(function, axis=-1), [("x", "int32", (4, 3))])
        if name in {"sum", "max", "min"}:
            made[f"{name}_int64"] = (_reduced(function, axis=0), [("x", "int64", (4, 3))])
    return made


def _reduced(function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    return lambda x: function(x, **options)


def refused() -> dict[str, bytes]:
    """Models that TFLite runs and native code does not."""
    import tensorflow as tf  # noqa: PLC0415

    return {
        "dynamic": convert(lambda x: x * 2.0, [("x", "float32", (None, 3))]),
        "sin": convert(tf.sin, [("x", "float32", (3,))]),
        "float16": convert(lambda x: tf.cast(x, tf.float32), [("x", "float16", (3,))]),
        "unique": convert(lambda x: tf.unique(x)[0], [("x", "int32", (3,))]),
        "quantized": convert(
            lambda x: x @ tf.constant(np.linspace(-1, 1, 128 * 64, dtype="f4").reshape(128, 64)),
            [("x", "float32", (1, 128))],
            quantize=True,
        ),
    }


def main(folder: Path) -> None:
    """Write every network as a ``.tflite`` file."""
    folder.mkdir(exist_ok=True)
    for name, (compute, inputs) in networks().items():
        (folder / f"{name}.tflite").write_bytes(convert(compute, inputs))
    (folder / "refused").mkdir(exist_ok=True)
    for name, data in refused().items():
        (folder / "refused" / f"{name}.tflite").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
