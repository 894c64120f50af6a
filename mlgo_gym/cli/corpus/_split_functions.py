"""``mlgo-gym corpus split-functions``: one module a function, for register allocation."""

from __future__ import annotations

import argparse
from functools import partial

from corpus_tools.command_line import whole
from mlgo_gym.cli._options import (
    add_corpus_options,
    add_opt_level_option,
    add_output_option,
    add_worker_options,
    packages_of,
)
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.curation._functions import split_functions

DESCRIPTION = (
    "Optimise every module of corpora and make a module of each of its functions, whose code is "
    "that of the whole module."
)
EXAMPLE = "mlgo-gym corpus split-functions --corpus corpora/lupa --output out"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_output_option(parser, "where the new corpus goes; of several packages, a folder for each")
    add_opt_level_option(parser)
    parser.add_argument(
        "--minimum-instructions",
        type=whole(0),
        default=0,
        metavar="N",
        help="leave out functions with fewer instructions (default: 0)",
    )
    add_worker_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    packages = packages_of(options)
    named, total = packages.named, len(packages)
    modules: list[str] = []
    failures: dict[str, str] = {}
    instructions = 0
    with output.progress() as progress:
        task = progress.add_task("optimising", total=total)
        for package, corpus in named.items():
            made = split_functions(
                corpus,
                options.output / (package.lstrip("/") if len(named) > 1 else ""),
                opt_level=options.opt_level,
                minimum_instructions=options.minimum_instructions,
                jobs=options.jobs,
                timeout_s=options.timeout,
                progress=lambda: progress.advance(task),
            )
            label = partial(_label, packages, package)
            modules += map(label, made.modules)
            failures |= {label(name): why for name, why in made.failures.items()}
            instructions += made.instructions
    output.print(
        f"{len(modules):,} functions with {instructions:,} instructions, out of "
        f"{total - len(failures):,} modules, in {options.output}"
    )
    output.json(
        {
            "output": str(options.output),
            "modules": modules,
            "instructions": instructions,
            "failures": failures,
        }
    )
    return warn_of(failures.values(), output)


def _label(packages: Packages, package: str, name: str) -> str:
    return packages.label(ModuleKey(package, name))
