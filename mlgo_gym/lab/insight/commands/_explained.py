"""The findings of ``mlgo-gym explain``, and the page that it writes."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlgo_gym.cli import Output, writing

if TYPE_CHECKING:
    from pathlib import Path

    from mlgo_gym.cli import Content, Grid, Section, SourceFolder
    from mlgo_gym.corpus import ModuleKey, Packages
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.insight._decision_changes import ModuleChange
    from mlgo_gym.lab.insight._placed_decisions import ExecutedProgram, PlacedDecisions
    from mlgo_gym.llvm import Done
    from mlgo_gym.problems import PolicyLike


class Explained:
    """The findings about modules, one after the other, under two policies."""

    def __init__(
        self,
        policies: dict[str, PolicyLike],
        setting: Setting,
        options: argparse.Namespace,
        output: Output,
    ) -> None:
        from mlgo_gym.lab.insight._lines import DecidedLines

        before, after = policies
        self.names = before, after
        self.errors: list[str] = []
        self._policies = policies
        self._setting, self._options, self._output = setting, options, output
        self._changes: list[ModuleChange] = []
        self._placed: defaultdict[str, list[PlacedDecisions]] = defaultdict(list)
        self._lines = DecidedLines()
        self._answers: dict[ModuleKey, tuple[list[int], list[int]]] = {}

    def explain(self, packages: Packages, whole: Packages) -> None:
        """Compile modules; programs are of all modules of their packages."""
        from mlgo_gym.lab.insight._executed_programs import executed_programs
        from mlgo_gym.lab.insight._placed_decisions import placed_decisions
        from mlgo_gym.lab.programs import corpora_with_workloads

        executed: dict[tuple[str, str], Sequence[ExecutedProgram]] = {}
        if self._options.with_programs:
            chosen = {key.package for key in packages}
            run = whole.only(key for key in whole if key.package in chosen)
            corpora = corpora_with_workloads(run.named)
            runs = executed_programs(corpora, self._policies, self._setting)
            executed |= self._output.track(runs, "running", len(self._policies) * len(corpora))
        made = placed_decisions(packages, self._policies, self._setting, executed)
        for done in self._output.track(made, "compiling", len(packages)):
            self._add(done)

    def _add(self, done: Done[ModuleKey, dict[str, PlacedDecisions]]) -> None:
        from mlgo_gym.lab.insight._decision_changes import compare_decisions

        if done.error:
            self.errors.append(str(done.error))
            return
        before, after = done.value.values()
        self._changes.append(compare_decisions(before, after))
        self._lines.add(before, after)
        one, other = ([each.answer for each in placed.decisions] for placed in (before, after))
        self._answers[done.item] = one, other
        for name, each in done.value.items() if self._options.decisions else ():
            self._placed[name].append(each)

    def sections(self) -> list[tuple[str, list[Grid | str]]]:
        """Return the sections of terminals and pages."""
        from mlgo_gym.lab.insight.commands._show_decisions import sections

        return sections(self._changes, self.names, self._options.functions)

    def write_decisions(self) -> None:
        """Write all decisions to the file that the options name."""
        from mlgo_gym.lab.insight._decision_table import write_decisions

        with writing(self._options.decisions) as file:
            as_json = self._options.decisions.suffix == ".json"
            write_decisions(file, self._placed, self._setting.problem, as_json=as_json)

    def show(self, sections: list[tuple[str, list[Grid | str]]]) -> None:
        """Print the sections, or the record as JSON."""
        from mlgo_gym.lab.insight.commands._show_decisions import changes_record

        self._output.print(*(part for _, parts in sections for part in parts))
        self._output.json(changes_record(self._changes, self.names) | {"errors": self.errors})

    def sources(self, folder: SourceFolder | None) -> list[Section]:
        """The lines of the source that decisions are about, of files in the folder."""
        from mlgo_gym.lab.insight.commands._show_decision_page import source_listing

        if folder is None:
            return []
        parts: list[Content] = []
        for file, decided in self._lines.files().items():
            try:
                parts.append(source_listing(file, folder.lines(file), decided))
            except OSError as error:
                parts.append(f"{file}: {error.strerror}")
        return [("Source", parts or ["The bitcode has no lines of the source."])]

    def functions(self, packages: Packages) -> list[Section]:
        """The IR of the functions that are shown, for which their modules are compiled again."""
        from mlgo_gym.lab.insight._function_texts import function_texts
        from mlgo_gym.lab.insight.commands._show_decision_page import function_sections
        from mlgo_gym.lab.insight.commands._show_decisions import changed_most

        most = changed_most(self._changes, self._options.functions).values()
        chosen = [each for functions in most for each in functions]
        texts = function_texts(packages, chosen, self._answers, self._setting)
        parts: list[Content] = []
        modules = {each.key for each in chosen}
        for done in self._output.track(texts, "printing functions", len(modules)):
            if done.error:
                self.errors.append(str(done.error))
            else:
                parts += function_sections(done.value, self.names)
        return [("Functions", parts)] if parts else []


def write_page(path: Path, names: tuple[str, str], sections: Sequence[Section]) -> None:
    """Write the sections as a page."""
    from mlgo_gym.cli import as_page
    from mlgo_gym.lab.insight.commands._show_decisions import headings

    with writing(path) as file:
        file.write(as_page(*headings(names), sections))
