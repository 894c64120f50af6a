"""Answers that search finds for a build's modules, as ``mlgo-cc --mlgo-traces`` reads them.

A folder of traces has ``answers.txt``, small and made for version control, in ASCII::

    mlgo-gym answers 1
    KEY QUESTIONS COUNT ANSWERS NAME
    end

with a line for each module, sorted by name. KEY stands for the module: its source as the
preprocessor leaves it, the options that count, and clang's version; ``--mlgo-traces-key`` tells it.
QUESTIONS is the first half, in 32 hexadecimal digits, of the BLAKE2b-256 of the header that LLVM
sends, then each observation and a byte with its answer. ANSWERS has a hexadecimal digit for each
four of COUNT answers, the first in the lowest bit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.code import code_sections
from corpus_tools.errors import CompileError, CorpusToolsError
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.inputs import Outcome, Status
from corpus_tools.extraction.recompile import BuildCommand, list_commands
from corpus_tools.extraction.store import open_store
from corpus_tools.manifest import describe
from corpus_tools.object_file import read_bounded
from corpus_tools.printable import first_of
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import EnvironmentSetupError, OptionsError, write_atomically
from mlgo_gym.cc._module_sources import Sources
from mlgo_gym.corpus import Corpus
from mlgo_gym.problems import CALL_FEATURES
from mlgo_gym.rollout import Trace, trace_path
from mlgo_gym.search import ModuleSearch
from mlgo_gym.stream import Header

ANSWERS: Final = "answers.txt"

_FIRST, _LAST = "mlgo-gym answers 1\n", "end\n"
_DIGEST_BYTES: Final = 32
_KEY_DIGITS: Final = 32
_PROGRAMS: Final = ("mlgo-cc", "mlgo-c++")
MAX_ANSWERS: Final = 1 << 22
MAX_BYTES: Final = 1 << 26
"""What the driver takes of a module, and of a file."""
_NOT_SENT: Final = frozenset(chain.from_iterable(CALL_FEATURES.values()))
"""Features that LLVM does not send, behind those that it does."""
_OWN_ERROR: Final = re.compile(r"mlgo-c(?:c|\+\+): error: (?:traces: )?(.*)")
_UNLIKE: Final = "clang would not repeat its answers"

UNADVISED: Final = (
    "--mlgo-keep-smaller=", "--mlgo-inlining-model=", "--mlgo-regalloc-model=", "--mlgo-project=",
    "--mlgo-traces=",
)  # fmt: skip
"""The settings by which a compilation is clang's own, whatever the environment says."""


@dataclass(frozen=True, slots=True)
class Build:
    """The modules of a build.

    Attributes:
        corpus: of its modules, as the inliner sees them.
        commands: how each was compiled, by its name.
        failures: why others are not there.
        programs: ``mlgo-cc`` and ``mlgo-c++``.
        project: the project file by which its modules have local functions.
        objects: the paths by which that knows the modules' objects.
        keys: of the modules that were asked about, what ``mlgo-cc`` knows them by.
    """

    corpus: Corpus
    commands: Mapping[str, BuildCommand] = field(repr=False)
    failures: tuple[str, ...]
    programs: tuple[str, str]
    project: Path | None = None
    objects: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: dict[str, str] = field(default_factory=dict, repr=False)


@contextmanager
def open_build(
    database: Path, jobs: int, timeout_s: float, sources: Sources | None = None
) -> Iterator[Build]:
    """Compile the sources of a ``compile_commands.json`` to modules, which go with the block.

    Args:
        database: the file.
        jobs: how many clangs run at once.
        timeout_s: how long one may take, in seconds.
        sources: what an earlier run has compiled, of which only what has changed is compiled again.

    Raises:
        OptionsError: it is no such file, or nothing of it can be compiled.
        EnvironmentSetupError: ``mlgo-cc`` is not installed.
    """
    programs = driver_programs()
    with scratch_folder() as folder:
        try:
            listed = list_commands(database)
            with ThreadPoolExecutor(jobs) as pool:
                work = partial(_compiled, programs, timeout_s, sources)
                compiled = list(pool.map(work, listed))
            modules = [each for each in compiled if isinstance(each, ExtractedModule)]
            failures = tuple(each for each in compiled if isinstance(each, str))
            if not modules:
                reason = first_of(failures) or "no command makes an object"
                raise OptionsError(f"build: expected sources that can be compiled: {reason}")
            with open_store(folder) as store:
                for each in modules:
                    store.stage(each, each.name)
                store.commit(describe([each.name for each in modules], None, has_thinlto=False))
        except CorpusToolsError as error:
            raise OptionsError(f"build: {error}") from error
        yield Build(Corpus.load(folder), _by_name(listed), failures, programs)


