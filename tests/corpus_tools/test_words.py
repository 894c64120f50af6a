"""Words of a command: those of the standard library, in time that grows with their length."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_tools.extraction.inputs import split_words


@given(st.text("ab \t\r\n\v'\"\\#$é\0"))
def test_words_are_those_of_shlex(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        with pytest.raises(ValueError, match="^No (closing quotation|escaped character)$"):
            split_words(text)
    else:
        assert split_words(text) == expected


@pytest.mark.parametrize("unit", ["x", "\\x", "'x'", '"\\""', '"x\\a"'])
def test_a_long_word(unit: str) -> None:
    """With `shlex`, this took minutes."""
    assert len(split_words(unit * (1 << 19))) == 1
