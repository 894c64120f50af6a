"""Verification of a corpus: whether every module compiles back, and to the same code.

Each module is compiled by the embedded LLVM and, where a clang is given, by that clang with the
module's own command. Clang's code is compared with the original object, where that is still there,
and the embedded LLVM's with clang's.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from corpus_tools.bitcode import is_bitcode
from corpus_tools.clang import Clang
from corpus_tools.code import code_sections, difference
from corpus_tools.errors import CorpusToolsError
from corpus_tools.object_file import LARGEST_BYTES
from corpus_tools.replay import replay
from mlgo_gym.base import CompilationError, InputError, ModuleError, read_bounded
from mlgo_gym.corpus import ModuleKey, Packages, PackagesLike
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Compiler, Jobs, each, options_of


class CheckOutcome(StrEnum):
    """The outcome of a module's check."""

    EQUAL = "equal"
    COMPILED = "compiled"
    DIFFERS = "differs"
    NO_OBJECT = "no object"
    NOT_DONE = "not done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a module: the detail is the first difference, or the reason."""

    outcome: CheckOutcome
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.detail}" if self.detail else str(self.outcome)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One module of a corpus, of several packages ``PACKAGE/NAME``.

    Clang's code is compared with the original object's, the embedded LLVM's with clang's.
    """

    module: str
    embedded: Check
    original: Check
    clang: Check
    not_honoured: tuple[str, ...] = ()

    @property
    def checks(self) -> dict[str, Check]:
        return {"embedded": self.embedded, "original": self.original, "clang": self.clang}

    @property
    def is_good(self) -> bool:
        """Whether nothing failed, and clang's code is the original's where that is there."""
        failed = any(check.outcome is CheckOutcome.FAILED for check in self.checks.values())
        return not failed and self.original.outcome is not CheckOutcome.DIFFERS


def verify_corpus(
    corpora: PackagesLike,
    *,
    clang: Clang | None = None,
    objects: Path | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Generator[Verdict]:
    """Compile every module back, and compare the code.

    Args:
        corpora: what is verified, of packages or of a corpus.
        clang: the compiler that runs the modules' commands; ``None`` leaves that out.
        objects: the folder of the original objects; that of module NAME is called NAME there, or
            of several packages PACKAGE/NAME.
        jobs: how many modules are compiled at once.
        timeout_s: how long one compilation may take, in seconds.

    Yields:
        A verdict for each module, in their order.

    Raises:
        OptionsError: ``jobs`` is not above 0.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> [str(verdict.embedded) for verdict in verify_corpus(corpus)]
    ['compiled']
    """
    packages = Packages.of(corpora)
    task = _Task(packages, clang, objects, timeout_s)
    compiler = partial(Compiler, timeout_s=timeout_s)
    with closing(each(packages, task.run, compiler, jobs=jobs, in_order=True)) as found:
        for done in found:
            yield done.value


@dataclass(frozen=True, slots=True)
class _Task:
    """The work that is done on a module."""

    packages: Packages
    clang: Clang | None
    objects: Path | None
    timeout_s: float

    def run(self, compiler: Compiler, key: ModuleKey) -> Verdict:
        label = self.packages.label(key)
        embedded, ours, lacking = self._by_llvm(compiler, key)
        none = Check(CheckOutcome.NOT_DONE)
        if self.clang is None:
            return Verdict(label, embedded, none, none, lacking)
        try:
            clangs = self._by_clang(self.clang, key)
        except (CorpusToolsError, InputError) as error:
            return Verdict(label, embedded, Check(CheckOutcome.FAILED, str(error)), none, lacking)
        against = _compared(clangs, ours, label) if ours else none
        return Verdict(label, embedded, self._against_original(label, clangs), against, lacking)

    def _by_llvm(self, compiler: Compiler, key: ModuleKey) -> tuple[Check, bytes, tuple[str, ...]]:
        if self.packages.corpora[key].has_thinlto:
            return Check(CheckOutcome.NOT_DONE, "ThinLTO's imports are not done here"), b"", ()
        lacking: tuple[str, ...] = ()
        try:
            module = self.packages[key]
            options = options_of(module)
            lacking = options.not_honoured
            result = compiler.compile_module(module, options, keep_object=True)
        except (CompilationError, InputError) as error:
            return Check(CheckOutcome.FAILED, str(error)), b"", lacking
        return Check(CheckOutcome.COMPILED), result.object_bytes or b"", lacking

    def _by_clang(self, clang: Clang, key: ModuleKey) -> bytes:
        corpus, name = self.packages.corpora[key], key.name
        command = corpus[name].command
        if command is None:
            raise ModuleError(name, "expected a command line for clang, found none")
        return replay(
            clang,
            name,
            corpus.folder / f"{name}.bc",
            command,
            index=corpus.folder / f"{name}.thinlto.bc" if corpus.has_thinlto else None,
            deadline_s=self.timeout_s,
        )

    def _against_original(self, name: str, clangs: bytes) -> Check:
        path = self.objects / name if self.objects else None
        if path is None or not path.is_file():
            return Check(CheckOutcome.NO_OBJECT)
        try:
            original = read_bounded(path, LARGEST_BYTES)
            if is_bitcode(original):  # of a build with -flto
                return Check(CheckOutcome.NO_OBJECT)
            return _compared(original, clangs, name)
        except OSError as error:
            return Check(CheckOutcome.FAILED, f"cannot read {str(path)!r}: {error.strerror}")


def _compared(expected: bytes, found: bytes, name: str) -> Check:
    try:
        differs = difference(code_sections(expected, name), code_sections(found, name))
    except CorpusToolsError as error:
        return Check(CheckOutcome.FAILED, str(error))
    return Check(CheckOutcome.DIFFERS, differs) if differs else Check(CheckOutcome.EQUAL)
