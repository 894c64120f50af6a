"""Frames between parent and worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.errors import InternalError
from mlgo_gym.llvm._request import FrameDecoder, encode_frame


@pytest.mark.e2e
@given(st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.binary())), st.data())
def test_pieces_of_any_size(
    frames: list[tuple[dict[str, int], bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder, found = FrameDecoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        decoder.feed(stream[:size])
        stream = stream[size:]
        while (frame := decoder.next_frame()) is not None:
            found.append(frame)
    assert found == frames


def test_lengths_are_bounded() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"\xff" * 8)
    with pytest.raises(InternalError) as caught:
        decoder.next_frame()
    message = "frame: expected at most 67108864 bytes of JSON, found 4294967295"
    assert str(caught.value) == message
