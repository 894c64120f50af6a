"""``mlgo-gym tune``: from a build to a model for that project."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.base import OptionsError, worked_folder
from mlgo_gym.cli import Output, writing
from mlgo_gym.cli import options as shared
from mlgo_gym.model import find_model

if TYPE_CHECKING:
    from mlgo_gym.cc import Build, Project
    from mlgo_gym.corpus import Corpus, ModuleKey, Packages
    from mlgo_gym.lab.tuning._tune import TuneSetting
    from mlgo_gym.lab.tuning._tuned import Tuned

DESCRIPTION = (
    "Make a project's own build smaller. For a build, tune first writes a project file, which "
    "makes inline functions local. Then it trains a model on three quarters of the modules. On the "
    "others it chooses among LLVM's own heuristic, the model that it started from and the trained "
    "one. With --search, it also searches answers for each important module. Started again with "
    "the same folder, it continues."
)
EXAMPLE = "mlgo-gym tune --build build --budget 30m --search 20m --output tuned"

_STARTS: Final = ("inlining-for-size-derived", "inlining-for-size")
_LOCAL_STARTS: Final = ("inlining-for-size-project", "inlining-for-size")
_REPORT: Final = "report.html"
_TRACES: Final = "traces"
_PROJECT_FILE: Final = "project.txt"
_LOCAL: Final = "local"
_SETTINGS: Final = "settings.cmake"
_UNVERIFIED: Final = (
    "--verify: nothing is verified: objects of -flto have no code before they are linked; compare "
    "what the two builds link by mlgo-gym size-report"
)


def add_options(add: shared.Options) -> None:
    add.corpus()
    what = "a build by clang in place of a corpus: its folder, or its compile_commands.json"
    add("--build", "DIR", what)
    what = "a model directory to start from, or the name of one that ships; of several the best "
    what += f"(default: {' and '.join(_LOCAL_STARTS)}; of a corpus {' and '.join(_STARTS)})"
    add("--model", "DIR", what, type=find_model, many=True)
    add.output("folder for the model, the report and everything else")
    add.budget("time for all steps and all runs in the folder together", "30m")
    what = "the part of the budget for a search of the important modules, whose answers the build "
    what += "repeats; with a --build that has a compile_commands.json"
    add("--search", "TIME", what)
    what = "the size that the search minimises: linked, linked_text_gc or linked_text_icf "
    what += "(default: linked_text_icf where all has -ffunction-sections, else linked)"
    add("--reward", "REWARD", what)
    what = "write a project file of the build, and tune with it (default: yes)"
    add("--project", "", what, action=argparse.BooleanOptionalAction)
    what = "link each target plainly and as tuned, and keep LLVM's own answers for one that grows; "
    what += "with a --build that has a compile_commands.json"
    add("--verify", "", what)
    what = "learn from linkage, uses and sizes too, which mlgo-cc has where clang shares LLVM's "
    what += "library (default: yes)"
    add("--derived", "", what, action=argparse.BooleanOptionalAction)
    add.seed("everything random")
    what = "a setting of the trainer 'advantage', the value as JSON; repeat for more"
    add("--set", "NAME=VALUE", what, many=True)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cc import build_commands

    _check(options)
    # Before minutes of work: what settings are read from, and where they lead to.
    place = options.output
    build_commands(options.build, place / "model", place / _TRACES, place / _PROJECT_FILE)
    with worked_folder(place):
        return _tuned(options, output)


def _tuned(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cc import build_commands
    from mlgo_gym.lab.tuning._tune import Tuning
    from mlgo_gym.lab.tuning.commands import _show_tuned as shown

    setting = _setting(options)
    setting.check()
    project = _project(options, output)
    warnings: list[str] = list(project.failures)
    with output.line() as show:
        watcher = _watcher(show, output, warnings)
        tuning = Tuning(
            options.output,
            project.packages,
            setting,
            project.targets,
            project.plain,
            watcher,
            lto_modules=project.lto_modules,
        )
        found = tuning.run()
    if project.build and options.search:
        found, left_out = _searched(options, project.build, found, setting, output)
        warnings += left_out
    model = _model(options, found)
    traces = options.output / _TRACES if found.searched else None
    if options.verify and project.lto_modules:
        warnings.append(_UNVERIFIED)
        output.warn(_UNVERIFIED)
    elif options.verify:
        found = _verified(options, project, found, traces, output)
    commands = build_commands(
        options.build,
        model,
        traces,
        project.file,
        options.output / _SETTINGS,
        keeps_smaller=found.keeps_smaller,
    )
    how = [
        shlex.join(["mlgo-gym", *sys.argv[1:]]),
        f"Time: {shown.times(found)}.",
        f"Trainer: {', '.join(tuning.trainer())}.",
    ]
    report = options.output / _REPORT
    with output.keeping(), writing(report) as file:
        file.write(shown.page(found, f"Tuned to {_name(options)}", how, commands, warnings))
    output.print(shown.parts_grid(found), shown.targets_grid(found), found.choice.why)
    if found.verified:
        output.print(shown.verified_grid(found))
    output.print(f"Chosen: {found.choice.name}", shown.built(found))
    output.verbatim(f"Report: {report}", "To build with it:", *(f"  {each}" for each in commands))
    output.json(
        found.to_json()
        | {"model": model and str(model), "traces": traces and str(traces)}
        | {"project": project.file and str(project.file)}
        | {"report": str(report), "build": list(commands), "left_out": warnings}
    )
    output.warn_of(project.failures)
    return 0


@dataclass(frozen=True, slots=True)
class _Project:
    """The modules, what is linked of them, why others are not there, and what is searched.

    With a project file, the modules have local functions, and are there without it as well.
    ``lto_modules`` is how many the build compiles with ``-flto``.
    """

    packages: Packages
    targets: dict[str, tuple[ModuleKey, ...]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    build: Build | None = None
    plain: Packages | None = None
    file: Path | None = None
    lto_modules: int = 0


def _project(options: argparse.Namespace, output: Output) -> _Project:
    from mlgo_gym.corpus import ModuleKey, Packages

    if options.build is None:
        return _Project(shared.packages_of(options))
    if options.corpus or options.split:
        raise OptionsError("tune: expected --build without --corpus and --split")
    from mlgo_gym.cc import count_lto, known_build, open_project

    with output.line() as show:
        show("compiling the build's sources to modules")
        project = open_project(options.build, options.output, options.jobs, options.timeout)
    targets = {
        name: tuple(ModuleKey("", each) for each in modules)
        for name, modules in project.targets.items()
    }
    asked = options.search or options.verify
    build = known_build(options.build, project.corpus) if asked else None
    failures, packages = project.failures, Packages.of(project.corpus)
    lto_modules = count_lto(options.build)
    if options.project is False:
        return _Project(packages, targets, failures, build, lto_modules=lto_modules)
    with output.line() as show:
        show("reading which functions the modules share")
        file, local, failed = _localized(options, project)
    if build:
        build = replace(build, corpus=local, project=file, objects=project.objects)
    local_packages = Packages.of(local)
    failures = (*failures, *failed)
    return _Project(local_packages, targets, failures, build, packages, file, lto_modules)


def _localized(options: argparse.Namespace, project: Project) -> tuple[Path, Corpus, list[str]]:
    """Write the project file and the modules by it, unless an earlier run has."""
    from mlgo_gym.cc import localize_project, read_facts, write_project
    from mlgo_gym.corpus import Corpus

    file, folder = options.output / _PROJECT_FILE, options.output / _LOCAL
    if file.exists() and folder.exists():
        return file, Corpus.load(folder), []
    facts, unread = read_facts(project, options.jobs, options.timeout)
    _, failed = localize_project(
        project, facts, folder, jobs=options.jobs, timeout_s=options.timeout
    )
    write_project(file, facts)
    failures = [*unread, *(f"{name}: {why}" for name, why in failed.items())]
    return file, Corpus.load(folder), failures


def _check(options: argparse.Namespace) -> None:
    """See that options go together, and that a search or links have the commands of a build."""
    from mlgo_gym.cc import database_of
    from mlgo_gym.rollout import runs_programs

    asked = "--search" if options.search else "--verify" if options.verify else ""
    expected = ""
    if options.search and not options.search < options.budget:
        bounds = f"({options.budget:g}s), found {options.search:g}s"
        expected = f"--search to be less than --budget {bounds}"
    elif options.verify and options.project is False:
        expected = "--verify without --no-project, whose file says what keeps LLVM's own answers"
    elif asked and options.build is None:
        expected = f"{asked} with --build, by whose commands sources are compiled again"
    elif options.reward and not options.search:
        expected = "--reward with --search, which goes by it"
    elif options.reward and runs_programs(options.reward):
        expected = f"a reward for which no program runs, found {options.reward!r}"
    if expected:
        raise OptionsError(f"tune: expected {expected}")
    if asked:
        database_of(options.build)


def _searched(
    options: argparse.Namespace, build: Build, found: Tuned, setting: TuneSetting, output: Output
) -> tuple[Tuned, list[str]]:
    """Return the tuned project with a search's answers, and why modules have none."""
    from mlgo_gym.lab.tuning._searched import TuneSearch

    model = _model(options, found)
    left_s = setting.budget_s - sum(found.spent_s.values())  # training may end early
    how = (setting.problem, model, left_s, setting.jobs, setting.timeout_s, options.reward)
    search = TuneSearch(
        *how, track=lambda each, count: output.track(each, "searching", count), warn=output.warn
    )
    found, answers = search.run(build, found, options.output / _TRACES)
    return found, [f"{name}: {reason}" for name, reason in answers.items() if reason]


