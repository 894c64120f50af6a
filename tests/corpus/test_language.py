"""The language of a module, by what its command line and its name say."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import OTHER_LANGUAGE, Corpus, Module, language_of


@pytest.mark.parametrize(
    ("name", "command", "language"),
    [
        ("a.c", None, "C"),
        ("src/a.cc", (), "C++"),
        ("a.c", ("-cc1", "-x", "c++"), "C++"),  # clang -x c++ a.c
        ("a.cpp", ("-cc1", "-x", "ir"), "C++"),
        ("a.o", ("-cc1", "-main-file-name", "a.cxx"), "C++"),
        ("a.o", ("-cc1", "-main-file-name", "a.c", "-x", "c"), "C"),
        ("a.rs", ("-cc1", "-main-file-name", "a.rs"), OTHER_LANGUAGE),
        ("a.o", ("-cc1", "-main-file-name"), OTHER_LANGUAGE),
        ("a.o", None, OTHER_LANGUAGE),
    ],
)
def test_language(name: str, command: tuple[str, ...] | None, language: str) -> None:
    assert language_of(Module(name, b"", command)) == language


def test_the_sample(sample: Corpus) -> None:
    for name in sample:
        assert language_of(sample[name]) == ("C" if name.endswith(".c") else "C++")
