"""``mlgo-gym bench table``: verified submissions, ranked."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output, make_folder
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Rank the verified submissions of a folder: changes and normalised scores with 95 % intervals, "
    "as a page and as numbers."
)
EXAMPLE = "mlgo-gym bench table submissions --suite suites/size-v1"


def add_options(add: shared.Options) -> None:
    add("submissions", "DIR", "the folder of submissions")
    add("--suite", "DIR", "the suite's folder (default: the sample)")
    add.folder("--output", "folder for the page and the other files")
    add("--best", "FILE", "the best values known so far: best.json of an earlier table")


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import narrow_table, save_figure
    from mlgo_gym.evaluation import can_plot
    from mlgo_gym.lab import bench

    with bench.open_or_sample(options.suite) as suite:
        found, left = bench.verified_submissions(options.submissions, suite)
        for path, why in left.items():
            output.warn(f"{path}: left out: {why}")
        known = bench.known_best(options.best) if options.best is not None else None
        made = bench.table(suite, [each.card for each in found.values()], known)
    (track, *_) = made.rows[0].score
    measure = suite.measures[0]
    shown = narrow_table(("name", "seeds", "score", f"{measure}, %"), right=("seeds",))
    for row in made.rows:
        change = row.changes[track][measure].text(100, 2)
        shown.add_row(row.card.name, str(len(row.card.seeds)), row.score[track].text(1, 0), change)
    output.print(shown)
    if options.output is not None:
        make_folder(options.output)
        bench.write_table(made, options.output)
        if can_plot():
            from mlgo_gym.lab.bench import profile_figure

            save_figure(options.output / "profile.png", profile_figure(made))
    output.json(bench.table_json(made))
    return 0
