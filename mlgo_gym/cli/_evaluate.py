"""``mlgo-gym evaluate``: models and policies against LLVM's default, over packages."""

from __future__ import annotations

import argparse
from typing import Final

from mlgo_gym.base import OptionsError, local_folder
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._evaluated import check_final, check_outputs, record_test, save
from mlgo_gym.cli._links import Links
from mlgo_gym.cli._values import place
from mlgo_gym.cli.show._output import Output

DESCRIPTION = (
    "Compile packages of modules under models and policies and under LLVM's default; print totals "
    "with bootstrap intervals, packages, and the modules that got worse."
)
EXAMPLE = "mlgo-gym evaluate --corpus corpora --split test --model run/model"

_REPEATS: Final = 5


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.model("a model to compare; repeat for more", many=True)
    add.policy(many=True)
    add.problem()
    add.seed("the bootstrap and of the random policy")
    what = "add the best of each module among all policies and LLVM's own; for register "
    what += "allocation, the best of each function"
    add("--keep-smaller", "", what)
    what = "add policy 'search', which answers as 'search --output DIR' has found"
    add("--traces", "DIR", what, type=place)
    add("--text", "", "for register allocation: also compare the code, in twice the time")
    what = "also link each package: the sizes plain, after --gc-sections and after --icf=safe"
    add("--linked", "", what)
    what = f"also time {_REPEATS} compilations of each module under each policy, one at a time"
    add("--time", "", what)
    what = "record in the models' cards that they were evaluated on the split 'final'"
    add("--record-in-card", "", what)
    add("--plots", "DIR", "write plots, as PNG files")
    add.file("--html", "write the results as a page")
    add("--modules", "", "also print every module")
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli.show import _evaluation as shown
    from mlgo_gym.cli.show._evaluation_record import as_record, time_record
    from mlgo_gym.evaluation import (
        ModuleTimes,
        Setting,
        evaluate,
        measure_times,
        time_changes,
        with_searched,
    )

    if not options.model and not options.policy:
        raise OptionsError("expected --model or --policy, found neither")
    check_outputs(options)
    packages = shared.packages_of(options)
    is_final = check_final(packages, options)
    how = {"problem": shared.problem_of(options), **shared.compilation_of(options)}
    how |= {"with_text": options.text, "keep_smaller": options.keep_smaller}
    setting = Setting(**how)
    times: list[ModuleTimes] = []
    if options.linked:
        options.additions.insert(0, Links(packages))
    for each in options.additions:
        each.check(packages)
    traces = options.traces and local_folder(options.traces)
    with shared.policies_of(options, setting.problem) as given:
        policies = with_searched(given, traces, packages, setting)
        scored = evaluate(
            (),
            packages,
            policies=policies,
            seed=options.seed,
            track=lambda scores, total: output.track(scores, "compiling", total),
            **how,
        )
        if options.time:
            timing = measure_times(packages, policies, setting, repeats=_REPEATS)
            times += output.track(timing, "timing", len(packages))
        for each in options.additions:
            each.measure(policies, setting, output)
    changes = {name: time_changes(times, name, options.seed) for name in policies if times}
    output.print(*shown.evaluation_tables(scored, modules=options.modules))
    output.print(*shown.time_table(changes))
    for each in options.additions:
        output.print(*each.tables(options.seed))
    if left_out := len(scored.scores) - len(scored.modules):
        output.print(f"Left out of all this since LLVM failed on them: {left_out} modules.")
    record = as_record(scored, setting, options.seed) | time_record(times, changes)
    for each in options.additions:
        record |= each.record(options.seed)
    output.json(record)
    if is_final:
        record_test(packages, record, options, output)
    scores = scored.scores
    output.warn_of_not_honoured(each.not_honoured for each in scores)
    errors: list[object] = [error for each in scores for error in each.errors]
    errors += [error for each in options.additions for error in each.failures()]
    status = output.warn_of(dict.fromkeys(map(str, errors)))  # a module may fail in several ways
    save(scored, options, output)
    return status
