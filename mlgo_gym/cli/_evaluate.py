"""``mlgo-gym evaluate``: models and policies against LLVM's default, over packages."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from mlgo_gym.cli._options import (
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    models_of,
    packages_of,
    policies_of,
    problem_of,
)
from mlgo_gym.cli._writing import make_folder, writing
from mlgo_gym.cli.show import _evaluation_tables as tables
from mlgo_gym.cli.show._evaluation_page import evaluation_page
from mlgo_gym.cli.show._evaluation_record import as_record, time_record
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._plot_files import save_plots
from mlgo_gym.cli.show._warnings import count_not_honoured, warn_of, warn_of_not_honoured
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import OptionsError
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._front import evaluate
from mlgo_gym.evaluation._plots import plots_of
from mlgo_gym.evaluation._scores import ModuleScores
from mlgo_gym.evaluation._summary import Scored
from mlgo_gym.evaluation._timing import REPEATS, ModuleTimes, measure_times, time_changes
from mlgo_gym.problems._policy import PolicyLike

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
    """Run the subcommand."""
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
    if not options.model and not options.policy:
        raise OptionsError("expected --model or --policy, found neither")
    named = {name: setting.problem.policy(name, options.seed) for name in options.policy}
    scored = evaluate(
        models_of(options),
        packages,
        policies=named,
        mode=options.mode,
        seed=options.seed,
        track=lambda scores, total: output.track(scores, "compiling", total),
        **{each.name: getattr(setting, each.name) for each in fields(setting)},
    )
    times = []
    if options.time:
        with policies_of(options, setting.problem) as policies:
            times = _timed(packages, policies, setting, output)
    changes = {name: time_changes(times, name, options.seed) for name in scored.policies if times}
    output.print(*tables.all_tables(scored, output.width, modules=options.modules))
    output.print(*tables.time_table(changes))
    if left_out := len(scored.scores) - len(scored.modules):
        output.print(f"Left out of all this since LLVM failed on them: {left_out} modules.")
    output.json(
        as_record(scored.scores, scored, setting, options.seed) | time_record(times, changes)
    )
    _save(scored, options)
    return _warn(scored.scores, output)


def _check_outputs(options: argparse.Namespace) -> None:
    """See that plots and the page can be written, before the work that they are to show."""
    if options.html and not options.html.resolve().parent.is_dir():
        raise OptionsError(
            f"--html: expected an existing folder, found {str(options.html.parent)!r}"
        )
    if options.plots:
        make_folder(options.plots)


def _save(scored: Scored, options: argparse.Namespace) -> None:
    """Write the plots and the page."""
    if not scored.modules or not (options.plots or options.html):
        return
    plots = plots_of(scored)
    if options.plots:
        save_plots(options.plots, plots)
    if options.html:
        with writing(options.html) as file:
            file.write(evaluation_page(scored, plots))


def _timed(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    output: Output,
) -> list[ModuleTimes]:
    with contextlib.closing(measure_times(packages, policies, setting)) as times:
        return list(output.track(times, "timing", len(packages)))


def _warn(scores: Sequence[ModuleScores], output: Output) -> int:
    warn_of_not_honoured(count_not_honoured(each.not_honoured for each in scores), output)
    errors = [error for each in scores for error in each.errors]
    return warn_of([*errors, *(each.trace_error for each in scores if each.trace_error)], output)
