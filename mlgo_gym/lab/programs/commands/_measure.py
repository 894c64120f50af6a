"""``mlgo-gym measure``: what models and policies do to programs that run."""

from __future__ import annotations

import argparse

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Output, save_figure
from mlgo_gym.cli import options as shared
from mlgo_gym.evaluation import check_can_plot
from mlgo_gym.lab.programs.commands._programs import measured

DESCRIPTION = (
    "Compile the programs of corpora under models and policies and under LLVM's default, run them "
    "in a sandbox, and print size, instructions (by valgrind), an estimate of cycles (cost), loads "
    "and stores (accesses) or seconds of the CPU, with bootstrap intervals."
)
EXAMPLE = "mlgo-gym measure --workload json --policy always"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "only this one; repeat for more (default: all)", many=True)
    add.model("what is compared, once for each", many=True)
    add.policy(many=True)
    add.problem()
    what = "what programs are measured by; repeat for more (default: size, instructions)"
    add("--meter", ("size", "instructions", "cost", "accesses", "seconds"), what, many=True)
    add.seed("the bootstrap and of the random policy")
    add("--plot", "FILE", "write a plot of size against speed, as PNG or SVG")
    add.compilation()


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
    problem = shared.problem_of(options)
    setting = Setting(problem, **shared.compilation_of(options))
    corpora = corpora_with_workloads(shared.packages_of(options).named)
    with shared.policies_of(options, problem) as policies:
        scores = measured(corpora, policies, setting, names, output, names=options.workload)
    output.print(*program_tables(scores, list(policies), names, options.seed))
    output.json(programs_record(scores, list(policies), names, options.seed))
    if options.plot:
        from mlgo_gym.lab.programs._programs_plot import programs_plot

        save_figure(options.plot, programs_plot(scores, list(policies), names))
    return output.warn_of(each.error for each in scores if each.error)
