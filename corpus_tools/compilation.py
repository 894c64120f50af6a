"""Compiling the sources of a package into the modules of a corpus, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from corpus_tools.clang import OPT_LEVELS, Clang, SourceFile
from corpus_tools.errors import BuildOptionError, CompileError, CompileFailure, RecipeError
from corpus_tools.manifest import encode_command, name_problem
from corpus_tools.recipes import Recipe, flags_for

Progress = Callable[[int, int, str], None]
"""Called after each source with: sources done, sources in all, the source just done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """How the sources of a package are compiled.

    Attributes:
        clang: the compiler.
        root: folder that sources and relative paths in flags start at.
        flags: of all sources.
        file_flags: pairs (pattern, further flags of the sources it matches).
        opt_level: one of `corpus_tools.clang.OPT_LEVELS`.
        jobs: how many clangs run at a time; the result does not depend on it.

    Raises:
        BuildOptionError: ``opt_level`` or ``jobs`` is out of range.
    """

    clang: Clang
    root: Path
    flags: tuple[str, ...] = ()
    file_flags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    opt_level: str = "Oz"
    jobs: int = 1

    def __post_init__(self) -> None:
        check_options(self.opt_level, self.jobs)

    def compile_source(self, source: str, output: Path) -> None:
        """Write ``SOURCE.bc`` and ``SOURCE.cmd`` into a corpus.

        Args:
            source: relative to the root.
            output: the corpus.

        Raises:
            CompileError: clang failed.
        """
        flags = flags_for(source, self.flags, self.file_flags)
        bitcode = output / f"{source}.bc"
        bitcode.parent.mkdir(parents=True, exist_ok=True)
        file = SourceFile(self.clang, source, self.root, flags, self.opt_level)
        command = file.corpus_command()
        file.compile(bitcode)
        (output / f"{source}.cmd").write_bytes(encode_command(command))


CompileSources = Callable[
    [Compilation, Sequence[str], Path, Progress | None], tuple[CompileFailure, ...]
]
"""A way to compile sources, as `compile_sources` does; another may do it elsewhere."""

Jobs = int | Callable[[Recipe, Path], CompileSources]
"""How many clangs run here at a time, or who compiles a recipe's sources, given its sdist."""


def check_options(opt_level: str, jobs: Jobs) -> None:
    """See that a build's options are in range.

    Raises:
        BuildOptionError: one is not.
    """
    if opt_level not in OPT_LEVELS:
        expected = f"one of {', '.join(OPT_LEVELS)}"
        raise BuildOptionError(f"opt_level: expected {expected}, found {opt_level!r}")
    if isinstance(jobs, int) and jobs < 1:
        raise BuildOptionError(f"jobs: expected at least 1, found {jobs}")


def check_source_name(source: str) -> None:
    """See that a source's name can be a module's name and an argument of clang.

    Raises:
        RecipeError: it cannot.
    """
    if problem := name_problem(source):
        raise RecipeError(f"source {source!r}: {problem}")
    # Clang reads further arguments from @FILE wherever it stands.
    if source.startswith(("-", "@")):
        problem = f"expected a file name, found one with {source[0]!r} in front"
        raise RecipeError(f"source {source!r}: {problem}")


def compile_sources(
    compilation: Compilation,
    sources: Sequence[str],
    output: Path,
    progress: Progress | None = None,
) -> tuple[CompileFailure, ...]:
    """Compile sources into ``NAME.bc`` and ``NAME.cmd``, NAME being the source's name.

    Args:
        compilation: how.
        sources: relative to the root of the compilation.
        output: an existing folder.
        progress: called from the calling thread.

    Returns:
        One failure for each source that did not compile, sorted by name.

    Raises:
        RecipeError: a source's name cannot be used; nothing was compiled.
    """
    for source in sources:
        check_source_name(source)
    executor = ThreadPoolExecutor(compilation.jobs)
    try:
        futures = {
            executor.submit(compilation.compile_source, source, output): source
            for source in largest_first(sources, compilation.root)
        }
        return _failures(futures, progress)
    finally:
        # On an interrupt, what has not started does not start.
        executor.shutdown(cancel_futures=True)


def largest_first(sources: Sequence[str], root: Path) -> list[str]:
    """Order sources so that no large one starts last and keeps one core busy alone."""
    sizes = {path: path.stat().st_size for path in map(root.joinpath, sources) if path.is_file()}
    return sorted(sources, key=lambda source: sizes.get(root / source, 0), reverse=True)


def _failures(
    futures: dict[Future[None], str], progress: Progress | None
) -> tuple[CompileFailure, ...]:
    failures = []
    for done, future in enumerate(as_completed(futures), start=1):
        source = futures[future]
        try:
            future.result()
        except CompileError as error:
            failures.append(CompileFailure(source, str(error)))
        if progress is not None:
            progress(done, len(futures), source)
    return tuple(sorted(failures, key=lambda failure: failure.source))
