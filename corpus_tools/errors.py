"""Every error of corpus_tools, as one tree split by whose fault it is.

::

    CorpusToolsError
      CorpusError          the corpus on disk is not what the layout asks for
        ManifestError, MissingBitcodeError, CommandError, CorporaDifferError
      ExtractionError      what a build left behind cannot be read
        BuildListError, ObjectFileError, BitcodeError
      RecipeError          the recipe, or what it says about its package, is wrong
        RecipeFormatError, UnknownRecipeError, EmptyGlobError, ModuleCountError,
        SourceTreeError, SourceNameError
      SdistError           the sdist could not be had, or is not what was asked for
        DownloadError, SdistNotFoundError, HashMismatchError, ArchiveError, UnsafeArchiveError
      ToolchainError       clang or a header is missing, too old, or failed
        ClangNotFoundError, ClangTooOldError, PythonHeadersError, CompileError
      OutputError          the output folder may not be written
      BuildOptionError     an option of the build is out of range
      BuildFailedError     the build as a whole: carries one CompileFailure for each source

Messages name the thing, what was expected and what was found; the same data are attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self


class CorpusToolsError(Exception):
    """Base of everything that corpus_tools raises on purpose."""


class _FileError(CorpusToolsError):
    """Something is wrong with a file or folder.

    Attributes:
        path: of the file, or None for what was never a file.
        problem: what was expected and what was found.
    """

    _kind = "file"
    _prefix = ""

    def __init__(self, path: Path | None, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{self._prefix}{path or self._kind}: {problem}")


class CorpusError(CorpusToolsError):
    """A corpus on disk breaks the mlgo-utils layout."""


class ManifestError(CorpusError, _FileError):
    """A ``corpus_description.json`` that cannot be read, or says something impossible."""

    _kind = "manifest"


class MissingBitcodeError(CorpusError):
    """A module of the manifest has no bitcode file.

    Attributes:
        module: its name in the manifest.
        path: where its bitcode should be.
        missing_count: how many modules of the manifest lack theirs, this one included.
    """

    def __init__(self, module: str, path: Path, missing_count: int) -> None:
        self.module = module
        self.path = path
        self.missing_count = missing_count
        more = f" (and {missing_count - 1} more modules)" if missing_count > 1 else ""
        super().__init__(f"module {module!r}: expected bitcode at {path}, found none{more}")


class CommandError(CorpusError, _FileError):
    """A module's ``-cc1`` command that cannot be read or written."""

    _kind = "command"


class CorporaDifferError(CorpusError):
    """Corpora that are to become one say different things of all their modules.

    Attributes:
        first: a corpus.
        second: another one.
        key: what they differ in.
    """

    def __init__(self, first: Path, second: Path, key: str) -> None:
        self.first = first
        self.second = second
        self.key = key
        super().__init__(f"{second}: expected the same {key!r} as in {first}, found another")


class ExtractionError(CorpusToolsError):
    """What a build left behind cannot be read."""


class BuildListError(ExtractionError, _FileError):
    """The file that lists a build's objects cannot be read."""


class ObjectFileError(ExtractionError):
    """A file is no object, or a broken one; the message does not name it."""


class BitcodeError(ExtractionError):
    """A file or section is no bitcode, or broken; the message does not name it."""


class RecipeError(CorpusToolsError):
    """A recipe is wrong, or does not fit its package."""


class RecipeFormatError(RecipeError):
    """A recipe has a missing, unknown or malformed key.

    Attributes:
        where: the recipe's file, or its name where it did not come from a file.
        key: the key at fault, or None where the file is no TOML at all.
        expected: what the key must be, in words.
        found: what it was.
    """

    def __init__(self, where: str, key: str | None, *, expected: str, found: str) -> None:
        self.where = where
        self.key = key
        self.expected = expected
        self.found = found
        at = f"{where}: key {key!r}" if key is not None else where
        super().__init__(f"{at}: expected {expected}, found {found}")


class UnknownRecipeError(RecipeError):
    """No recipe has this name.

    Attributes:
        name: the name asked for.
        known: the names there are.
    """

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no recipe {name!r}; known recipes: {', '.join(known)}")


class EmptyGlobError(RecipeError):
    """A recipe's glob selects no source.

    Attributes:
        recipe: the recipe's name.
        glob: the pattern.
        problem: what it matches instead.
    """

    def __init__(self, recipe: str, glob: str, problem: str) -> None:
        self.recipe = recipe
        self.glob = glob
        self.problem = problem
        super().__init__(f"recipe {recipe!r}: glob {glob!r} {problem}")


class ModuleCountError(RecipeError):
    """A recipe's globs do not select as many sources as it says.

    Attributes:
        recipe: the recipe's name.
        expected: the recipe's number of modules.
        found: how many sources its globs select.
    """

    def __init__(self, recipe: str, *, expected: int, found: int) -> None:
        self.recipe = recipe
        self.expected = expected
        self.found = found
        super().__init__(f"recipe {recipe!r}: expected {expected} modules, found {found} sources")


class SourceTreeError(RecipeError):
    """What a recipe adds to its unpacked sdist does not fit it.

    Attributes:
        recipe: the recipe's name.
        name: of the file or archive, relative to the sdist's top folder.
        problem: what was expected and what was found.
    """

    def __init__(self, recipe: str, name: str, problem: str) -> None:
        self.recipe = recipe
        self.name = name
        self.problem = problem
        super().__init__(f"recipe {recipe!r}: {name!r}: {problem}")


class SourceNameError(RecipeError):
    """A source's name cannot be a module's name or an argument of clang.

    Attributes:
        source: the name.
        problem: what is wrong with it.
    """

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        self.problem = problem
        super().__init__(f"source {source!r}: {problem}")


