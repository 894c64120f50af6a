"""``mlgo-gym evaluate``: models and policies against LLVM's default, over packages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_gym.base import OptionsError, local_folder
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._extensions import Addition
from mlgo_gym.cli._links import Links
from mlgo_gym.cli._times import REPEATS, Times
from mlgo_gym.cli._values import place
from mlgo_gym.cli._writing import save_figures, write_all, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages, final_corpora
from mlgo_gym.evaluation import NO_PLOTS, can_plot, check_can_plot
from mlgo_gym.model import CARD_FILE, find_model, read_card, record_last_test

if TYPE_CHECKING:
    from mlgo_gym.evaluation import Scored

DESCRIPTION = (
    "Compile packages of modules under models and policies and under LLVM's default; print totals "
    "with bootstrap intervals, packages, and the modules that got worse."
)
EXAMPLE = "mlgo-gym evaluate --corpus corpora --split test --model run/model"


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
    what = f"also time {REPEATS} compilations of each module under each policy, one at a time"
    add("--time", "", what)
    what = "record in the models' cards that they were evaluated on the split 'final'"
    add("--record-in-card", "", what)
    add.folder("--plots", "write plots, as PNG files")
    add.file("--html", "write the results as a page")
    add("--modules", "", "also print every module")
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli.show import _evaluation as shown
    from mlgo_gym.cli.show._evaluation_record import as_record
    from mlgo_gym.evaluation import Setting, evaluate, with_searched

    if not options.model and not options.policy:
        raise OptionsError("expected --model or --policy, found neither")
    if options.plots:
        check_can_plot()
    packages = shared.packages_of(options)
    is_final = _check_final(packages, options)
    how = {"problem": shared.problem_of(options), **shared.compilation_of(options)}
    how |= {"with_text": options.text, "keep_smaller": options.keep_smaller}
    setting = Setting(**how)
    own: list[Addition] = [Times(packages)] if options.time else []
    own += [Links(packages)] if options.linked else []
    additions = [*own, *options.additions]
    for each in additions:
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
        for each in additions:
            each.measure(policies, setting, output)
    output.print(*shown.evaluation_tables(scored, modules=options.modules))
    for each in additions:
        output.print(*each.tables(options.seed))
    if left_out := len(scored.scores) - len(scored.modules):
        output.print(f"Left out of all this since LLVM failed on them: {left_out} modules.")
    record = as_record(scored, setting, options.seed)
    for each in additions:
        record |= each.record(options.seed)
    output.json(record)
    if is_final:
        _record_test(packages, record, options, output)
    scores = scored.scores
    output.warn_of_not_honoured(each.not_honoured for each in scores)
    errors: list[object] = [error for each in scores for error in each.errors]
    errors += [error for each in additions for error in each.failures()]
    status = output.warn_of(dict.fromkeys(map(str, errors)))  # a module may fail in several ways
    _save(scored, options, output)
    return status


def _check_final(packages: Packages, options: argparse.Namespace) -> bool:
    """Whether all corpora are of the split ``final``; if cards are to say so, they must be."""
    final = final_corpora(packages)
    is_final = {corpus.folder for corpus in packages.corpora.values()} == set(final)
    if options.record_in_card:
        if not is_final:
            raise OptionsError(
                "--record-in-card: expected corpora of the split 'final' alone, found others"
            )
        if not options.model:
            raise OptionsError("--record-in-card: expected models, found none")
        for model in options.model:
            if read_card(Path(find_model(model))) is None:
                raise OptionsError(
                    f"--record-in-card: expected models with {CARD_FILE}, found {model!r}"
                )
    return is_final


def _record_test(
    packages: Packages, record: dict[str, Any], options: argparse.Namespace, output: Output
) -> None:
    """Put what a model comes to on corpora of the split ``final`` into its card, if it is to be."""
    from mlgo_gym.training import describe

    if not options.record_in_card:
        if options.model:
            output.print("This was the split 'final': --record-in-card keeps it in models' cards.")
        return
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **describe(packages)}
    about |= {key: record[key] for key in ("llvm_version", "opt_level")}
    for model, name in zip(options.model, record["policies"], strict=False):  # models come first
        groups = {key: each for key, each in record["total"].items() if isinstance(each, dict)}
        changes = {key: each["policies"][name] for key, each in groups.items()}
        times = record_last_test(Path(find_model(model)), about | {"results": changes})
        output.print(f"{name}: evaluated on the split 'final' {times} times, by its card.")


def _save(scored: Scored, options: argparse.Namespace, output: Output) -> None:
    """Write the plots and the page, which is without plots where none can be made."""
    if not scored.modules or not (options.plots or options.html):
        return
    from mlgo_gym.cli.show._evaluation import evaluation_page
    from mlgo_gym.evaluation import plots_of

    plots = plots_of(scored) if can_plot() else {}

    def write_page() -> None:
        with writing(options.html) as file:
            file.write(evaluation_page(scored, plots))
        if not plots:
            output.print(f"{options.html} has no plots. {NO_PLOTS}.")

    steps: list[Callable[[], None]] = [write_page] if options.html else []
    if options.plots:
        steps.append(partial(save_figures, options.plots, plots))
    write_all(*steps)
