"""``search --build``: what a build compiles, searched and kept for ``mlgo-cc --mlgo-traces``."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Extension, Output

if TYPE_CHECKING:
    from mlgo_gym.cli.options import Options


class SearchBuildExtension(Extension):
    """``search --build``."""

    commands: ClassVar[Collection[str]] = ("search",)

    def add_options(self, add: Options, command: str) -> None:
        """Add ``--build``."""
        del command
        what = "search the sources of a build, by its compile_commands.json, and also write the "
        what += "answers for 'mlgo-cc --mlgo-traces'"
        add("--build", "DIR", what)

    @contextmanager
    def running(self, options: argparse.Namespace, output: Output) -> Iterator[None]:
        """Have ``search`` take its modules from the build."""
        del output
        if options.command == "search" and options.build is not None:
            if getattr(options, "ray", None):
                what = "clang compiles a build here"
                raise OptionsError(f"search: expected --build without --ray: {what}")
            options.run = _run
        yield


def _run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import inlining_problem_of, searched
    from mlgo_gym.corpus import Packages
    from mlgo_gym.problems import InliningForSize
    from mlgo_gym.rollout import runs_programs

    problem = inlining_problem_of(options)
    if replace(problem, derived=False) != InliningForSize() or options.corpus or options.opt_level:
        raise OptionsError(
            "search: expected --build with LLVM's own settings and no --corpus or --opt-level"
        )
    if isinstance(options.output, str):
        raise OptionsError(
            f"search: expected --build with --output on this machine, found {options.output!r}"
        )
    if options.reward and runs_programs(options.reward):
        raise OptionsError(
            f"search: expected --build with a reward that runs no programs, found "
            f"{options.reward!r}: a build has no workloads"
        )
    from mlgo_gym.cc._project import database_of
    from mlgo_gym.cc._traces import open_build, unrepeatable, write_answers

    database = database_of(options.build)
    with open_build(database, options.jobs, options.timeout) as build:
        left = unrepeatable(build, build.corpus, options.jobs, options.timeout)
        if len(left) == len(build.corpus):
            raise OptionsError(
                f"build: expected modules whose answers clang repeats: {'; '.join(left.values())}"
            )
        corpus = build.corpus.only(name for name in build.corpus if name not in left)
        found, status = searched(options, output, problem, Packages.of(corpus))
        made = write_answers(build, found, options.output, options.jobs, options.timeout)
    kept = sum(reason is None for reason in made.values())
    output.print(f"{kept} of {len(found)} modules are smaller by answers that clang repeats")
    for name, reason in made.items():
        if reason:
            output.warn(f"{name}: {reason}")
    reasons = (f"{name}: {reason}" for name, reason in left.items())
    return max(status, output.warn_of((*build.failures, *reasons)))
