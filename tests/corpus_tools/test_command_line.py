"""How commands end: with a status and one line."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from corpus_tools.command_line import run_command
from corpus_tools.errors import ToolchainError


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ToolchainError("no [b]clang"), 1, "mlgo-x: error: no [b]clang\n"),
        (KeyboardInterrupt(), 130, "mlgo-x: interrupted\n"),
    ],
)
def test_errors_end_a_command(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        raise error

    assert run_command("mlgo-x", run) == status
    assert capsys.readouterr() == ("", said)


def test_a_status_is_passed_on() -> None:
    assert run_command("mlgo-x", lambda: 0) == 0
    assert run_command("mlgo-x", lambda: 3) == 3


def test_a_reader_that_has_seen_enough_is_told_nothing() -> None:
    """Standard error is closed, so that Python's own complaint at the end has nowhere to go."""

    def run() -> int:
        raise BrokenPipeError

    errors = io.StringIO()
    with redirect_stderr(errors):
        assert run_command("mlgo-x", run) == 1
    assert errors.closed
