"""Requests: the same on both ends, whatever they ask."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.errors import InternalError
from mlgo_gym.llvm._request import (
    CancelRequest,
    CompileRequest,
    DescribeRequest,
    NativeRequest,
    Request,
    SplitRequest,
    request_from_json,
    request_to_json,
)
from mlgo_gym.llvm._task import extract
from mlgo_gym.llvm.command._options import CompileOptions

TARGET = CompileOptions("Oz", unroll_loops=False, cpu="znver3").target()
CHOSEN = st.sampled_from([(), ("-inline-threshold=5",), ("-regalloc=basic", "-unroll-count=2")])
WORDS = st.lists(st.text(max_size=5), max_size=3).map(tuple)


@given(
    st.one_of(
        st.builds(CancelRequest),
        st.builds(DescribeRequest, st.booleans()),
        st.builds(NativeRequest, st.none() | st.text(), st.none() | st.text(), WORDS),
        st.builds(SplitRequest, st.booleans(), st.just(TARGET), st.integers(0), WORDS, CHOSEN),
        st.builds(
            CompileRequest,
            *(st.booleans(), st.booleans(), st.booleans()),
            target=st.just(TARGET),
            task=WORDS.map(extract),
            keep_object=st.booleans(),
            plain_options=WORDS,
            advisor_options=WORDS,
            llvm_options=CHOSEN,
        ),
    )
)
def test_there_and_back(request_: Request) -> None:
    assert request_from_json(json.loads(json.dumps(request_to_json(request_)))) == request_


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {},
            "request: expected one of compile, load, describe, symbols, localize, split, native, "
            "cancel, found {}",
        ),
        (
            {"op": "run"},
            "request: expected one of compile, load, describe, symbols, localize, split, native, "
            "cancel, found {'op': 'run'}",
        ),
        (
            {"op": "describe"},
            "request: DescribeRequest.__init__() missing 1 required positional argument: 'is_text'",
        ),
        (
            {"op": "split", "is_text": True, "minimum_instructions": 1, "target": {"level": "O2"}},
            "request: Target.__init__() got an unexpected keyword argument 'level'",
        ),
    ],
)
def test_what_is_no_request(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InternalError) as caught:
        request_from_json(value)
    assert str(caught.value) == message
