"""The functions that modules, and objects without bitcode, define and need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from mlgo_gym.base import MlgoGymError, OptionsError, read_bounded
from mlgo_gym.cc._project import Project
from mlgo_gym.cc._project_file import Symbols, TargetFacts, facts_of
from mlgo_gym.corpus import Corpus, read_elf
from mlgo_gym.llvm import Compiler, Jobs, SymbolsRequest, each

_MAX_BYTES = 1 << 30


ALL: Final = "all"
"""The target of all modules, where a build does not say what it links."""


def read_facts(
    project: Project, jobs: Jobs, timeout_s: float
) -> tuple[list[TargetFacts], list[str]]:
    """Return the facts of a project's targets, and why modules could not be read.

    Raises:
        OptionsError: an object without bitcode cannot be read.
    """
    known: dict[str, Symbols] = {}
    failures = []
    for name, found in symbols_of(project.corpus, jobs, timeout_s):
        if isinstance(found, Symbols):
            known[name] = found
        else:
            failures.append(f"{name}: {found}")
    facts = facts_of(
        project.targets or {ALL: tuple(project.objects)},
        known,
        objects=project.objects,
        exported=project.exported,
        others=other_names(project.others),
        unlinked=not project.targets,
    )
    return facts, failures


def symbols_of(
    corpus: Corpus, jobs: Jobs, timeout_s: float
) -> Iterator[tuple[str, Symbols | MlgoGymError]]:
    """Yield the functions of each module of a corpus, or the error of one that cannot be read."""

    def work(compiler: Compiler, name: str) -> Symbols:
        module = corpus[name]
        found, _ = compiler.inquire(module, SymbolsRequest(module.is_text))
        return Symbols(*(frozenset(found[kind]) for kind in ("defined", "merged", "needed")))

    compiler = partial(Compiler, timeout_s=timeout_s)
    with closing(each(corpus, work, compiler, jobs=jobs, size=corpus.size_bytes)) as running:
        for done in running:
            yield done.item, done.value if done.error is None else done.error


def other_names(objects: Iterable[str]) -> Iterator[str]:
    """Yield the names of symbols in objects without bitcode. Missing objects are skipped.

    Raises:
        OptionsError: one that is there cannot be read, or is no ELF object.
    """
    for path in objects:
        if not Path(path).exists():
            continue
        try:
            elf = read_elf(read_bounded(Path(path), _MAX_BYTES))
        except OSError as error:
            raise OptionsError(f"cannot read {path!r}: {error.strerror}") from error
        if elf is None:
            raise OptionsError(f"object {path!r}: expected an ELF object, found something else")
        yield from (str(symbol.name) for symbol in elf.symtab_symbols if symbol.name)
