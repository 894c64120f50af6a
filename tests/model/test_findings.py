"""Graphs that once ended something: found by mutating, kept, and read again in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.model._model import lower_graph
from mlgo_gym.model._tflite_reader import read_tflite

FINDINGS = Path(__file__).parent / "findings"
MESSAGES = {
    "empty-and-vast": (
        "tensor 'Min/reduction_indices': expected at most 16777216 elements, "
        "found 20971568240675836453740294963200"
    ),
    # It was compiled, and wrote beyond its end: 78 floats where there was room for 78 truth values.
    "matmul-to-bool": (
        "operator 0 (BATCH_MATMUL) of tensor 'PartitionedCall:0': expected an output of type "
        "float32, found bool"
    ),
    "ends-tflite-no-subgraph": "expected 1 subgraph, found 0",
    "ends-tflite-rank-9": ("not a TFLite file: expected at most 8 entries in a vector, found 9"),
    "ends-tflite-split": "operator SPLIT of tensor 'PartitionedCall:0': not supported",
    "ends-tflite-strided-slice": (
        "operator 0 (STRIDED_SLICE) of tensor 'PartitionedCall:0': expected int64 as input "
        "'action_x:0', found float32"
    ),
}


def test_each_has_its_message() -> None:
    assert sorted(MESSAGES) == sorted(path.stem for path in FINDINGS.iterdir())


@pytest.mark.parametrize("name", MESSAGES)
def test_they_are_refused(name: str) -> None:
    path = FINDINGS / f"{name}.tflite"
    with pytest.raises(ModelError) as caught:
        lower_graph(read_tflite(path))
    assert str(caught.value) == f"model '{path}': {MESSAGES[name]}"
