"""``mlgo-gym explain``: what a model decides differently, where, and what comes of it."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpus_tools.command_line import whole
from mlgo_gym.cli import _options as shared
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.errors import CorpusError, OptionsError

if TYPE_CHECKING:
    from mlgo_gym.corpus._packages import ModuleKey, Packages
    from mlgo_gym.evaluation._decision_changes import ModuleChange
    from mlgo_gym.evaluation._decisions import Executed, PlacedDecisions
    from mlgo_gym.problems._policy import PolicyLike

DESCRIPTION = (
    "Compare the inlining decisions of a model with LLVM's, or of two models: where their ways "
    "part, which functions change, which calls were decided differently in them, and how much code "
    "came of each."
)
EXAMPLE = "mlgo-gym explain --model inlining-for-size --html explained.html"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--module", "NAME", "only this module", many=True)
    add.model("what is compared with LLVM; two are compared, models before policies", many=True)
    add.policy(many=True)
    add.seed()
    add("--functions", "N", "show the N functions that changed most", 10, type=whole(1))
    what = "run the programs of corpora that have workloads, and count instructions by call"
    add("--run", "", what, dest="with_programs")
    add("--decisions", "FILE", "write all decisions, as Parquet")
    add("--html", "FILE", "write a page of it")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli.show import _decisions as shown
    from mlgo_gym.cli.show._page import as_page
    from mlgo_gym.evaluation._decision_changes import compare_decisions
    from mlgo_gym.evaluation._decisions import placed_decisions
    from mlgo_gym.evaluation._evaluate import Setting
    from mlgo_gym.evaluation._executed import executed_programs
    from mlgo_gym.problems._inlining_for_size import InliningForSize

    packages = whole_packages = shared.packages_of(options)
    if options.module:
        packages = packages.only(_named(packages, options.module))
        chosen = {key.package for key in packages}
        whole_packages = whole_packages.only(key for key in whole_packages if key.package in chosen)
    problem = shared.make_problem(InliningForSize, options)
    setting = Setting(problem, **shared.compilation_of(options))
    changes: list[ModuleChange] = []
    placed: defaultdict[str, list[PlacedDecisions]] = defaultdict(list)
    errors: list[str] = []
    with shared.policies_of(options, problem) as policies:
        pair = _pair(policies, problem.policy())
        executed: dict[tuple[str, str], Executed] = {}
        if options.with_programs:
            runs = executed_programs(whole_packages, pair, setting)
            executed |= output.track(runs, "running", len(pair) * len(whole_packages.named))
        found = placed_decisions(packages, pair, setting, executed)
        for done in output.track(found, "compiling", len(packages)):
            if done.error:
                errors.append(str(done.error))
                continue
            changes.append(compare_decisions(*done.value.values()))
            if options.decisions:
                for name, each in done.value.items():
                    placed[name].append(each)
    if options.decisions:
        from mlgo_gym.evaluation._decision_table import write_decisions

        with writing(options.decisions) as file:
            write_decisions(file, placed, problem)
    before, after = pair
    sections = shown.sections(changes, (before, after), options.functions)
    if options.html:
        with writing(options.html) as file:
            file.write(as_page(*shown.headings((before, after)), sections))
    output.print(*(part for _, parts in sections for part in parts))
    output.json(shown.changes_record(changes, (before, after)) | {"errors": errors})
    return output.warn_of(errors)


def _named(packages: Packages, names: Sequence[str]) -> list[ModuleKey]:
    """The modules of these names, in any package."""
    for name in names:
        if not any(key.name == name for key in packages):
            raise CorpusError(
                f"corpus: expected a module {name!r}, found none among {len(packages)}"
            )
    return [key for key in packages if key.name in names]


def _pair(policies: dict[str, PolicyLike], own: PolicyLike) -> dict[str, PolicyLike]:
    """The two policies that are compared: LLVM's own is the first of one."""
    if len(policies) == 1:
        return {"LLVM's own" if "LLVM" in policies else "LLVM": own, **policies}
    if len(policies) != 2:
        raise OptionsError(f"expected one or two models or policies, found {len(policies)}")
    return policies
