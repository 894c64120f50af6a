"""Work on packages behind a progress bar, and what their modules and folders are called.

Of one package, modules have their own names and results go into the folder that is given; of
several, modules are called ``PACKAGE/MODULE`` and each package has a folder in it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import ModuleReport, rollout

_T = TypeVar("_T")


def over_packages(
    packages: Mapping[str, Corpus],
    work: Callable[[str, Corpus], Generator[_T]],
    doing: str,
    output: Output,
) -> Iterator[_T]:
    """What some work yields for the modules of each package, behind a progress bar.

    Args:
        packages: corpora by the names of their packages.
        work: yields dataclasses for modules of a package, which have a ``module``.
        doing: what the progress bar says.
        output: where it is shown.
    """

    def found() -> Generator[_T]:
        for package, corpus in packages.items():
            with contextlib.closing(work(package, corpus)) as items:
                for item in items:
                    named: Any = item
                    yield replace(named, module=module_name(packages, package, named.module))

    with contextlib.closing(found()) as items:
        yield from output.track(items, doing, sum(map(len, packages.values())))


def rolled_out(
    packages: Mapping[str, Corpus],
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    options: argparse.Namespace,
    output: Output,
    **settings: Any,
) -> Iterator[ModuleReport]:
    """Roll policies out over packages, as the options of `add_compilation_options` say.

    Args:
        packages: corpora by the names of their packages.
        policies: by name.
        problem: what LLVM asks for.
        options: of the command line.
        output: where progress is shown.
        **settings: more of `mlgo_gym.rollout.rollout`.
    """

    def work(_: str, corpus: Corpus) -> Generator[ModuleReport]:
        return rollout(
            corpus,
            policies,
            problem,
            opt_level=options.opt_level,
            jobs=options.jobs,
            timeout_s=options.timeout,
            **settings,
        )

    return over_packages(packages, work, "compiling", output)


def module_name(packages: Mapping[str, Corpus], package: str, module: str) -> str:
    """What a module is called among all."""
    return module if len(packages) == 1 else f"{package}/{module}"


def module_names(packages: Mapping[str, Corpus]) -> dict[str, tuple[str, str]]:
    """The modules by what they are called, in order: their packages and their own names."""
    return {
        module_name(packages, package, module): (package, module)
        for package, corpus in packages.items()
        for module in corpus
    }


def module_reader(packages: Mapping[str, Corpus]) -> Callable[[str], Module]:
    """What reads a module by what it is called."""
    names = module_names(packages)

    def read(name: str) -> Module:
        package, own = names[name]
        return packages[package][own]

    return read


def folder_of(packages: Mapping[str, Corpus], folder: Path, package: str) -> Path:
    """Where in a folder the results of a package go."""
    return folder if len(packages) == 1 else folder / package.lstrip("/")
