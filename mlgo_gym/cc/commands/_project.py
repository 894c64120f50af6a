"""``mlgo-gym project``: the functions that objects of a project share, for ``mlgo-cc``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpus_tools.manifest import MANIFEST_NAME
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.cc._project import Project
    from mlgo_gym.cc._project_file import TargetFacts

DESCRIPTION = (
    "Write a project file, which lists the inline functions that objects of a project share. "
    "'mlgo-cc --mlgo-project' makes all others local, so LLVM can drop them once they are inlined."
)
EXAMPLE = "mlgo-gym project --build build --output project.txt"


def add_options(add: shared.Options) -> None:
    what = "a build's folder with compile_commands.json, or with objects that hold bitcode"
    add("--build", "DIR", what)
    add("--corpus", "DIR", "or a corpus, which counts as one target")
    what = "keep the build's modules there, so that a later run compiles only what has changed"
    add.folder("--modules", what)
    add.file("--output", "the project file; keep it in version control", required=True)
    what = "write a corpus of the modules with those functions made local, for environments, "
    what += "evaluate, train and search"
    add.folder("--local", what, replaced_kind=MANIFEST_NAME)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    if (options.build is None) == (options.corpus is None):
        raise OptionsError("project: expected --build or --corpus, and not both")
    if options.modules is not None and options.build is None:
        raise OptionsError("project: expected --build beside --modules, which keeps its modules")
    if options.local is not None:
        from corpus_tools.staging import check_output

        check_output(options.local)
    if options.corpus is not None:
        from mlgo_gym.cc._project import project_of_corpus

        return _write(options, output, project_of_corpus(options.corpus))
    from mlgo_gym.cc._project import open_project

    with scratch_folder() as scratch:
        folder = options.modules or scratch / "modules"
        workers = (options.jobs, options.timeout)
        project = open_project(options.build, folder, *workers, renews=True)
        return _write(options, output, project)


def _write(options: argparse.Namespace, output: Output, project: Project) -> int:
    from mlgo_gym.cc._project_file import read_facts, write_project

    facts, unread = read_facts(project, options.jobs, options.timeout)
    failures = [*project.failures, *unread]
    with output.keeping():
        write_project(options.output, facts)
    for each in facts:
        output.print(
            f"{each.name}: objects: {len(each.objects)}, functions they share: {len(each.shared)}"
            + ("; what is exported stays" if each.is_exported else "")
        )
    local = _localized(options, output, project, facts, failures) if options.local else {}
    output.json(
        {
            "targets": [
                {
                    "name": each.name,
                    "objects": len(each.objects),
                    "shared": len(each.shared),
                    "exported": each.is_exported,
                }
                for each in facts
            ],
            "local_functions": local,
            "failures": failures,
        }
    )
    return output.warn_of(failures)


def _localized(
    options: argparse.Namespace,
    output: Output,
    project: Project,
    facts: Sequence[TargetFacts],
    failures: list[str],
) -> dict[str, int]:
    """Write the corpus of local functions: how many each module has."""
    from mlgo_gym.cc._project_file import localize_project

    counts: dict[str, int] = {}
    failed: dict[str, str] = {}
    with output.keeping():
        counts, failed = localize_project(
            project, facts, options.local, jobs=options.jobs, timeout_s=options.timeout
        )
    failures += (f"{name}: {why}" for name, why in failed.items())
    output.print(f"{sum(counts.values())} functions of {len(counts)} modules are local")
    return counts
