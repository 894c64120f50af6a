"""LLVM's list of its own options, and what happens where there is none to be had."""

from __future__ import annotations

import sys

import pytest

from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.llvm.command._own_options import known_llvm_options, parse_option_list


def test_the_embedded_llvm_lists_its_options() -> None:
    known = known_llvm_options()
    assert len(known) > 2000
    assert "default" in known["enable-ml-inliner"].split("|")
    assert "function-sections" not in known  # llc's, which llvmlite does not have
    assert "pass-remarks-output" not in known  # a file


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", {}),
        ("OPTIONS:\n\nGeneral options:\n", {}),
        ("  --a=<string> - A\n  --b=<filename> - B\n", {}),
        ("  --a=<value> - A\n    =x.y - X\n    =z - Z\n", {"a": r"x\.y|z"}),
        ("  -a=<value> - A\n  --b=<value> - B\n    =x - X\n", {"b": "x"}),
    ],
)
def test_what_is_read_of_a_list(text: str, known: dict[str, str]) -> None:
    assert parse_option_list(text) == known


def test_python_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EnvironmentSetupError) as caught:
        known_llvm_options.__wrapped__()
    assert str(caught.value) == (
        "LLVM's options: cannot be listed: [Errno 2] No such file or directory: '/nowhere/python'"
    )


def test_llvm_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(EnvironmentSetupError) as caught:
        known_llvm_options.__wrapped__()
    assert str(caught.value) == (
        "LLVM's options: expected a list, found none: ModuleNotFoundError: No module named "
        "'mlgo_gym'"
    )