def build_of(database: Path, corpus: Corpus) -> Build:
    """The build whose modules `open_build` has made a corpus of before, which was kept."""
    try:
        listed = list_commands(database)
    except CorpusToolsError as error:
        raise OptionsError(f"build: {error}") from error
    return Build(corpus, _by_name(listed), (), driver_programs())


def _by_name(listed: Iterable[BuildCommand | Outcome]) -> dict[str, BuildCommand]:
    return {each.name: each for each in listed if isinstance(each, BuildCommand)}


def driver_programs() -> tuple[str, str]:
    """Return where ``mlgo-cc`` and ``mlgo-c++`` are."""
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = [shutil.which(name, path=folders) for name in _PROGRAMS]
    c, cxx = found
    if c is None or cxx is None:
        raise EnvironmentSetupError("search: expected mlgo-cc and mlgo-c++ on PATH, found none")
    return c, cxx


def _compiled(
    programs: tuple[str, str],
    timeout_s: float,
    sources: Sources | None,
    each: BuildCommand | Outcome,
) -> ExtractedModule | str | None:
    if isinstance(each, Outcome):
        return f"{each.input}: {each.reason}" if each.status is Status.FAILED else None
    if sources and (kept := sources.kept(each)):
        return kept
    start_ns = time.time_ns()
    try:
        with scratch_folder() as folder:
            compiled = each.compile(programs, folder, timeout_s)
    except CompileError as error:
        return str(error)
    if sources:
        sources.note(each, compiled, start_ns)
    return compiled.module


def unrepeatable(build: Build, names: Iterable[str], jobs: int, timeout_s: float) -> dict[str, str]:
    """The modules whose answers ``mlgo-cc`` would not repeat, with the reason; see `write_answers`.

    Their command lines do not tell all that decides the code: a precompiled header, ``-Xclang``.
    """

    def reason(name: str) -> str | None:
        try:
            _key(build, name, timeout_s)
        except CompileError as error:
            return f"{_UNLIKE}: {_said(error)}"
        return None

    names = list(names)
    with ThreadPoolExecutor(jobs) as pool:
        reasons = zip(names, pool.map(reason, names), strict=True)
        return {name: reason for name, reason in reasons if reason is not None}


def _said(error: CompileError) -> str:
    """Return the line that says what is wrong: of ``mlgo-cc`` itself, or else of clang."""
    lines = str(error).splitlines()
    for line in lines:
        if found := _OWN_ERROR.match(line):
            return found[1]
    return next((line for line in lines if "error:" in line), lines[-1])


def _key(build: Build, name: str, timeout_s: float) -> str:
    """Return the key of a module's line, by which a build finds it."""
    if name in build.keys:
        return build.keys[name]
    command, options = build.commands[name], ["--mlgo-strict=1", "--mlgo-traces-key"]
    as_built, searched = (
        command.run(build.programs, options, timeout_s, as_built=each).stdout.strip()
        for each in (True, False)
    )
    if as_built != searched:
        left = " ".join(each for each in command.as_built if each not in command.arguments)
        raise CompileError(name, f"the module is another one with {left!r}, as the build has it")
    build.keys[name] = searched
    return searched


