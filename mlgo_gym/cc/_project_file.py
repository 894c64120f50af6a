"""Project files: the functions that objects of a build's targets share, for ``mlgo-cc``.

::

    mlgo-gym project 1
    target NAME          for each target, sorted by NAME
    plain                where its objects are to be clang's own
    exported             where its command line says what is exported
    object PATH          for each of its objects, below the build's folder, sorted
    HASH                 for each function that they share, sorted
    end

A function that only one object of a target has, and no other needs, can be local to it:
``native/project.c`` reads the file, ``native/local.c`` makes functions local in clang's process.

`localize_project` writes a corpus whose modules are as ``mlgo-cc --mlgo-project`` hands them to
LLVM's pipeline. Whatever takes a corpus then sees the project as clang will. The bitcode is
another, all else is the corpus's::

    corpus_info.json    {..., "local_functions": {MODULE: how many functions became local}}
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from corpus_tools.manifest import Manifest
from corpus_tools.staging import INFO_NAME, staged_corpus
from mlgo_gym.base import MlgoGymError, OptionsError, read_bounded, write_atomically, write_json
from mlgo_gym.cc._project import Project
from mlgo_gym.corpus import Corpus, corpus_info, read_elf
from mlgo_gym.llvm import (
    Compiler,
    Jobs,
    LocalizeRequest,
    SymbolsRequest,
    each,
    local_symbols,
    name_hash,
)

FIRST_LINE: Final = "mlgo-gym project 1"
LAST_LINE: Final = "end"
PLAIN: Final = "plain"
MAX_BYTES: Final = 1 << 26
ALL: Final = "all"
"""The target of all modules, where a build does not say what it links."""

_MAX_OBJECT_BYTES: Final = 1 << 30
_COUNTS: Final = "local_functions"
_DIGEST: Final = "recipe_digest"

_MAIN: Final = "main"
_ALIASED: Final = re.compile(r"[CD]\d")
"""Constructors and destructors, of which one may be another name of the other in its object."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names of functions in a module.

    Attributes:
        defined: functions with a definition that other modules can refer to.
        merged: defined functions of which a linker keeps one copy (``linkonce_odr``).
        needed: functions that are referred to and defined elsewhere.
    """

    defined: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A target, its objects, and the hashes of the functions that they share."""

    name: str
    objects: tuple[str, ...]
    shared: frozenset[str]
    is_exported: bool = False


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """The hashes of functions of which an object keeps its copy visible to linkers.

    Where a link says what is exported, only hidden functions can be local.
    """

    shared: frozenset[str] = frozenset()
    is_exported: bool = False


def facts_of(
    targets: Mapping[str, tuple[str, ...]],
    symbols: Mapping[str, Symbols],
    *,
    objects: Mapping[str, str],
    exported: Iterable[str] = (),
    others: Iterable[str] = (),
    unlinked: bool = False,
) -> list[TargetFacts]:
    """Return the facts of each target: functions are shared that several objects have or need.

    Args:
        targets: the names of modules, by target.
        symbols: of each module.
        objects: the path of each module's object, below the build's folder.
        exported: targets whose link says what is exported.
        others: names of symbols in objects without bitcode.
        unlinked: a target is all that a build makes; not all of it is linked together.
    """
    needed = frozenset(others).union(*(each.needed for each in symbols.values()))
    defined = frozenset().union(*(each.defined for each in symbols.values()))
    aliases = {name for name in needed - defined if _ALIASED.search(name)}
    said = frozenset(exported)
    facts = []
    for target in sorted(targets):
        modules = [symbols[each] for each in targets[target] if each in symbols]
        copies = Counter(name for each in modules for name in each.defined)
        merged = frozenset().union(*(each.merged for each in modules))
        alone = _never_together(modules) if unlinked else frozenset()
        shared = {
            name for name in merged if (copies[name] > 1 and name not in alone) or name in needed
        } | aliases
        paths = sorted(objects[each] for each in targets[target] if each in symbols)
        hashes = frozenset(map(name_hash, shared))
        facts.append(TargetFacts(target, tuple(paths), hashes, target in said))
    return facts


def _never_together(modules: Iterable[Symbols]) -> frozenset[str]:
    """Functions whose copies no program has two of: their objects define all else twice, or main.

    Libtool compiles a source for the shared and for the static library. Programs each have a main.
    """
    ways: dict[str, set[frozenset[str] | int]] = defaultdict(set)
    libraries: set[str] = set()
    for number, module in enumerate(modules):
        own = module.defined - module.merged
        for name in module.defined:
            ways[name].add(own or number)
        if _MAIN not in own:
            libraries |= module.defined
    return frozenset(name for name, of in ways.items() if len(of) == 1 or name not in libraries)


def object_facts(facts: Iterable[TargetFacts]) -> dict[str, ObjectFacts]:
    """Return what holds for each object, which several targets may link."""
    found: dict[str, ObjectFacts] = {}
    for target in facts:
        for name in target.objects:
            known = found.get(name, ObjectFacts())
            found[name] = ObjectFacts(
                known.shared | target.shared, known.is_exported or target.is_exported
            )
    return found


def project_text(facts: Iterable[TargetFacts]) -> str:
    """Return the text of a project file."""
    lines = [FIRST_LINE, *(line for each in facts for line in _lines(each)), LAST_LINE]
    for line in lines:
        if "\n" in line:
            raise OptionsError(f"project: expected a name without line breaks, found {line!r}")
    return "\n".join(lines) + "\n"


def write_project(path: Path, facts: Iterable[TargetFacts]) -> None:
    """Write a project file.

    Raises:
        OptionsError: it cannot be written, or a name holds a line break.
    """
    text = project_text(facts).encode("utf-8", "surrogateescape")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise OptionsError(f"cannot write {str(path)!r}: {error.strerror}") from error


def mark_plain(path: Path, targets: Iterable[str]) -> None:
    """Let the objects of some targets of a project file, and of no others, be clang's own.

    Raises:
        OptionsError: it cannot be read or written.
    """
    marked = {f"target {each}" for each in targets}
    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8", "surrogateescape")
        lines = [
            f"{line}\n{PLAIN}" if line in marked else line
            for line in text.split("\n")
            if line != PLAIN
        ]
        write_atomically(path, "\n".join(lines).encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise OptionsError(f"cannot rewrite {str(path)!r}: {error.strerror}") from error


def _lines(facts: TargetFacts) -> Iterator[str]:
    yield f"target {facts.name}"
    if facts.is_exported:
        yield "exported"
    yield from (f"object {each}" for each in facts.objects)
    yield from sorted(facts.shared)


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
    """Yield the names of symbols in objects without bitcode. Missing objects are skipped."""
    for path in objects:
        if not Path(path).exists():
            continue
        try:
            elf = read_elf(read_bounded(Path(path), _MAX_OBJECT_BYTES))
        except OSError as error:
            raise OptionsError(f"cannot read {path!r}: {error.strerror}") from error
        if elf is None:
            raise OptionsError(f"object {path!r}: expected an ELF object, found something else")
        yield from (str(symbol.name) for symbol in elf.symtab_symbols if symbol.name)


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
