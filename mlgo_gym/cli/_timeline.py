"""``--timeline``, of all commands that compile modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.llvm._timeline import drawing


@contextmanager
def drawing_timeline(path: Path, output: Output) -> Iterator[None]:
    """Write a timeline of what a command compiles."""
    with writing(path) as file, drawing(file) as timeline:
        yield
    if timeline.left_out:
        output.warn(
            f"{path}: expected at most {timeline.most_decisions:,} decisions, found "
            f"{timeline.left_out:,} more, which are not drawn; their compilations are"
        )
