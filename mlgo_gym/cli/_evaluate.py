"""``mlgo-gym evaluate``: models and policies against LLVM's default, over packages."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from mlgo_gym.cli._options import (
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    packages_of,
    policies_of,
    problem_of,
)
from mlgo_gym.cli._writing import make_folder, save_figure, writing
from mlgo_gym.cli.show._evaluation import evaluation_page, evaluation_tables, time_table
from mlgo_gym.cli.show._evaluation_record import as_record, time_record
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import count_not_honoured, warn_of, warn_of_not_honoured
from mlgo_gym.errors import OptionsError
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._figure import NO_PLOTS, can_plot, check_can_plot
from mlgo_gym.evaluation._front import evaluate
from mlgo_gym.evaluation._plots import plots_of
from mlgo_gym.evaluation._summary import Scored
from mlgo_gym.evaluation._timing import REPEATS, ModuleTimes, measure_times, time_changes

DESCRIPTION = (
    "Compile packages of modules under models and policies and under LLVM's default; print totals "
    "with bootstrap intervals, packages, and the modules that got worse."
)
EXAMPLE = "mlgo-gym evaluate --corpus corpora --split test --model run/model"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_model_options(parser, "what is compared, once for each", many=True)
    add_policy_option(parser, many=True)
    add_problem_option(parser)
    add_seed_option(parser, "the bootstrap and of the random policy")
    parser.add_argument(
        "--traces", type=Path, metavar="DIR", help="what 'search --output' has written"
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="with register allocation: compare the code as well, in twice the time",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help=f"time compilations too, {REPEATS} of each module under each policy, one at a time",
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write plots, as PNG files")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page of it all")
    parser.add_argument("--modules", action="store_true", help="print every module, too")
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    if not options.model and not options.policy:
        raise OptionsError("expected --model or --policy, found neither")
    _check_outputs(options)
    packages = packages_of(options)
    setting = Setting(
        problem_of(options),
        opt_level=options.opt_level,
        jobs=options.jobs,
        timeout_s=options.timeout,
        with_text=options.text,
        traces=options.traces,
    )
    times: list[ModuleTimes] = []
    with policies_of(options, setting.problem) as policies:
        scored = evaluate(
            (),
            packages,
            policies=policies,
            seed=options.seed,
            track=lambda scores, total: output.track(scores, "compiling", total),
            **{each.name: getattr(setting, each.name) for each in fields(setting)},
        )
        if options.time:
            timing = measure_times(packages, policies, setting)
            times += output.track(timing, "timing", len(packages))
    changes = {name: time_changes(times, name, options.seed) for name in policies if times}
    output.print(*evaluation_tables(scored, modules=options.modules), *time_table(changes))
    if left_out := len(scored.scores) - len(scored.modules):
        output.print(f"Left out of all this since LLVM failed on them: {left_out} modules.")
    output.json(as_record(scored, setting, options.seed) | time_record(times, changes))
    _save(scored, options, output)
    return _warn(scored, output)


def _check_outputs(options: argparse.Namespace) -> None:
    """See that plots and the page can be written, before the work that they are to show."""
    if options.html and not options.html.resolve().parent.is_dir():
        raise OptionsError(
            f"--html: expected an existing folder, found {str(options.html.parent)!r}"
        )
    if options.plots:
        check_can_plot()
        make_folder(options.plots)


def _save(scored: Scored, options: argparse.Namespace, output: Output) -> None:
    """Write the plots and the page, which is without plots where none can be made."""
    if not scored.modules or not (options.plots or options.html):
        return
    plots = plots_of(scored) if can_plot() else {}
    for name, figure in plots.items() if options.plots else ():
        save_figure(options.plots / f"{name}.png", figure)
    if options.html:
        with writing(options.html) as file:
            file.write(evaluation_page(scored, plots))
        if not plots:
            output.print(f"{options.html} has no plots. {NO_PLOTS}.")


def _warn(scored: Scored, output: Output) -> int:
    scores = scored.scores
    warn_of_not_honoured(count_not_honoured(each.not_honoured for each in scores), output)
    errors = [error for each in scores for error in each.errors]
    return warn_of([*errors, *(each.trace_error for each in scores if each.trace_error)], output)
