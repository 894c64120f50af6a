"""What commands print: results on standard output, progress and errors on standard error.

Progress bars appear on a terminal only, and never with ``--json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

_T = TypeVar("_T")


class Output:
    """Where a command's results, progress and errors go.

    Attributes:
        as_json: results are JSON and nothing else is printed on standard output.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = _Console(highlight=False, markup=False)
        self._err = _Console(stderr=True, highlight=False, markup=False)

    @property
    def width(self) -> int:
        """How many characters a line of standard output holds."""
        return self._out.width

    def print(self, *parts: RenderableType) -> None:
        """Print for people: text or a table."""
        if not self.as_json:
            for part in parts:
                self._out.print(part, soft_wrap=not self._out.is_terminal and isinstance(part, str))

    def json(self, value: Any) -> None:
        """Print for machines."""
        if self.as_json:
            self._out.file.write(json.dumps(value, indent=2) + "\n")

    def flush(self) -> None:
        """Let whoever reads a pipe see what was printed so far."""
        self._out.file.flush()

    def error(self, message: str) -> None:
        """Print an error."""
        self._err.print(f"mlgo-gym: error: {message}", style="red", soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a warning."""
        self._err.print(f"mlgo-gym: {message}", style="yellow", soft_wrap=True)

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

    @contextmanager
    def line(self) -> Iterator[Callable[[str], None]]:
        """A line that says what is done and for how long, on a terminal; yields what sets it."""
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        is_shown = self._err.is_terminal and not self.as_json
        with Progress(*columns, console=self._err, disable=not is_shown, transient=True) as line:
            task = line.add_task("", total=None)
            yield lambda text: line.update(task, description=text)

    def track(self, items: Iterable[_T], description: str, total: int) -> Iterator[_T]:
        """Pass items through while a progress bar counts them; a generator is closed after."""
        with ExitStack() as stack:
            if isinstance(items, Generator):
                stack.enter_context(closing(items))
            progress = stack.enter_context(self.progress())
            yield from progress.track(items, total=total, description=description)


class _Console(Console):
    """A console that shows what a terminal would obey: names and messages may be anybody's."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """As every console does, after escaping all that is neither printable nor a new line."""
        shown = "".join(
            each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
        )
        return super().render_str(shown, **settings)
