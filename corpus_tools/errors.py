"""Every error of corpus_tools, as one tree split by whose fault it is.

::

    CorpusToolsError
      LayoutError          a corpus on disk is not what the layout asks for
      ExtractionError      what a build left behind cannot be read
        BuildListError     ... and it is the file that lists the objects
      RecipeError          a recipe is wrong, or does not fit its package
      WorkloadError        a program cannot be made, or has not done what it must
      SdistError           an sdist could not be had, or is not what was asked for
      ToolchainError       clang or a header is missing or too old
        CompileError       ... or clang failed on a source
      OutputError          the output folder may not be written
      BuildOptionError     an option of the build is out of range
      BuildFailedError     the build as a whole: carries one CompileFailure for each source

Messages name the thing, what was expected and what was found. Attributes are what a
caller acts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self


class CorpusToolsError(Exception):
    """Base of everything that corpus_tools raises on purpose."""


class _SubjectError(CorpusToolsError):
    """Something is wrong with one thing.

    Attributes:
        subject: the file or folder, or what is meant, in words.
        problem: what was expected and what was found.
    """

    _prefix = ""

    def __init__(self, subject: Path | str, problem: str) -> None:
        self.subject = subject
        self.problem = problem
        super().__init__(f"{self._prefix}{subject}: {problem}")


class LayoutError(_SubjectError):
    """A corpus on disk breaks the mlgo-utils layout: its manifest, a command, a missing module."""


class ExtractionError(CorpusToolsError):
    """A file is no object or no bitcode, or broken; most messages do not name it."""


class BuildListError(_SubjectError, ExtractionError):
    """The file that lists a build's objects cannot be read."""


class RecipeError(CorpusToolsError):
    """A recipe is wrong, or does not fit its package."""


class WorkloadError(CorpusToolsError):
    """A workload cannot be used, or its program has not done what it must."""


class SdistError(CorpusToolsError):
    """An sdist cannot be had, or is not what the recipe asks for."""


class ToolchainError(CorpusToolsError):
    """The compiler or a header it needs is missing, unusable, or failed."""


class CompileError(ToolchainError):
    """Clang failed on one source, or ran past its deadline.

    Attributes:
        source: the file compiled, relative to the root of its package.
        exit_status: as ``subprocess`` gives it (negative: killed by that signal), or None
            where clang was stopped at its deadline or its answer made no sense.
        stderr_tail: the last lines that clang wrote.
    """

    def __init__(
        self, source: str, reason: str, *, exit_status: int | None = None, stderr_tail: str = ""
    ) -> None:
        self.source = source
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail
        super().__init__(f"{source}: {reason}" + (f"\n{stderr_tail}" if stderr_tail else ""))

    @property
    def last_line(self) -> str:
        """The last line that clang wrote, or what is wrong where it wrote none."""
        lines = str(self).strip().splitlines()
        return lines[-1]


class OutputError(_SubjectError):
    """The output may not be written: something else is there, or the system refuses."""

    _prefix = "output "

    @classmethod
    def refused(cls, path: Path, error: OSError) -> Self:
        """The system refuses to write there."""
        return cls(path, f"cannot be written: {error.strerror}")


class BuildOptionError(CorpusToolsError):
    """An option of a build is out of range."""


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """One source that did not compile, and why.

    Attributes:
        source: relative to the root of its package.
        reason: the message of the CompileError.
    """

    source: str
    reason: str


class BuildFailedError(CorpusToolsError):
    """A build left no corpus, because sources did not compile.

    Attributes:
        failures: one for each source that failed, in order of their names.
    """

    def __init__(self, failures: Sequence[CompileFailure], total: int) -> None:
        self.failures = tuple(failures)
        reasons = "\n".join(failure.reason for failure in failures)
        super().__init__(f"{len(failures)} of {total} sources did not compile:\n{reasons}")
