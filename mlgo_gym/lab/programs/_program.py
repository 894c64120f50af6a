"""Programs of a corpus's objects: compiled plainly, but for what a policy has compiled, and linked.

All is linked statically, so that a program is one file which reads no other, and what its libraries
execute does not depend on who loads them. Modules are compiled plainly once; the sources that drive
them are compiled at one level, whatever theirs is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from corpus_tools.clang import find_clang, link_program
from corpus_tools.errors import CorpusToolsError
from corpus_tools.scratch import scratch_folder
from corpus_tools.staging import WORKLOADS, digests_of
from corpus_tools.workloads import (
    DESCRIPTION,
    SOURCE_LEVEL,
    Workload,
    compile_workload,
    load_workloads,
)
from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import Corpus, Module, language_of
from mlgo_gym.lab.programs._running import wrong
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    CompilationResult,
    CompileOptions,
    Compiler,
    Jobs,
    each,
    options_of,
    run_to_end,
)
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import Code, linked_text_bytes

_PADDING_BYTES: Final = tuple(16 << step for step in range(8))

_NO_RESULTS: Final[Mapping[str, CompilationResult]] = MappingProxyType({})


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
    """The modules of a corpus that a workload's program is linked of, in the corpus's order."""
    try:
        return workload.modules_of(corpus)
    except CorpusToolsError as error:
        raise WorkloadError(str(error)) from error


def inputs_sha256(corpus: Corpus) -> str:
    """The hash of what a corpus's programs are made of and given, in hexadecimal digits."""
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


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was linked.

    Attributes:
        path: its file.
        text_bytes: the code of the corpus's modules in it (`rollout.linked_text_bytes`).
        sha256: the hash of its bytes, in hexadecimal digits.
        layouts: files of the same code at other addresses, if any were linked.

    >>> Program(Path("a"), 100, "00") == Program(Path("b"), 100, "00")
    True
    """

    path: Path = field(repr=False, compare=False)
    text_bytes: int
    sha256: str
    layouts: tuple[Path, ...] = field(default=(), repr=False, compare=False)


def _compiled(
    compiler: Compiler,
    module: Module,
    *,
    answers: Mapping[Problem, PolicyLike],
    opt_level: str | None,
) -> CompilationResult:
    options = options_of(module, opt_level)
    return run_to_end(compiler.running(module, options, answers, keep_object=True)).result


class Programs(AbstractContextManager["Programs"]):
    """The programs of a corpus's workloads, in a temporary folder that goes at the end.

    Several threads may use them at once.

    Args:
        corpus: whose modules are linked.
        names: which workloads; all, where none are named.
        folder: where workloads are described; ``None`` is where the corpus has them.
        opt_level: clang's level to compile modules at; ``None`` takes each one's own.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one, in seconds.

    Attributes:
        corpus: whose modules are linked.
        workloads: by their names.
        clang: what links them.

    Raises:
        WorkloadError: a workload cannot be used.
        ToolchainError: there is no clang to link with.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> programs = Programs(Corpus.load(SAMPLE_CORPUS))
    >>> programs.workloads["json"].about[:5]
    'reads'
    >>> programs.close()
    """

    def __init__(
        self,
        corpus: Corpus,
        names: Sequence[str] = (),
        *,
        folder: Path | None = None,
        opt_level: str | None = None,
        jobs: Jobs = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.workloads: Final = find_workloads(corpus, names, folder=folder)
        self._modules: Final = {
            name: linked_modules(each, corpus) for name, each in self.workloads.items()
        }
        self.corpus: Final = corpus
        self._opt_level = opt_level
        self._jobs = jobs
        self._compiler = partial(Compiler, timeout_s=timeout_s)
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch_folder())
        self.clang: Final = find_clang()
        self._alone = threading.RLock()
        self._plain: dict[str, CompilationResult] = {}
        self._sources: dict[str, list[Path]] = {}
        self._cpp: dict[str, bool] = {}
        self._padding: list[Path] = []
        self._numbers = itertools.count()
        self._written = itertools.count()

    def close(self) -> None:
        """Remove all files."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def modules(self, workload: str) -> tuple[str, ...]:
        """The modules that a workload's program is linked of, in the corpus's order."""
        return self._modules[workload]

    def object_of(self, module: str) -> Path:
        """The object of a module as LLVM's own heuristics compile it."""
        return self._file_of(self.plain()[module])

    def plain(self) -> Mapping[str, CompilationResult]:
        """The modules of all workloads as LLVM's own heuristics compile them; without objects.

        Raises:
            ModuleError: one cannot be compiled.
            CompilationError: LLVM crashed or hung on it.
        """
        with self._alone:
            if not self._plain:
                self._plain = self.compiled_all()
            return self._plain

    def compiled(
        self, workload: Workload, answers: Mapping[Problem, PolicyLike]
    ) -> dict[str, CompilationResult]:
        """A workload's modules as something else than LLVM's own heuristics has them.

        Raises:
            ModuleError: one cannot be compiled.
            CompilationError: LLVM crashed or hung on it.
        """
        return self._compile(self._modules[workload.name], answers)

    def compiled_all(
        self, answers: Mapping[Problem, PolicyLike] = MappingProxyType({})
    ) -> dict[str, CompilationResult]:
        """The modules of all workloads, as `compiled` has those of one."""
        return self._compile(itertools.chain.from_iterable(self._modules.values()), answers)

    def keep(self, result: CompilationResult) -> CompilationResult:
        """The result without its object, which is in the folder from then on."""
        self._file_of(result)
        return replace(result, object_bytes=None)

    @contextmanager
    def linked(
        self,
        workload: Workload,
        results: Mapping[str, CompilationResult] = _NO_RESULTS,
        *,
        links: int = 1,
    ) -> Iterator[Program]:
        """A program, which is removed at the end.

        Args:
            workload: what is linked.
            results: modules by name that are not taken as LLVM's own heuristics compile them;
                they hold their objects, or are equal to what was kept.
            links: how often it is linked: each time but the first its objects lie elsewhere in
                memory, and those of C in another order.

        Raises:
            WorkloadError: it cannot be linked.
        """
        names = self._modules[workload.name]
        made = [results.get(name) or self.plain()[name] for name in names]
        text = linked_text_bytes([Code.of(each) for each in made])
        with ExitStack() as files:
            objects = [self._held(each, files) for each in made]
            orders = [objects, *(self._elsewhere(workload, objects, n) for n in range(1, links))]
            paths = [files.enter_context(self.linked_objects(workload, each)) for each in orders]
            found = hashlib.sha256(paths[0].read_bytes()).hexdigest()
            yield Program(paths[0], text, found, tuple(paths[1:]))

    @contextmanager
    def linked_objects(
        self, workload: Workload, objects: Sequence[Path], flags: Sequence[str] = ()
    ) -> Iterator[Path]:
        """A program of its modules as somebody else has compiled them, removed at the end.

        Args:
            workload: what is linked.
            objects: of its modules, in their order.
            flags: further ones for the linker's driver.

        Raises:
            WorkloadError: it cannot be linked.
        """
        path = self._folder / f"program.{next(self._numbers)}"
        flags = [*flags, *(f"-l{library}" for library in workload.libraries)]
        if self._is_cpp(workload):
            flags = ["--driver-mode=g++", *flags]
        try:
            try:
                link_program(self.clang, [*self._driving(workload), *objects], path, flags)
            except CorpusToolsError as error:
                raise wrong(workload, f"cannot be linked: {error}") from error
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _elsewhere(self, workload: Workload, objects: Sequence[Path], number: int) -> list[Path]:
        """Objects in another order, with padding of which a half is drawn before each.

        Those of C++ keep their order, which is that of their initialisers.
        """
        drawn = random.Random(number)  # noqa: S311 (a layout is no secret)
        order = list(objects)
        if not self._is_cpp(workload):
            drawn.shuffle(order)
        found: list[Path] = []
        for path in order:
            found += [each for each in self._paddings() if drawn.random() < 0.5]
            found.append(path)
        return found

    def _paddings(self) -> list[Path]:
        """Objects of nothing but bytes of code that are never executed."""
        with self._alone:
            if not self._padding:
                texts = [f'module asm ".p2align 4\\0A.skip {size}"' for size in _PADDING_BYTES]
                modules = [Module("padding", each.encode(), is_text=True) for each in texts]
                with self._compiler() as compiler:
                    self._padding = [self._plainly(compiler, each) for each in modules]
            return self._padding

    def _held(self, result: CompilationResult, files: ExitStack) -> Path:
        """The object's file, which goes with the stack unless it was kept."""
        if result.object_bytes is None:
            return self._file_of(result)
        path = self._write(result.object_bytes)
        files.callback(path.unlink, missing_ok=True)
        return path

    def _write(self, data: bytes) -> Path:
        path = self._folder / f"object.{next(self._written)}.o"
        path.write_bytes(data)
        return path

    def _is_cpp(self, workload: Workload) -> bool:
        if workload.name not in self._cpp:
            modules = [self.corpus[name] for name in self._modules[workload.name]]
            modules += [Module(source, b"") for source in workload.sources]
            self._cpp[workload.name] = any(language_of(each) == "C++" for each in modules)
        return self._cpp[workload.name]

    def _compile(
        self, names: Iterable[str], answers: Mapping[Problem, PolicyLike]
    ) -> dict[str, CompilationResult]:
        work = partial(_compiled, answers=dict(answers), opt_level=self._opt_level)
        how: dict[str, Any] = {"jobs": self._jobs, "size": self.corpus.size_bytes}
        items, read = dict.fromkeys(names), self.corpus.file
        with closing(each(items, work, self._compiler, read=read, **how)) as found:
            return {done.item: self.keep(done.value) for done in found}

    def _file_of(self, result: CompilationResult) -> Path:
        path = self._folder / f"{result.object_sha256}.o"
        if result.object_bytes is not None and not path.exists():
            self._write(result.object_bytes).replace(path)  # whole, whoever looks
        return path

    def _driving(self, workload: Workload) -> list[Path]:
        """The objects of the sources that drive the modules."""
        with self._alone:
            if workload.name not in self._sources:
                self._sources[workload.name] = self._compile_sources(workload)
            return self._sources[workload.name]

    def _compile_sources(self, workload: Workload) -> list[Path]:
        try:
            bitcode = compile_workload(workload, self._folder, self.clang, workload.folder)
        except CorpusToolsError as error:
            raise wrong(workload, str(error)) from error
        with self._compiler() as compiler:
            modules = [Module(path.name, path.read_bytes()) for path in bitcode]
            return [self._plainly(compiler, each) for each in modules]

    def _plainly(self, compiler: Compiler, module: Module) -> Path:
        """The object of a module that is none of the corpus's."""
        options = CompileOptions(SOURCE_LEVEL)
        return self._file_of(compiler.compile_module(module, options, keep_object=True))
