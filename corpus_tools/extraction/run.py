"""From what a build left behind to a corpus: the work of ``mlgo-extract-corpus``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpus_tools.bitcode import target_triple
from corpus_tools.errors import BuildOptionError, CorpusToolsError, ExtractionError
from corpus_tools.extraction.embedded import ExtractedModule, Extraction, extract
from corpus_tools.extraction.inputs import Listed, ObjectInput, Outcome, Status
from corpus_tools.extraction.lto_command import infer_override
from corpus_tools.extraction.store import CorpusStore, open_store
from corpus_tools.manifest import UNSPECIFIED, describe

Progress = Callable[[int, int], None]
"""Called now and then with: inputs done, inputs in all."""

# How many objects are in memory for each worker.
_AHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class ExtractionReport:
    """The outcome of each input, and of the corpus.

    Attributes:
        output: the corpus.
        outcomes: one for each input, in the order of the build's list.
        warnings: what to know besides.
    """

    output: Path
    outcomes: tuple[Outcome, ...]
    warnings: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the corpus, in order."""
        return tuple(name for outcome in self.outcomes for name in outcome.modules)

    def count(self, status: Status) -> int:
        """How many inputs ended so."""
        return sum(1 for outcome in self.outcomes if outcome.status is status)


def extract_corpus(
    listed: Sequence[Listed],
    output: Path,
    extraction: Extraction | None = None,
    *,
    num_workers: int | None = None,
    link_parameters: Sequence[str] | None = None,
    link_directory: Path | None = None,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Extract a corpus from the objects of a build.

    Args:
        listed: the objects, as one of the ``list_*`` functions lists them.
        output: the corpus; files of modules that were there before stay or are replaced.
        extraction: how objects are read.
        num_workers: how many are read at a time; None means one for each core. The result does
            not depend on it.
        link_parameters: of a local ThinLTO build; the command of all modules is inferred from it.
        link_directory: where that link ran.
        progress: called after every few inputs.

    Raises:
        BuildOptionError: ``num_workers`` is below 1.
        OutputError: ``output`` cannot be written.
    """
    extraction = extraction or Extraction()
    if num_workers is not None and num_workers < 1:
        raise BuildOptionError(f"num_workers: expected at least 1, found {num_workers}")
    with open_store(output, replaces=extraction.as_llvm) as store:
        has_members = any(isinstance(each, ObjectInput) and each.member for each in listed)
        intake = _Intake(store, compares=has_members, repeats=extraction.as_llvm)
        for outcome, done in _outcomes(listed, intake, extraction, num_workers):
            intake.outcomes.append(outcome)
            if progress:
                progress(done, len(listed))
        override, warnings = None, list[str]()
        if extraction.thinlto_build == "local":
            override, warnings = _override(intake, link_parameters, link_directory or Path())
        report = ExtractionReport(output, tuple(intake.outcomes), tuple(warnings))
        if report.modules or extraction.as_llvm:
            has_thinlto = extraction.thinlto_build is not None
            store.commit(describe(report.modules, override, has_thinlto=has_thinlto))
    return report


class _Intake:
    """Takes modules into the store, and remembers where each came from.

    Args:
        store: where they go.
        compares: whether members of archives may be copies of other inputs.
        repeats: whether an object counts as often as it is listed.
    """

    def __init__(self, store: CorpusStore, *, compares: bool, repeats: bool) -> None:
        self._store = store
        self._compares = compares
        self._repeats = repeats
        self._paths: set[tuple[str, tuple[int, int] | None]] = set()
        self._contents: dict[bytes, str] = {}
        self.outcomes: list[Outcome] = []
        self.first_bitcode = b""

    def take(
        self, each: ObjectInput, outcome: Outcome, modules: Sequence[ExtractedModule]
    ) -> Outcome:
        """Stage the modules of an object that is not there twice; return what became of it."""
        place = (os.path.realpath(each.path), each.member)
        if place in self._paths and not self._repeats:
            return Outcome(each.label, Status.SKIPPED, reason="listed twice")
        self._paths.add(place)
        if not modules:
            return outcome
        if self._compares and (same := self._same_as(each, modules)):
            return Outcome(each.label, Status.SKIPPED, reason=f"the same as {same}")
        try:
            for module in modules:
                self._store.stage(module, str(each.path))
        except ExtractionError as error:
            return Outcome(each.label, Status.FAILED, reason=str(error))
        self.first_bitcode = self.first_bitcode or modules[0].files[".bc"]
        return outcome

    def _same_as(self, each: ObjectInput, modules: Sequence[ExtractedModule]) -> str | None:
        """The input that an archive's member is a copy of."""
        digest = _digest(modules)
        same = self._contents.setdefault(digest, each.label)
        return same if each.member and same != each.label else None


def _outcomes(
    listed: Sequence[Listed], intake: _Intake, extraction: Extraction, num_workers: int | None
) -> Iterator[tuple[Outcome, int]]:
    """Yield the outcome of each input, in order, and how many are done."""
    workers = num_workers or os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(listed), workers * _AHEAD):
            batch = listed[start : start + workers * _AHEAD]
            objects = [each for each in batch if isinstance(each, ObjectInput)]
            results = pool.map(lambda each: extract(each, extraction), objects)
            for done, each in enumerate(batch, start + 1):
                yield each if isinstance(each, Outcome) else intake.take(each, *next(results)), done


def _digest(modules: Sequence[ExtractedModule]) -> bytes:
    digest = hashlib.sha256()
    for module in modules:
        for suffix, content in module.files.items():
            digest.update(f"{suffix} {len(content)} ".encode() + content)
    return digest.digest()


def _override(
    intake: _Intake, parameters: Sequence[str] | None, directory: Path
) -> tuple[tuple[str, ...], list[str]]:
    """The command of all modules of a local ThinLTO build, and warnings."""
    if parameters is None:
        found = "give the link's parameters with --input FILE --input_type params"
    else:
        try:
            triple = target_triple(intake.first_bitcode) if intake.first_bitcode else None
            return infer_override(parameters, triple, directory), []
        except CorpusToolsError as error:
            found = f"the link's parameters do not tell it: {error}"
    return UNSPECIFIED, [
        f"global_command_override is {UNSPECIFIED[0]} and has to be filled in; {found}"
    ]
