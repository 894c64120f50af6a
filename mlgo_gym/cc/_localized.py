"""A corpus whose modules are as ``mlgo-cc --mlgo-project`` hands them to LLVM's pipeline.

Whatever takes a corpus then sees the project as clang will: environments, evaluation, training,
search. The bitcode is another, all else is the corpus's::

    corpus_info.json    {..., "local_functions": {MODULE: how many functions became local}}
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from corpus_tools.manifest import Manifest
from corpus_tools.staging import INFO_NAME, staged_corpus
from mlgo_gym.base import write_json
from mlgo_gym.cc._project import Project
from mlgo_gym.cc._project_file import TargetFacts, object_facts
from mlgo_gym.corpus import corpus_info
from mlgo_gym.llvm import Compiler, Jobs, LocalizeRequest, each, local_symbols

_COUNTS: Final = "local_functions"
_DIGEST: Final = "recipe_digest"


def localize_project(
    project: Project, targets: Iterable[TargetFacts], output: Path, *, jobs: Jobs, timeout_s: float
) -> tuple[dict[str, int], dict[str, str]]:
    """Write a corpus of a project's modules in which functions are local.

    Modules that no target links stay as they are.

    Args:
        project: the modules, and the objects that they stand for.
        targets: the facts of what is linked.
        output: the new corpus, which appears whole or not at all.
        jobs: how many modules are worked on at once.
        timeout_s: for one, in seconds.

    Returns:
        How many functions of each module became local, and why modules are left out.

    Raises:
        OutputError: something else than a corpus is at the output.
        EnvironmentSetupError: the embedded LLVM lacks a function that this takes.
    """
    corpus, places, known = project.corpus, local_symbols(), object_facts(targets)

    def work(compiler: Compiler, name: str) -> tuple[int, bytes]:
        module = corpus[name]
        facts = known.get(project.objects.get(name, ""))
        if facts is None:
            return 0, module.data
        request = LocalizeRequest(
            module.is_text, tuple(sorted(facts.shared)), facts.is_exported, places
        )
        answer, data = compiler.inquire(module, request)
        return answer["functions"], data

    counts: dict[str, int] = {}
    failures: dict[str, str] = {}
    compilers = partial(Compiler, timeout_s=timeout_s)
    running = each(corpus, work, compilers, jobs=jobs, size=corpus.size_bytes)
    with staged_corpus(output) as staged, closing(running):
        shutil.copytree(corpus.folder, staged, dirs_exist_ok=True)
        for done in running:
            path = staged / f"{done.item}.bc"
            if done.error is None:
                counts[done.item], data = done.value
                path.write_bytes(data)
            else:
                failures[done.item] = str(done.error)
                path.unlink()
        names = tuple(name for name in corpus if name in counts)
        Manifest(names, corpus.has_thinlto, corpus.global_command).write(staged)
        about = corpus_info(staged)
        about.pop(_DIGEST, None)  # it is not what the recipe makes any more
        counts = {name: counts[name] for name in names}
        write_json(staged / INFO_NAME, about | {_COUNTS: counts})
    return counts, failures
