"""Files that are broken or hostile end in an error of ours, never in a crash."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.errors import ModelError
from mlgo_gym.model._model import lower_graph
from mlgo_gym.model._tflite_reader import MAX_FILE_BYTES, read_tflite
from tests.generated import examples
from tests.model.make_models import FOLDER

DENSE = (FOLDER / "dense.tflite").read_bytes()
SMALL = ("embedding", "candidates", "gather", "concatenation", "sum", "one_hot", "strided_slice",
         "fully_connected_narrow", "tile", "softmax", "argmax")  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "model '<bytes>': not a TFLite file: expected the identifier b'TFL3', found b''"),
        (
            b"ELF\x00ELF\x00",
            "model '<bytes>': not a TFLite file: expected the identifier b'TFL3', "
            "found b'ELF\\x00'",
        ),
        (
            b"\xff\xff\xff\xffTFL3",
            "model '<bytes>': not a TFLite file: expected a position below 8, found 4294967295",
        ),
        (
            bytes(MAX_FILE_BYTES + 1),
            f"model '<bytes>': expected at most {MAX_FILE_BYTES} bytes, found more",
        ),
    ],
)
def test_not_tflite(data: bytes, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_tflite(data)
    assert str(caught.value) == message


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_tflite(tmp_path / "absent.tflite")
    assert str(caught.value) == (
        f"model '{tmp_path}/absent.tflite': cannot be read: No such file or directory"
    )


def test_truncations() -> None:
    for length in range(0, len(DENSE) - 1, 7):
        _read_and_lower(DENSE[:length])


@pytest.mark.parametrize("name", SMALL)
def test_flipped_bytes(name: str) -> None:
    data = (FOLDER / f"{name}.tflite").read_bytes()
    source = random.Random(name)  # noqa: S311
    for position in range(0, len(data), max(1, len(data) // 400)):
        broken = bytearray(data)
        broken[position] ^= source.randrange(1, 256)
        _read_and_lower(bytes(broken))


@examples(300)
@given(st.binary(min_size=8, max_size=64), st.integers(0, len(DENSE)), st.sampled_from(SMALL))
def test_overwritten_bytes(noise: bytes, position: int, name: str) -> None:
    data = (FOLDER / f"{name}.tflite").read_bytes()
    position %= len(data)
    _read_and_lower((data[:position] + noise + data[position + len(noise) :])[: len(data)])


def _read_and_lower(data: bytes) -> None:
    try:
        lower_graph(read_tflite(data))
    except ModelError as error:
        assert str(error).startswith("model '<bytes>': ")


RUN_BROKEN = """
import json, random, sys
import numpy as np
from mlgo_gym.errors import InputError, ModelError
from mlgo_gym.model._model import compile_model
ran = 0
for path, seeds in json.loads(sys.argv[1]):
    data = open(path, "rb").read()
    for seed in range(seeds):
        source = random.Random(seed)
        broken = bytearray(data)
        for _ in range(source.randrange(1, 4)):
            broken[source.randrange(len(data))] ^= 1 << source.randrange(8)
        try:
            model = compile_model(bytes(broken), trusted=True)
        except InputError:
            continue
        shape = lambda port: np.ones(port.spec.shape, port.spec.dtype)
        with model.bind(list(map(shape, model.inputs)), list(map(shape, model.outputs))) as bound:
            for _ in range(2):
                bound.call()
        ran += 1
print(ran)
"""


@pytest.mark.e2e
def test_flipped_bits_run_without_a_crash() -> None:
    work = json.dumps([[str(FOLDER / f"{name}.tflite"), 40] for name in SMALL])
    done = subprocess.run(
        [sys.executable, "-c", RUN_BROKEN, work],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 60


def test_vectors_that_share_their_bytes_do_not_multiply() -> None:
    builder = flatbuffers.Builder(0)
    name = builder.CreateString("x" * 10_000)
    tensors = []
    for _ in range(100):
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(3, name, 0)
        tensors.append(builder.EndObject())
    subgraph = _table(builder, 5, {0: _vector(builder, tensors)})
    buffers = _vector(builder, [_table(builder, 3, {})])
    subgraphs = _vector(builder, [subgraph])
    builder.StartObject(8)
    builder.PrependUint32Slot(0, 3, 0)
    builder.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    builder.PrependUOffsetTRelativeSlot(4, buffers, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    with pytest.raises(ModelError) as caught:
        read_tflite(bytes(builder.Output()))
    assert re.fullmatch(
        "model '<bytes>': not a TFLite file: expected at most [0-9]+ bytes of vectors in all, "
        "found more",
        str(caught.value),
    )


def _table(builder: flatbuffers.Builder, fields: int, offsets: dict[int, int]) -> int:
    builder.StartObject(fields)
    for field, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(field, offset, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dynamic", "tensor 'action_x:0': expected a fixed shape, found [-1, 3]"),
        (
            "float16",
            "tensor 'action_x:0': expected a type out of float32, float64, int8, int16, int32, "
            "int64, uint8, uint16, uint32, uint64, bool, found float16",
        ),
        ("quantized", "tensor 'matmul1': expected no quantization, found some"),
        ("sin", "operator SIN of tensor 'PartitionedCall:0': not supported"),
        ("unique", "tensor 'PartitionedCall:0': expected a fixed shape, found [-1]"),
    ],
)
def test_what_tflite_has_and_native_code_has_not(name: str, message: str) -> None:
    path = FOLDER / "refused" / f"{name}.tflite"
    with pytest.raises(ModelError) as caught:
        read_tflite(path)
    assert str(caught.value) == f"model '{path}': {message}"
