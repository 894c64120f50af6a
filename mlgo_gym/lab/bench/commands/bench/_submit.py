"""``mlgo-gym bench submit``: a run with a name."""

from __future__ import annotations

import argparse

from mlgo_gym.base import BenchmarkError
from mlgo_gym.cli import Output, make_folder
from mlgo_gym.cli import options as shared

DESCRIPTION = "Give a run a name and say who made it: a file for a table's folder of submissions."
EXAMPLE = "mlgo-gym bench submit a.run --name a --authors me --into submissions"


def add_options(add: shared.Options) -> None:
    add("recorded", "FILE", "a run, as 'bench run --output' writes it")
    add("--name", "NAME", "its name in the table", required=True)
    add("--authors", "TEXT", "who made it", required=True)
    add("--about", "TEXT", "a sentence: what was trained, on which split, how long", "")
    add("--url", "URL", "a page that describes it", "")
    add.folder("--into", "the folder of submissions", required=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.bench import Submission

    found = Submission.load(options.recorded)
    named = found.named(options.name, options.authors, options.about, options.url)
    make_folder(options.into)
    path = options.into / f"{options.name}.zip"
    if path.exists():
        raise BenchmarkError(f"name: expected one of its own, found {options.name!r}: {path}")
    named.save(path)
    output.print(f"{path}: {len(named.files)} traces, {path.stat().st_size:,} bytes")
    output.json({"path": str(path), "traces": len(named.files)})
    return 0
