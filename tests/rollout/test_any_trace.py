"""Any trace: its file is what the format says, and gives it back."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.rollout._trace import Trace
from tests.generated import examples

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
SPECS = st.builds(
    TensorSpec,
    TEXTS.filter(bool),
    st.sampled_from(["float", "double", "int8_t", "uint16_t", "int32_t", "int64_t", "uint64_t"]),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    port=st.integers(0, 9),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
WIDTHS = {"float": 4, "double": 8, "int8_t": 1, "uint16_t": 2, "int32_t": 4, "int64_t": 8,
          "uint64_t": 8}  # fmt: skip


def width(spec: TensorSpec) -> int:
    size = WIDTHS[spec.type]
    for each in spec.shape:
        size *= each
    return size


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """With observations or without, of tensors of all types."""
    advice, decisions = draw(SPECS), draw(st.integers(0, 4))
    features = tuple(draw(st.lists(SPECS, max_size=3)))

    def raw(size: int) -> bytes:
        return draw(st.binary(min_size=size, max_size=size))

    return Trace(
        module=draw(TEXTS),
        module_sha256=draw(HASHES),
        settings=draw(st.dictionaries(TEXTS, VALUES, max_size=4)),
        llvm_version=draw(TEXTS),
        advice_spec=advice,
        advice=raw(decisions * width(advice)),
        object_sha256=draw(HASHES),
        text_size_bytes=draw(st.integers(0, 1 << 30)),
        features=features,
        observations=raw(decisions * sum(map(width, features))),
    )


def by_hand(data: bytes) -> tuple[dict[str, Any], bytes]:
    """A file's header and its tensors, read as the format is documented."""
    line, _, rest = data.partition(b"\n")
    header = json.loads(line)
    body, digest = rest[: header["body_bytes"]], rest[header["body_bytes"] :]
    assert hashlib.sha256(line + b"\n" + body).digest() == digest
    return header, zlib.decompress(body)


@examples(50)
@given(traces())
def test_any_trace_comes_back(trace: Trace) -> None:
    data = trace.to_bytes()
    header, tensors = by_hand(data)
    assert tensors == trace.advice + trace.observations
    assert header.pop("body_bytes") > 0
    assert header == {
        "trace": 1,
        "module": trace.module,
        "module_sha256": trace.module_sha256,
        "settings": trace.settings,
        "llvm_version": trace.llvm_version,
        "byte_order": sys.byteorder,
        "advice": spelled(trace.advice_spec),
        "features": [spelled(each) for each in trace.features],
        "decisions": len(trace.advice) // width(trace.advice_spec),
        "object_sha256": trace.object_sha256,
        "text_size_bytes": trace.text_size_bytes,
        "sites_bytes": 0,
    }
    assert Trace.from_bytes(data) == trace
    size = sum(map(width, trace.features))
    parts = [trace.observation(number) for number in range(trace.decisions)]
    whole = [trace.observations[start * size : (start + 1) * size] for start in range(len(parts))]
    assert parts == (whole if trace.features else [None] * len(parts))
    assert trace.actions().tobytes() == trace.advice


def spelled(spec: TensorSpec) -> dict[str, Any]:
    shape = list(spec.shape)
    return {"name": spec.name, "type": spec.type, "port": spec.port, "shape": shape}