def _verified(
    options: argparse.Namespace,
    project: _Project,
    found: Tuned,
    traces: Path | None,
    output: Output,
) -> Tuned:
    """Return the tuned project with what linking says; the project file has what comes of it."""
    from mlgo_gym.cc import driver_settings, mark_plain
    from mlgo_gym.lab.tuning._tuned import verify

    if project.build is None or project.file is None:
        return found
    start = monotonic()
    mark_plain(project.file, ())
    settings = driver_settings(
        _model(options, found), traces, project.file, keeps_smaller=found.keeps_smaller
    )
    with output.line() as show:
        show("linking each target plainly and as tuned")
        workers = shared.workers_of(options)
        verified = verify(project.build, found.targets, settings, **workers)
    mark_plain(project.file, [name for name, each in verified.items() if each.why])
    spent_s = {**found.spent_s, "verifying": monotonic() - start}
    return replace(found, verified=verified, spent_s=spent_s)


def _model(options: argparse.Namespace, found: Tuned) -> Path | None:
    from mlgo_gym.rollout import BASELINE

    return None if found.choice.name == BASELINE else options.output / "model"


def _setting(options: argparse.Namespace) -> TuneSetting:
    from mlgo_gym.lab.tuning._tune import TuneSetting
    from mlgo_gym.problems import InliningForSize
    from mlgo_gym.runners import problem_of_models

    options.derived = options.derived is not False
    has_project = options.build is not None and options.project is not False
    first, *others = _LOCAL_STARTS if has_project else _STARTS
    starts = [first, *others] if options.derived else others
    models = options.model or [find_model(name) for name in starts]
    kind = problem_of_models(models)
    if kind is not InliningForSize:
        raise OptionsError(
            f"tune: expected a model for {InliningForSize.name}, found one for {kind.name}"
        )
    return TuneSetting(
        tuple(map(Path, models)),
        shared.make_problem(InliningForSize, options),
        options.budget,
        options.search or 0.0,
        options.seed,
        settings=tuple(options.set),
        **shared.workers_of(options),
    )


def _watcher(show: Any, output: Output, warnings: list[str]) -> Any:
    from mlgo_gym.cli import Shown

    class Kept(Shown):
        """A report whose left-out modules are listed as well."""

        def warn(self, message: str) -> None:
            warnings.append(message)
            super().warn(message)

    return Kept(show, output)


def _name(options: argparse.Namespace) -> str:
    given = [options.build] if options.build else options.corpus
    return ", ".join(str(each) for each in given) or "the sample"
