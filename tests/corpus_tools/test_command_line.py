"""How commands end: with a status and one line."""

from __future__ import annotations

import io
import os
import signal
from contextlib import redirect_stderr
from typing import Any

import pytest

from corpus_tools.command_line import Interruption, run_command
from corpus_tools.errors import ToolchainError


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ToolchainError("no [b]clang"), 1, "mlgo-x: error: no [b]clang\n"),
        (KeyboardInterrupt(), 130, "mlgo-x: interrupted\n"),
        (OSError(28, "Full"), 1, "mlgo-x: error: standard output: Full\n"),
        (OSError(28, "Full", "a"), 1, "mlgo-x: error: a: Full\n"),
    ],
)
def test_errors_end_a_command(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        raise error

    assert run_command("mlgo-x", run) == status
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_as_an_interrupt_does(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second one of the same end changes nothing, and the handlers are there for as long."""
    cleared = []

    def run() -> int:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleared.append(True)
        return 0

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
    try:
        assert run_command("mlgo-x", run) == 128 + number
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capsys.readouterr() == ("", f"mlgo-x: ended by {number.name}\n")
    assert cleared == [True]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_second_interrupt_does_not_disturb_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    cleared = []

    def run() -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleared.append(True)
        return 0

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run_command("mlgo-x", run) == 130
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "mlgo-x: interrupted\n")
    assert cleared == [True]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_other_handlers_of_signals_stay(handler: Any) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == handler
        assert (interruption.status, interruption.message) == (130, "interrupted")
    finally:
        signal.signal(signal.SIGHUP, before)


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