class SdistError(CorpusToolsError):
    """An sdist cannot be had, or is not what the recipe asks for."""


class DownloadError(SdistError):
    """The network, or the other end of it, failed.

    Attributes:
        package: the package on PyPI.
        reason: what failed, with the address.
    """

    def __init__(self, package: str, reason: str) -> None:
        self.package = package
        self.reason = reason
        super().__init__(f"network failure while fetching package {package!r}: {reason}")


class SdistNotFoundError(SdistError):
    """No index that pip is configured to use has the file.

    Attributes:
        package: the package on PyPI.
        sdist: the file name asked for.
        searched: the indexes and folders looked at.
        notes: what those said.
    """

    def __init__(
        self, package: str, sdist: str, searched: Sequence[str], notes: Sequence[str] = ()
    ) -> None:
        self.package = package
        self.sdist = sdist
        self.searched = tuple(searched)
        self.notes = tuple(notes)
        found = "; ".join(notes) or "other files only"
        super().__init__(
            f"package {package!r}: expected {sdist} in {', '.join(searched)}; found {found}"
        )


class HashMismatchError(SdistError):
    """A file's SHA-256 differs from the recipe's.

    Attributes:
        file: the file's name.
        expected: hexadecimal digest in the recipe.
        found: hexadecimal digest of the file.
    """

    def __init__(self, file: str, *, expected: str, found: str) -> None:
        self.file = file
        self.expected = expected
        self.found = found
        super().__init__(f"{file}: expected sha256 {expected}, found {found}")


class ArchiveError(SdistError):
    """An archive cannot be read, or does not look like an sdist.

    Attributes:
        archive: the archive's file name.
        problem: what was expected and what was found.
    """

    def __init__(self, archive: str, problem: str) -> None:
        self.archive = archive
        self.problem = problem
        super().__init__(f"{archive}: {problem}")


class UnsafeArchiveError(SdistError):
    """An archive has a member that would write outside its folder, or is not a plain file.

    Attributes:
        archive: the archive's file name.
        member: the member's name as the archive has it.
        problem: why it is refused.
    """

    def __init__(self, archive: str, member: str, problem: str) -> None:
        self.archive = archive
        self.member = member
        self.problem = problem
        super().__init__(f"{archive}: member {member!r} refused: {problem}")


class ToolchainError(CorpusToolsError):
    """The compiler or a header it needs is missing, unusable, or failed."""


class ClangNotFoundError(ToolchainError):
    """There is no usable clang.

    Attributes:
        looked_for: the programs looked for.
        notes: why those that exist were not taken.
    """

    def __init__(self, looked_for: Sequence[str], minimum: int, notes: Sequence[str] = ()) -> None:
        self.looked_for = tuple(looked_for)
        self.notes = tuple(notes)
        found = f"; found {', '.join(notes)}" if notes else ""
        super().__init__(
            f"no clang >= {minimum} found (looked for {', '.join(looked_for)}{found}); "
            "on Debian or Ubuntu: apt-get install clang-22"
        )


class ClangTooOldError(ToolchainError):
    """The clang that was named is older than corpora need.

    Attributes:
        path: the program.
        minimum: the first major version that will do.
        found: the version it prints.
    """

    def __init__(self, path: Path, minimum: int, found: str) -> None:
        self.path = path
        self.minimum = minimum
        self.found = found
        super().__init__(f"{path}: expected clang >= {minimum}, found {found}")


class PythonHeadersError(ToolchainError):
    """A recipe needs Python.h and the running Python has none.

    Attributes:
        recipe: the recipe's name.
        folder: where Python.h should be.
    """

    def __init__(self, recipe: str, folder: Path) -> None:
        self.recipe = recipe
        self.folder = folder
        super().__init__(
            f"recipe {recipe!r}: expected Python.h in {folder}, found none; "
            "on Debian or Ubuntu: apt-get install python3-dev"
        )


class CompileError(ToolchainError):
    """Clang failed on one source, or ran past its deadline.

    Attributes:
        source: the file compiled, relative to the root of its package.
        reason: exit status or deadline, in words.
        exit_status: as ``subprocess`` gives it (negative: killed by that signal), or None
            where clang was stopped at its deadline or its answer made no sense.
        stderr_tail: the last lines that clang wrote.
    """

    def __init__(
        self, source: str, reason: str, *, exit_status: int | None = None, stderr_tail: str = ""
    ) -> None:
        self.source = source
        self.reason = reason
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail
        super().__init__(f"{source}: {reason}" + (f"\n{stderr_tail}" if stderr_tail else ""))


class OutputError(_FileError):
    """The output may not be written: something else is there, or the system refuses."""

    _prefix = "output "

    @classmethod
    def refused(cls, path: Path, error: OSError) -> Self:
        """The system refuses to write there."""
        return cls(path, f"cannot be written: {error.strerror}")


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
        total: how many sources there were.
    """

    def __init__(self, failures: Sequence[CompileFailure], total: int) -> None:
        self.failures = tuple(failures)
        self.total = total
        reasons = "\n".join(failure.reason for failure in failures)
        super().__init__(f"{len(failures)} of {total} sources did not compile:\n{reasons}")


class BuildOptionError(CorpusToolsError):
    """An option of a build is out of range.

    Attributes:
        option: its name.
        expected: what it must be, in words.
        found: what it was.
    """

    def __init__(self, option: str, expected: str, found: str) -> None:
        self.option = option
        self.expected = expected
        self.found = found
        super().__init__(f"{option}: expected {expected}, found {found}")
