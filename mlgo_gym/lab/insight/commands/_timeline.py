"""``--timeline`` of the commands that compile modules."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from mlgo_gym.cli import Extension

if TYPE_CHECKING:
    from mlgo_gym.cli import Output
    from mlgo_gym.cli.options import Options


class TimelineExtension(Extension):
    """``--timeline``: draw what a command compiles."""

    traits: ClassVar[Collection[str]] = ("compilation",)

    def add_options(self, add: Options, command: str) -> None:
        """Add ``--timeline``."""
        del command
        add.file("--timeline", "draw compilations, decisions and workers for Perfetto's viewer")

    @contextmanager
    def running(self, options: argparse.Namespace, output: Output) -> Iterator[None]:
        """Write the timeline as compilations end."""
        path = getattr(options, "timeline", None)
        if path is None:
            yield
            return
        from mlgo_gym.cli import writing
        from mlgo_gym.lab.insight._timeline import MOST_DECISIONS, drawing

        with writing(path) as file, drawing(file) as timeline:
            yield
        if timeline.left_out:
            output.warn(
                f"{path}: expected at most {MOST_DECISIONS:,} decisions, found "
                f"{timeline.left_out:,} more, which are not drawn; their compilations are"
            )
