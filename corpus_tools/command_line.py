"""The common part of commands: options in both spellings, their types, and errors in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from corpus_tools.children import receive_statuses
from corpus_tools.errors import CorpusToolsError
from corpus_tools.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["add_as_llvm", "add_option", "escaping_console", "run_command", "whole"]

_INTERRUPTED = 130
_NARROWEST = 20


def add_option(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an option in mlgo-utils' spelling, ``--input_type``, and in the usual, ``--input-type``.

    Args:
        parser: to add it to.
        name: in mlgo-utils' spelling, with its dashes.
        **settings: as `argparse.ArgumentParser.add_argument` takes them.
    """
    usual = "--" + name.removeprefix("--").replace("_", "-")
    parser.add_argument(*dict.fromkeys([name, usual]), **settings)


def add_as_llvm(parser: argparse.ArgumentParser, tool: str) -> None:
    """Add ``--as_llvm``, by which a command does what the tool of mlgo-utils does."""
    add_option(
        parser,
        "--as_llvm",
        action="store_true",
        help=f"do exactly as LLVM's {tool}: copy what is there, whatever it is, and exit with 0 "
        "where a corpus was written",
    )


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

    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) < _NARROWEST:
        settings.setdefault("width", 80)
    return Escaping(highlight=False, markup=False, emoji=False, **settings)


def run_command(program: str, run: Callable[[], int]) -> int:
    """Run a command; return its exit status, 1 where it raised an error of this package.

    Args:
        program: its name, for the message.
        run: the command.
    """
    receive_statuses()
    console = escaping_console(stderr=True)
    try:
        return run()
    except CorpusToolsError as error:
        console.print(f"{program}: error: {error}", style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print(f"{program}: interrupted", style="red", soft_wrap=True)
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1
