"""``mlgo-gym measure``: what models and policies do to programs that run."""

from __future__ import annotations

import argparse
import itertools
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from corpus_tools.command_line import whole
from mlgo_gym.base import OptionsError
from mlgo_gym.cli import PLOT_ENDINGS, Output, save_figure
from mlgo_gym.cli import options as shared
from mlgo_gym.evaluation import check_can_plot
from mlgo_gym.lab.programs.commands._programs import measured

if TYPE_CHECKING:
    from mlgo_gym.lab.programs._program_scores import Together
    from mlgo_gym.problems import PolicyLike, Problem

DESCRIPTION = (
    "Compile the programs of corpora under models and policies and under LLVM's default, run them "
    "in a sandbox, and print size, instructions (by valgrind), an estimate of cycles (cost), loads "
    "and stores (accesses) or seconds of the CPU, with bootstrap intervals. Models of several "
    "problems are compared alone and together."
)
EXAMPLE = "mlgo-gym measure --workload json --policy always"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "only this workload; repeat for more (default: all)", many=True)
    add.model("a model to compare; repeat for more", many=True)
    add.policy(many=True)
    add.problem()
    what = "what to measure; repeat for more (default: size, instructions)"
    add("--meter", ("size", "instructions", "cost", "accesses", "seconds"), what, many=True)
    what = "for seconds: link each program N times, at different addresses"
    add("--layouts", "N", what, 16, type=whole(1))
    add.seed("the bootstrap and of the random policy")
    what = "write a plot of size against speed, as PNG, SVG or PDF"
    add.file("--plot", what, endings=PLOT_ENDINGS)
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.programs import check_tools, corpora_with_workloads
    from mlgo_gym.lab.programs.commands._show_programs import program_tables, programs_record

    if not options.model and not options.policy:
        raise OptionsError("expected --model or --policy, found neither")
    names = list(dict.fromkeys(options.meter or ("size", "instructions")))
    if options.plot:
        check_can_plot()
        if len(names) < 2:
            raise OptionsError(f"--plot: expected two meters or more, found {names[0]}")
    check_tools(names)
    corpora = corpora_with_workloads(shared.packages_of(options).named)
    with _compared(options) as (problem, policies, together):
        setting = Setting(problem, **shared.compilation_of(options))
        scores = measured(
            corpora,
            policies,
            setting,
            names,
            output,
            names=options.workload,
            together=together,
            layouts=options.layouts,
        )
    shown = [*policies, *together]
    output.print(*program_tables(scores, shown, names, options.seed))
    output.json(programs_record(scores, shown, names, options.seed))
    if options.plot:
        from mlgo_gym.lab.programs._program_scores import programs_plot

        save_figure(options.plot, programs_plot(scores, shown, names))
    return output.warn_of(each.error for each in scores if each.error)


@contextmanager
def _compared(options: Namespace) -> Iterator[tuple[Problem, dict[str, PolicyLike], Together]]:
    """The first model's problem, its policies, and those of other problems, alone and with them."""
    with ExitStack() as stack:
        by_problem: dict[Problem, dict[str, PolicyLike]] = {}
        for each in shared.by_problem(options):
            problem = shared.problem_of(each)
            by_problem[problem] = stack.enter_context(shared.policies_of(each, problem))
        first, *others = by_problem
        together: dict[str, dict[Problem, PolicyLike]] = {}
        for problem in others:
            together |= {name: {problem: each} for name, each in by_problem[problem].items()}
        if others:
            for names in itertools.product(*by_problem.values()):
                pairs = zip(by_problem, names, strict=True)
                chosen = {problem: by_problem[problem][name] for problem, name in pairs}
                together[" + ".join(names)] = chosen
        yield first, by_problem[first], together
