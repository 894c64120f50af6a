"""``mlgo-gym corpus split-functions``: one module a function, for register allocation."""

from __future__ import annotations

import argparse

from corpus_tools.command_line import whole
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import ModuleKey

DESCRIPTION = (
    "Optimise every module of corpora and make a module of each of its functions, whose code is "
    "that of the whole module."
)
EXAMPLE = "mlgo-gym corpus split-functions --corpus corpora/lupa --output out"


def add_options(add: shared.Options) -> None:
    add.corpus()
    what = "folder for the new corpus; for several packages, one in it for each"
    add.output(what)
    add.opt_level()
    what = "leave out functions with fewer instructions"
    add("--minimum-instructions", "N", what, 0, type=whole(0))
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.curation import split_functions

    packages = shared.packages_of(options)
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
                minimum_instructions=options.minimum_instructions,
                **shared.compilation_of(options),
                progress=lambda: progress.advance(task),
            )
            modules += (packages.label(ModuleKey(package, name)) for name in made.modules)
            for name, why in made.failures.items():
                failures[packages.label(ModuleKey(package, name))] = why
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
    return output.warn_of(failures.values())
