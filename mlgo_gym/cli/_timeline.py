"""``--timeline``, of all commands that compile modules."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgo_gym.cli.show._output import Output


@contextmanager
def drawing_timeline(options: argparse.Namespace, output: Output) -> Iterator[None]:
    """Where a command is told to, write a timeline of what it compiles."""
    path = getattr(options, "timeline", None)
    if path is None:
        yield
        return
    from mlgo_gym.cli._writing import writing
    from mlgo_gym.llvm._timeline import drawing

    with writing(path) as file, drawing(file) as timeline:
        yield
    if timeline.left_out:
        output.warn(
            f"{path}: expected at most {timeline.most_decisions:,} decisions, found "
            f"{timeline.left_out:,} more, which are not drawn; their compilations are"
        )
