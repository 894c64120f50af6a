"""Workloads of a corpus: their modules and their hashes."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from corpus_tools.errors import CorpusToolsError
from corpus_tools.staging import WORKLOADS, digests_of
from corpus_tools.workloads import DESCRIPTION, Workload, load_workloads
from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import Corpus
from mlgo_gym.llvm import options_of


def find_workloads(
    corpus: Corpus, names: Sequence[str] = (), *, folder: Path | None = None
) -> dict[str, Workload]:
    """The workloads of a corpus by their names; all, where none are named.

    Args:
        corpus: whose.
        names: which.
        folder: where they are described; ``None`` is where the corpus has them.

    Raises:
        WorkloadError: one is not as it must be, there is none of a name, or none at all.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> list(find_workloads(Corpus.load(SAMPLE_CORPUS)))
    ['json']
    """
    folder = folder or corpus.folder / WORKLOADS
    try:
        known = {workload.name: workload for workload in load_workloads(folder)}
    except CorpusToolsError as error:
        raise WorkloadError(str(error)) from error
    for name in names or ("",):
        if (name or not known) and name not in known:
            found = f"those of {', '.join(known)}" if known else "none"
            called = f"workload {name!r}" if name else "workloads"
            raise WorkloadError(f"{called}: expected a description in {folder}, found {found}")
    return {name: known[name] for name in names or known}


def linked_modules(workload: Workload, corpus: Corpus) -> tuple[str, ...]:
    """The modules of a corpus that a workload's program is linked of, in the corpus's order.

    Raises:
        WorkloadError: there is none that it names.
    """
    try:
        return workload.modules_of(corpus)
    except CorpusToolsError as error:
        raise WorkloadError(str(error)) from error


def inputs_sha256(corpus: Corpus) -> str:
    """The hash of what a corpus's programs are made of and given, in hexadecimal digits.

    Raises:
        WorkloadError: a workload cannot be used.
        ModuleError: a module of one cannot be read.
    """
    linked = [linked_modules(each, corpus) for each in find_workloads(corpus).values()]
    made = digests_of(corpus.folder / WORKLOADS)
    for name in itertools.chain.from_iterable(linked):
        module = corpus[name]
        made[f"module {name}"] = f"{module.sha256} {options_of(module).settings()}"
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


def corpora_with_workloads(corpora: Mapping[str, Corpus]) -> dict[str, Corpus]:
    """Return the corpora that have workloads.

    Raises:
        WorkloadError: none has.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> list(corpora_with_workloads({"sample": Corpus.load(SAMPLE_CORPUS)}))
    ['sample']
    """
    names = Path(WORKLOADS, DESCRIPTION)
    found = {n: each for n, each in corpora.items() if (each.folder / names).is_file()}
    if not found:
        folders = ", ".join(str(each.folder / WORKLOADS) for each in corpora.values())
        raise WorkloadError(f"workloads: expected a description in {folders}, found none")
    return found
