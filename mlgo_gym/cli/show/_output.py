"""Printing: results to standard output, progress and errors to standard error.

Progress bars appear on a terminal only, and never with ``--json``. What goes wrong with standard
output, or with a file that is written before the result is printed, is raised when all else is
done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from corpus_tools.command_line import escaping_console
from corpus_tools.errors import CorpusToolsError
from mlgo_gym.base import MlgoGymError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn

    from mlgo_gym.rollout import ModuleReport

_T = TypeVar("_T")


class Output:
    """The output of a command: its results, progress and errors.

    Attributes:
        besides: says what stands behind each line of progress.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.besides: Callable[[], str] | None = None
        self._out = escaping_console()
        self._err = escaping_console(stderr=True)
        self._failure: Exception | None = None
        self._is_broken = False

    @contextmanager
    def keeping(
        self, kinds: tuple[type[Exception], ...] = (MlgoGymError, CorpusToolsError)
    ) -> Iterator[None]:
        """Let the rest of a command come out though this cannot be written; `finish` raises it."""
        try:
            yield
        except kinds as error:
            self._failure = self._failure or error

    def finish(self) -> None:
        """See that everything came out.

        Raises:
            OSError: not all was printed, of which the first failure is raised.
            MlgoGymError, CorpusToolsError: something that was to be kept failed before.
        """
        if self._failure is not None:
            raise self._failure

    def print(self, *parts: RenderableType) -> None:
        """Print for people: text or a table."""
        for part in () if self.as_json else parts:
            self._write(partial(self._print, part))

    def _write(self, write: Callable[[], object]) -> None:
        """Write to standard output, unless that has failed before."""
        if self._is_broken:
            return
        try:
            write()
        except OSError as error:
            error.filename = "standard output"
            self._is_broken = True
            self._failure = self._failure or error

    def _print(self, part: RenderableType) -> None:
        from rich.table import Table

        if isinstance(part, str):
            self._out.print(part, soft_wrap=not self._out.is_terminal)
            return
        if isinstance(part, Table):
            from mlgo_gym.cli.show._grid import keep_whole

            keep_whole(part, self._out)
        self._out.print(part, crop=False)

    def verbatim(self, *lines: str) -> None:
        """Print lines that are to be copied, without breaks of our own."""
        for line in () if self.as_json else lines:
            self._write(partial(self._out.print, line, soft_wrap=True))

    def json(self, value: Any) -> None:
        if self.as_json:
            self._write(partial(self._out.file.write, _json_of(value) + "\n"))
            self._write(self._out.file.flush)

    def flush(self) -> None:
        """Let whoever reads a pipe see what was printed so far."""
        self._write(self._out.file.flush)
        self.finish()

    def error(self, message: str) -> None:
        self._err.print(f"mlgo-gym: error: {message}", style="red", soft_wrap=True)

    def warn(self, message: str) -> None:
        self._err.print(f"mlgo-gym: {message}", style="yellow", soft_wrap=True)

    def remark(self, message: str) -> None:
        """Say on a terminal, as progress is shown, what is no result."""
        if self._is_watched:
            self._err.print(message, style="dim", soft_wrap=True)

    def warn_of(self, errors: Iterable[object]) -> int:
        """One line for each error; where there is one, the status is 1."""
        status = 0
        for error in errors:
            self.warn(str(error))
            status = 1
        return status

    def warn_of_not_honoured(self, modules: Iterable[Sequence[str]]) -> dict[str, int]:
        """One line for each option, and in how many modules the embedded compiler leaves it out."""
        counts = Counter(entry for module in modules for entry in module)
        for entry, count in counts.items():
            self.warn(f"not honoured in {count} module{'s' * (count > 1)}: {entry}")
        return counts

    def warn_of_failures(self, reports: Sequence[ModuleReport]) -> int:
        """Name what is not honoured, and every module that failed; if one did, the status is 1."""
        self.warn_of_not_honoured(each.not_honoured for each in reports)
        return self.warn_of(error for report in reports for error in report.failures)

    def progress(self) -> Progress:
        """A progress display, to be used as a context manager."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        return self._progress("{task.description}", *columns, "left")

    @contextmanager
    def line(self) -> Iterator[Callable[[str], None]]:
        """A line that says what is done and for how long, on a terminal; yields what sets it."""
        from rich.progress import SpinnerColumn, TimeElapsedColumn

        columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
        with self._progress(*columns) as line:
            task = line.add_task("", total=None)
            yield lambda text: line.update(task, description=text)

    def track(self, items: Iterable[_T], description: str, total: int) -> Iterator[_T]:
        """Pass items through while a progress bar counts them; a generator is closed after."""
        with ExitStack() as stack:
            if isinstance(items, Generator):
                stack.enter_context(closing(items))
            progress = stack.enter_context(self.progress())
            task = progress.add_task(description, total=total)
            for item in items:  # not by its own `track`, which starts a thread even if none sees it
                yield item
                progress.advance(task)

    def _progress(self, *columns: str | ProgressColumn) -> Progress:
        from rich.progress import Progress, RenderableColumn, TextColumn

        if self.besides:
            columns = *columns, RenderableColumn(_Now(self.besides))
        shown = (
            TextColumn(each, markup=False) if isinstance(each, str) else each for each in columns
        )
        is_hidden = not self._is_watched
        return Progress(*shown, console=self._err, disable=is_hidden, transient=True)

    @property
    def _is_watched(self) -> bool:
        return self._err.is_terminal and not self.as_json


class _Now:
    """A text as it is whenever it is shown."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> str:
        return self._text()


def _json_of(value: Any) -> str:
    """Return it as JSON, which has no NaN and no infinity: such a number is null."""
    try:
        return json.dumps(value, indent=2, allow_nan=False)
    except ValueError:
        known = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(known, indent=2)
