"""The common part of commands: options in both spellings, their types, and errors in one line."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from corpus_tools.children import receive_statuses
from corpus_tools.errors import CorpusToolsError
from corpus_tools.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

_AGAIN_S = 5.0
"""Until then a further signal is taken for one of the same end, as of a terminal and its shell."""

_NARROWEST = 20
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


def add_option(
    parser: argparse.ArgumentParser, name: str, metavar: str | None, about: str, **settings: Any
) -> None:
    """Add an option in mlgo-utils' spelling, ``--input_type``, and in the usual, ``--input-type``.

    Args:
        parser: to add it to.
        name: in mlgo-utils' spelling, with its dashes.
        metavar: what its value is called in the help.
        about: its help.
        **settings: as `argparse.ArgumentParser.add_argument` takes them.
    """
    names = dict.fromkeys([name, "--" + name.removeprefix("--").replace("_", "-")])
    settings |= {"metavar": metavar} if metavar else {}
    parser.add_argument(*names, help=about, **settings)


def add_as_llvm(parser: argparse.ArgumentParser, tool: str) -> None:
    """Add ``--as_llvm``, by which a command does what the tool of mlgo-utils does."""
    about = (
        f"do exactly as LLVM's {tool}: copy what is there, whatever it is, and exit with 0 where a "
        "corpus was written"
    )
    add_option(parser, "--as_llvm", None, about, action="store_true")


def whole(least: int) -> Callable[[str], int]:
    """An argparse type: whole numbers of at least this much."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, found {text!r}"
            )
        return int(text)

    return parse


def escaping_console(**settings: Any) -> Console:
    """A console that shows what a terminal would obey: names and messages may be anybody's.

    Where ``COLUMNS`` is no width that a table fits in (cron and containers have 0), it has 80.

    Args:
        **settings: as `rich.console.Console` takes them.
    """
    from rich.console import Console  # noqa: PLC0415 (slow to import, and seldom needed)
    from rich.segment import Segment  # noqa: PLC0415

    class Escaping(Console):
        def render(self, *args: Any, **kwargs: Any) -> Iterator[Segment]:
            for each in super().render(*args, **kwargs):
                is_text = each.control is None
                yield Segment(printable(each.text, "\n"), each.style) if is_text else each

        def on_broken_pipe(self) -> None:  # rich would end the process
            if isinstance(error := sys.exc_info()[1], BrokenPipeError):
                raise error

    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) < _NARROWEST:
        settings.setdefault("width", 80)
    return Escaping(highlight=False, markup=False, emoji=False, **settings)


class _Interrupt(KeyboardInterrupt):
    """One of a signal: after some of Ctrl-C, CPython ends by SIGINT, whatever the exit status."""


_Interrupt.__name__ = KeyboardInterrupt.__name__  # as messages of extensions have it


class Interruption:
    """While it is entered, SIGTERM and SIGHUP end the block as Ctrl-C does: `KeyboardInterrupt`.

    Batch systems and containers send SIGTERM, terminals that are closed SIGHUP; temporary folders
    and children then go as they do after Ctrl-C, which a second one does not disturb at once. A
    signal that the process ignores, as under nohup, stays ignored, and so stays a handler of
    somebody else's.

    Args:
        is_last: whether the process ends after the block: once interrupted, it is to end in peace.
    """

    def __init__(self, *, is_last: bool = False) -> None:
        self._signal = signal.SIGINT
        self._time_s = -math.inf
        self._is_last = is_last
        self._handled: dict[signal.Signals, Any] = {}

    @property
    def status(self) -> int:
        """The exit status of a program that a signal has ended, as shells have it."""
        return 128 + self._signal

    @property
    def message(self) -> str:
        """Why the program ends."""
        is_key = self._signal == signal.SIGINT
        return "interrupted" if is_key else f"ended by {self._signal.name}"

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if (before := signal.getsignal(each)) in _USUAL:
                    signal.signal(each, self._interrupt)
                    self._handled[each] = before
        return self

    def __exit__(self, *_: object) -> None:
        is_over = self._is_last and self._time_s > -math.inf
        for each, before in self._handled.items():
            signal.signal(each, signal.SIG_IGN if is_over else before)

    def _interrupt(self, number: int, _: object) -> None:
        before, self._time_s = self._time_s, time.monotonic()
        if self._time_s > before + _AGAIN_S:
            self._signal = signal.Signals(number)
            raise _Interrupt


def run_command(program: str, run: Callable[[], int]) -> int:
    """Run a command; return its exit status, 1 where it raised an error of this package.

    Args:
        program: its name, for the message.
        run: the command.
    """
    receive_statuses()
    console = escaping_console(stderr=True)
    interruption = Interruption()
    with interruption:
        try:
            return run()
        except CorpusToolsError as error:
            console.print(f"{program}: error: {error}", style="red", soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            console.print(f"{program}: {interruption.message}", style="red", soft_wrap=True)
            return interruption.status
        except BrokenPipeError:  # whoever read the output has seen enough
            sys.stderr.close()
            return 1
        except OSError as error:
            where = error.filename or "standard output"
            text = f"{program}: error: {where}: {error.strerror or error}"
            console.print(text, style="red", soft_wrap=True)
            return 1
