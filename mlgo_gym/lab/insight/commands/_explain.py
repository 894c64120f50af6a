"""``mlgo-gym explain``: what a model decides differently, where, and what comes of it."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from corpus_tools.command_line import whole
from mlgo_gym.base import CorpusError, OptionsError, TraceError
from mlgo_gym.cli import Output, write_all, writing
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from pathlib import Path

    from mlgo_gym.cli import Content, Section
    from mlgo_gym.corpus import ModuleKey, Packages
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.insight._decision_changes import ModuleChange
    from mlgo_gym.lab.insight._placed_decisions import ExecutedProgram, PlacedDecisions
    from mlgo_gym.lab.insight._source import SourceFolder
    from mlgo_gym.llvm import Done
    from mlgo_gym.problems import PolicyLike, Problem


DESCRIPTION = (
    "Compare the inlining decisions of a model with LLVM's, or of two models: where they first "
    "differ, which functions change, which calls in them were decided differently, and how much "
    "code each call adds."
)
EXAMPLE = "mlgo-gym explain --model inlining-for-size --html explained.html"


def add_options(add: shared.Options) -> None:
    add.corpus()
    what = "explain the sources of a build, by its compile_commands.json, in place of a corpus"
    add("--build", "FILE", what)
    add("--module", "NAME", "only this module; repeat for more", many=True)
    add.model("a model to compare with LLVM; give two to compare them", many=True)
    add.policy(many=True)
    add("--trace", "FILE", "a recorded compilation of a module, as one more policy", many=True)
    add.seed()
    add("--functions", "N", "show the N functions that changed most", 10, type=whole(1))
    what = "run the programs of corpora that have workloads, and count instructions by call"
    add("--run", "", what, dest="with_programs")
    add.file("--decisions", "write all decisions, as Parquet or, in a file *.json, as JSON")
    add.file("--html", "write a page of it, with the IR of functions")
    what = (
        "with --html: show the source, where the bitcode has lines, of files in this folder alone"
    )
    add("--source", "DIR", what, may_hold_outputs=True)
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.insight._source import SourceFolder
    from mlgo_gym.lab.insight.commands import _show_decisions as shown
    from mlgo_gym.problems import InliningForSize

    source = SourceFolder(options.source) if options.source else None
    problem = shared.make_problem(InliningForSize, options)
    setting = Setting(problem, **shared.compilation_of(options))
    with ExitStack() as stack:
        whole, failures = _modules(options, stack)
        packages = whole.only(_named(whole, options.module)) if options.module else whole
        recorded, packages = _recorded(options.trace, packages, setting)
        policies = dict(recorded)
        if not recorded or options.model or options.policy:
            policies = stack.enter_context(shared.policies_of(options, problem)) | recorded
        found = _Explained(_pair(policies, problem.policy()), setting, options, output)
        found.explain(packages, whole)
        sections = shown.sections(found.changes, found.names, options.functions)
        page = [*found.sources(source), *found.functions(packages)] if options.html else []
    output.print(*(part for _, parts in sections for part in parts))
    output.json(shown.changes_record(found.changes, found.names) | {"errors": found.errors})
    steps: list[Callable[[], None]] = []
    if options.decisions:
        steps.append(partial(_write_decisions, options.decisions, found.placed, problem))
    if options.html:
        steps.append(partial(_write_page, options.html, found.names, [*sections, *page]))
    write_all(*steps)
    return output.warn_of([*failures, *found.errors])


def _write_decisions(
    path: Path, placed: Mapping[str, Sequence[PlacedDecisions]], problem: Problem
) -> None:
    from mlgo_gym.lab.insight._decision_table import write_decisions

    with writing(path) as file:
        write_decisions(file, placed, problem, as_json=path.suffix == ".json")


def _write_page(path: Path, names: tuple[str, str], sections: Sequence[Section]) -> None:
    from mlgo_gym.cli import as_page
    from mlgo_gym.lab.insight.commands._show_decisions import headings

    with writing(path) as file:
        file.write(as_page(*headings(names), sections))


def _modules(options: argparse.Namespace, stack: ExitStack) -> tuple[Packages, tuple[str, ...]]:
    """The modules of a corpus or of a build, and why others are not there."""
    if options.build is None:
        return shared.packages_of(options), ()
    if options.corpus or options.with_programs:
        raise OptionsError("explain: expected --build without --corpus and --run")
    from mlgo_gym.cc import open_build
    from mlgo_gym.corpus import Packages

    build = stack.enter_context(open_build(options.build, options.jobs, options.timeout))
    return Packages.of(build.corpus), build.failures


def _recorded(
    paths: Sequence[Path], packages: Packages, setting: Setting
) -> tuple[dict[str, PolicyLike], Packages]:
    from mlgo_gym.llvm import options_of
    from mlgo_gym.rollout import RecordedPolicy, Trace, check_settings

    if not paths:
        return {}, packages
    traces = [Trace.load(path) for path in paths]
    keys = {packages[key].sha256: key for key in packages}
    for path, trace in zip(paths, traces, strict=True):
        if trace.module_sha256 not in keys:
            what = f"expected the trace of one of {len(packages)} modules, found {trace.module!r}"
            raise TraceError(str(path), f"{what} of other bitcode")
        options = options_of(packages[keys[trace.module_sha256]], setting.opt_level)
        check_settings(trace, setting.problem, options)
    chosen = [keys[trace.module_sha256] for trace in traces]
    policy = RecordedPolicy(traces, setting.problem.policy())
    return {"trace": policy}, packages.only(dict.fromkeys(chosen))


def _named(packages: Packages, names: Sequence[str]) -> list[ModuleKey]:
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


class _Explained:
    """The findings about modules, one after the other, under two policies."""

    def __init__(
        self,
        policies: dict[str, PolicyLike],
        setting: Setting,
        options: argparse.Namespace,
        output: Output,
    ) -> None:
        from mlgo_gym.lab.insight._decision_changes import DecidedLines

        before, after = policies
        self.names = before, after
        self.errors: list[str] = []
        self._policies = policies
        self._setting, self._options, self._output = setting, options, output
        self.changes: list[ModuleChange] = []
        self.placed: defaultdict[str, list[PlacedDecisions]] = defaultdict(list)
        self._lines = DecidedLines()
        self._answers: dict[ModuleKey, tuple[list[int], list[int]]] = {}

    def explain(self, packages: Packages, whole: Packages) -> None:
        """Compile modules; programs are of all modules of their packages."""
        from mlgo_gym.lab.insight._placed_decisions import executed_programs, placed_decisions
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
        self.changes.append(compare_decisions(before, after))
        self._lines.add(before, after)
        one, other = ([each.answer for each in placed.decisions] for placed in (before, after))
        self._answers[done.item] = one, other
        for name, each in done.value.items() if self._options.decisions else ():
            self.placed[name].append(each)

    def sources(self, folder: SourceFolder | None) -> list[Section]:
        """The lines of the source that decisions are about, of files in the folder."""
        from mlgo_gym.lab.insight.commands._show_decisions import source_listing

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
        from mlgo_gym.lab.insight._decision_changes import function_texts
        from mlgo_gym.lab.insight.commands._show_decisions import changed_most, function_sections

        most = changed_most(self.changes, self._options.functions).values()
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
