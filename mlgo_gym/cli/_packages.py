"""Packages under policies, behind a progress bar."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import ModuleReport, rollout


def rolled_out(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    options: argparse.Namespace,
    output: Output,
    **settings: Any,
) -> Iterator[ModuleReport]:
    """Roll policies out over packages, as the options of `add_compilation_options` say.

    Args:
        packages: the modules; reports call them by their labels (`Packages.label`).
        policies: by name.
        problem: what LLVM asks for.
        options: of the command line.
        output: where progress is shown.
        **settings: more of `mlgo_gym.rollout.rollout`.
    """
    reports = rollout(
        packages,
        policies,
        problem,
        opt_level=options.opt_level,
        jobs=options.jobs,
        timeout_s=options.timeout,
        **settings,
    )
    for report in output.track(reports, "compiling", len(packages)):
        yield replace(report, module=packages.label(report.key), package="")
