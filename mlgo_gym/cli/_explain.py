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
    from pathlib import Path

    from mlgo_gym.cli._source import SourceFolder
    from mlgo_gym.cli.show._page import Content, Section
    from mlgo_gym.corpus._packages import ModuleKey, Packages
    from mlgo_gym.evaluation._decision_changes import ModuleChange
    from mlgo_gym.evaluation._decisions import Executed, PlacedDecisions
    from mlgo_gym.evaluation._evaluate import Setting
    from mlgo_gym.llvm._schedule import Done
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
    add("--html", "FILE", "write a page of it, with the IR of functions")
    what = (
        "with --html: show the source, where the bitcode has lines, of files in this folder alone"
    )
    add("--source", "DIR", what)
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli._source import SourceFolder
    from mlgo_gym.cli.show import _decisions as shown
    from mlgo_gym.evaluation._decisions import placed_decisions
    from mlgo_gym.evaluation._evaluate import Setting
    from mlgo_gym.evaluation._executed import executed_programs
    from mlgo_gym.problems._inlining_for_size import InliningForSize

    source = SourceFolder(options.source) if options.source else None
    packages = whole_packages = shared.packages_of(options)
    if options.module:
        packages = packages.only(_named(packages, options.module))
        chosen = {key.package for key in packages}
        whole_packages = whole_packages.only(key for key in whole_packages if key.package in chosen)
    problem = shared.make_problem(InliningForSize, options)
    setting = Setting(problem, **shared.compilation_of(options))
    with shared.policies_of(options, problem) as policies:
        pair = _pair(policies, problem.policy())
        found = _Explained(tuple(pair), keeps_all=bool(options.decisions))
        executed: dict[tuple[str, str], Executed] = {}
        if options.with_programs:
            runs = executed_programs(whole_packages, pair, setting)
            executed |= output.track(runs, "running", len(pair) * len(whole_packages.named))
        made = placed_decisions(packages, pair, setting, executed)
        for done in output.track(made, "compiling", len(packages)):
            found.add(done)
    if options.decisions:
        from mlgo_gym.evaluation._decision_table import write_decisions

        with writing(options.decisions) as file:
            write_decisions(file, found.placed, problem)
    sections = shown.sections(found.changes, found.names, options.functions)
    if options.html:
        own = found.sources(source) + found.functions(packages, setting, options.functions, output)
        _write_page(options.html, found.names, [*sections, *own])
    output.print(*(part for _, parts in sections for part in parts))
    output.json(shown.changes_record(found.changes, found.names) | {"errors": found.errors})
    return output.warn_of(found.errors)


class _Explained:
    """What is found of modules, one after the other, under two policies."""

    def __init__(self, names: tuple[str, ...], *, keeps_all: bool) -> None:
        from mlgo_gym.evaluation._lines import DecidedLines

        before, after = names
        self.names = before, after
        self.changes: list[ModuleChange] = []
        self.placed: defaultdict[str, list[PlacedDecisions]] = defaultdict(list)
        self.errors: list[str] = []
        self._lines = DecidedLines()
        self._answers: dict[ModuleKey, tuple[list[int], list[int]]] = {}
        self._keeps_all = keeps_all

    def add(self, done: Done[ModuleKey, dict[str, PlacedDecisions]]) -> None:
        from mlgo_gym.evaluation._decision_changes import compare_decisions

        if done.error:
            self.errors.append(str(done.error))
            return
        before, after = done.value.values()
        self.changes.append(compare_decisions(before, after))
        self._lines.add(before, after)
        one, other = ([each.answer for each in placed.decisions] for placed in (before, after))
        self._answers[done.item] = one, other
        for name, each in done.value.items() if self._keeps_all else ():
            self.placed[name].append(each)

    def sources(self, folder: SourceFolder | None) -> list[Section]:
        """The lines of the source that decisions are about, of files in the folder."""
        from mlgo_gym.cli.show._decision_page import source_listing

        if folder is None:
            return []
        parts: list[Content] = []
        for file, decided in self._lines.files().items():
            try:
                parts.append(source_listing(file, folder.lines(file), decided))
            except OSError as error:
                parts.append(f"{file}: {error.strerror}")
        return [("Source", parts or ["The bitcode has no lines of the source."])]

    def functions(
        self, packages: Packages, setting: Setting, count: int, output: Output
    ) -> list[Section]:
        """The IR of the functions that are shown, for which their modules are compiled again."""
        from mlgo_gym.cli.show._decision_page import function_sections
        from mlgo_gym.cli.show._decisions import changed_most
        from mlgo_gym.evaluation._function_texts import function_texts

        most = changed_most(self.changes, count).values()
        chosen = [each for functions in most for each in functions]
        texts = function_texts(packages, chosen, self._answers, setting)
        parts: list[Content] = []
        modules = {each.key for each in chosen}
        for done in output.track(texts, "printing functions", len(modules)):
            if done.error:
                self.errors.append(str(done.error))
            else:
                parts += function_sections(done.value, self.names)
        return [("Functions", parts)] if parts else []


def _write_page(path: Path, names: tuple[str, str], sections: Sequence[Section]) -> None:
    from mlgo_gym.cli.show._decisions import headings
    from mlgo_gym.cli.show._page import as_page

    with writing(path) as file:
        file.write(as_page(*headings(names), sections))


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