def write_answers(
    build: Build,
    searches: Iterable[ModuleSearch],
    folder: Path,
    jobs: int,
    timeout_s: float,
    *,
    models: Mapping[str, tuple[float, int]] = MappingProxyType({}),
    keeps_smaller: bool = True,
) -> dict[str, str | None]:
    """Write what was found for each module that is better, and whose text in clang is no more.

    Better is what `beats` says.

    Args:
        build: the modules.
        searches: what was found for them.
        folder: of their traces; its answers are written anew.
        jobs: how many clangs run at once.
        timeout_s: how long one may take, in seconds.
        models: of modules for which the build has a model, the score and the bytes of text by it.
        keeps_smaller: as `beats` has it.

    Returns:
        The modules that are better by what was found; with a reason where that is left out.

    Raises:
        OptionsError: the folder cannot be written.
        TraceError: a trace that was just written cannot be read.
    """
    better = [
        each
        for each in searches
        if beats(each, models.get(each.module), keeps_smaller=keeps_smaller)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        lines = list(pool.map(partial(_line, build, folder, timeout_s), better))
    kept = sorted((line for line, _ in lines if line), key=lambda line: line.split(" ", 4)[4])
    text = "".join((_FIRST, *kept, _LAST))
    if len(text) > MAX_BYTES:
        found = f"found {len(text)} bytes of answers"
        raise OptionsError(f"build: expected at most {MAX_BYTES}, {found}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / ANSWERS, text.encode("ascii"))
    except OSError as error:
        reason = error.strerror
        raise OptionsError(f"cannot write {str(folder / ANSWERS)!r}: {reason}") from error
    return {each.module: reason for each, (_, reason) in zip(better, lines, strict=True)}


def beats(found: ModuleSearch, model: tuple[float, int] | None, *, keeps_smaller: bool) -> bool:
    """Whether answers make less than the build does without them, and no more than LLVM's own.

    Args:
        found: what was found; nothing beats where the search failed.
        model: the score and the bytes of text by the build's model, if it has one.
        keeps_smaller: LLVM's own object takes the place of the model's where that has more text.
    """
    own = found.default_score, found.default_size_bytes
    if found.score > own[0] or found.size_bytes > own[1]:
        return False
    if model is None or (keeps_smaller and own[1] < model[1]):
        model = own
    return (found.score, found.size_bytes) < model


def _line(
    build: Build, folder: Path, timeout_s: float, found: ModuleSearch
) -> tuple[str | None, str | None]:
    """A module's line; or why there is none."""
    command = build.commands[found.module]
    trace = Trace.load(trace_path(folder, found.module))
    if trace.decisions > MAX_ANSWERS:
        return None, f"expected at most {MAX_ANSWERS} decisions, found {trace.decisions}"
    try:
        key = _key(build, found.module, timeout_s)
        name = found.module.encode("unicode_escape").decode("ascii")
        answers = f"{_questions(trace)} {trace.decisions} {_answers(trace)}"
        line = f"{key} {answers} {name}\n"
        size_bytes, plain_bytes = _sizes(build, command, line, timeout_s)
    except CompileError as error:
        return None, f"{_UNLIKE}: {_said(error)}"
    if size_bytes != found.size_bytes:
        return None, f"{_UNLIKE}: expected {found.size_bytes} bytes of text, found {size_bytes}"
    if size_bytes > plain_bytes:
        return None, f"clang's own {plain_bytes} bytes of text are less than {size_bytes}"
    return line, None


def _sizes(build: Build, command: BuildCommand, line: str, timeout_s: float) -> tuple[int, int]:
    """The text that clang makes by a line, and by itself: the model that is named is not there.

    So where the line does not match, that is an error, and without it plain clang compiles.
    """
    with scratch_folder() as folder:
        write_atomically(folder / ANSWERS, f"{_FIRST}{line}{_LAST}".encode("ascii"))
        target = folder / "made" / build.objects.get(command.name, "output.o")
        target.parent.mkdir(parents=True)
        none = ["--mlgo-keep-smaller=0", f"--mlgo-inlining-model={folder / 'none'}"]
        if build.project is not None:
            none.append(f"--mlgo-project={build.project.absolute()}")
        sizes = []
        for more in (
            ["--mlgo-strict=1", f"--mlgo-traces={folder}"],
            ["--mlgo-strict=0", "--mlgo-traces="],
        ):
            command.run(build.programs, [*none, *more, "-w", "-o", str(target)], timeout_s)
            sections = code_sections(read_bounded(target), target.name)
            sizes.append(sum(len(each.content) for each in sections))
        return sizes[0], sizes[1]


def _questions(trace: Trace) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    sent = tuple(takewhile(lambda spec: spec.name not in _NOT_SENT, trace.features))
    size_bytes = sum(spec.size_bytes for spec in sent)
    digest.update(f"{Header(sent, advice=trace.advice_spec).to_json()}\n".encode())
    for index, action in enumerate(trace.actions()):
        digest.update((trace.observation(index) or b"")[:size_bytes])
        digest.update(bytes([int(action.item())]))
    return digest.hexdigest()[:_KEY_DIGITS]


def _answers(trace: Trace) -> str:
    bits = "".join(str(int(each.item())) for each in trace.actions())
    return "".join(f"{int(bits[at : at + 4][::-1], 2):x}" for at in range(0, len(bits), 4))


def compile_objects(
    build: Build, settings: Sequence[str], *, jobs: int, timeout_s: float
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Compile a build's sources once more, and leave its own objects as they are.

    Args:
        build: the modules and their commands.
        settings: options of ``mlgo-cc``, in place of what the environment says.
        jobs: how many compilers run at once.
        timeout_s: how long one may take, in seconds.

    Returns:
        The objects by their modules' names, and why others are missing.
    """
    names = [name for name in build.corpus if name in build.commands]
    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(partial(_compiled_object, build, settings, timeout_s), names))
    pairs = list(zip(names, made, strict=True))
    objects = {name: each for name, each in pairs if isinstance(each, bytes)}
    return objects, {name: each for name, each in pairs if isinstance(each, str)}


def _compiled_object(
    build: Build, settings: Sequence[str], timeout_s: float, name: str
) -> bytes | str:
    with scratch_folder() as folder:
        # Project files know objects by the ends of their paths.
        target = folder / "made" / build.objects.get(name, "output.o")
        target.parent.mkdir(parents=True, exist_ok=True)
        options = [*UNADVISED, *settings, "-w", "-o", str(target)]
        try:
            build.commands[name].run(build.programs, options, timeout_s)
            return read_bounded(target)
        except CompileError as error:
            return str(error)
