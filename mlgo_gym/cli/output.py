"""What commands print: results on standard output, progress and errors on standard error.

Progress bars appear on a terminal only, and never with ``--json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Output", "add_json_option"]


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which every subcommand takes."""
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON, and nothing else"
    )


class Output:
    """Where a command's results, progress and errors go.

    Attributes:
        as_json: results are JSON and nothing else is printed on standard output.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = Console(highlight=False, soft_wrap=False)
        self._err = Console(stderr=True, highlight=False)

    def print(self, *parts: RenderableType) -> None:
        """Print for people: text or a table."""
        if not self.as_json:
            for part in parts:
                self._out.print(part)

    def json(self, value: Any) -> None:
        """Print for machines."""
        if self.as_json:
            self._out.file.write(json.dumps(value, indent=2) + "\n")

    def error(self, message: str) -> None:
        """Print an error."""
        self._err.print(f"mlgo-gym: error: {message}", markup=False, style="red")

    def warn(self, message: str) -> None:
        """Print a warning."""
        self._err.print(f"mlgo-gym: {message}", markup=False, style="yellow")

    def progress(self) -> Progress:
        """A progress display, to be used as a context manager."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._err,
            disable=self.as_json or not self._err.is_terminal,
            transient=True,
        )

    @contextlib.contextmanager
    def counting(self, description: str, total: int) -> Iterator[Callable[[str], None]]:
        """A progress bar, and what to call for everything that is done."""
        with self.progress() as progress:
            task = progress.add_task(description, total=total)
            yield lambda _: progress.advance(task)
