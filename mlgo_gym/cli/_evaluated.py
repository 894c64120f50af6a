"""Files of an evaluation besides what is printed: plots, a page, and entries in cards."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_gym.base import OptionsError
from mlgo_gym.cli._writing import make_folder, save_figures, write_all, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages, final_corpora
from mlgo_gym.evaluation import NO_PLOTS, can_plot, check_can_plot
from mlgo_gym.model import CARD_FILE, find_model, read_card, record_last_test

if TYPE_CHECKING:
    from mlgo_gym.evaluation import Scored


def check_outputs(options: argparse.Namespace) -> None:
    """See that plots and the page can be written, before the work that they are to show."""
    if options.plots:
        check_can_plot()
        make_folder(options.plots)


def check_final(packages: Packages, options: argparse.Namespace) -> bool:
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


def record_test(
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


def save(scored: Scored, options: argparse.Namespace, output: Output) -> None:
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
