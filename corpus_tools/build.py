"""Building corpora: of recipes, or of a folder of sources.

The same inputs give the same bytes, whatever the number of jobs and wherever the sources are
unpacked: clang runs at their root and sees relative names only. The output folder appears when
the corpus is complete, and is not touched before.

Of many recipes one is compiled at a time, while the sdists of the next ones are fetched. A corpus
that is up to date, by its ``corpus_info.json``, is left alone, so that a run that was stopped goes
on where it was.
"""

from __future__ import annotations

import platform
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Literal

from corpus_tools.clang import Clang, find_clang
from corpus_tools.compilation import (
    Compilation,
    CompileSources,
    Jobs,
    Progress,
    check_options,
    compile_sources,
)
from corpus_tools.errors import (
    BuildFailedError,
    BuildOptionError,
    CompileFailure,
    CorpusToolsError,
    LayoutError,
    RecipeError,
    ToolchainError,
)
from corpus_tools.manifest import Manifest, write_json
from corpus_tools.reading import parse_json, read_regular
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import scratch_folder
from corpus_tools.sdist import fetch_sdist, unpack_sources
from corpus_tools.staging import (
    INFO_NAME,
    WORKLOAD_FILES,
    WORKLOADS,
    check_output,
    digests_of,
    staged_corpus,
)
from corpus_tools.workloads import build_workloads, workloads_digest


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The outcome of a build.

    Attributes:
        output: the corpus.
        modules: its modules, sorted.
        failures: the sources that are not in it because they did not compile, sorted.
        elapsed_s: seconds that the compilation took, without fetching and unpacking.
    """

    output: Path
    modules: tuple[str, ...]
    failures: tuple[CompileFailure, ...]
    elapsed_s: float


def build_corpus(
    recipe: Recipe,
    output: Path,
    *,
    clang: Clang | None = None,
    opt_level: str = "Oz",
    jobs: Jobs = 1,
    cache_dir: Path | None = None,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Fetch a recipe's sdist, check it, and compile it into a corpus.

    Args:
        recipe: what to build.
        output: the corpus; a corpus that is there is replaced, anything else is refused.
        clang: the compiler; by default the one that `find_clang` finds.
        opt_level: one of `corpus_tools.clang.OPT_LEVELS`.
        jobs: how many clangs run at a time, or who compiles elsewhere.
        cache_dir: where the sdist is looked for and kept; by default it is not kept.
        keep_going: leave out sources that do not compile, as long as one does.
        progress: called after each source.

    Raises:
        CorpusToolsError: see `corpus_tools.errors`. ``output`` is then as it was before.
    """
    # What can be refused at once is refused before anything is downloaded.
    check_options(opt_level, jobs)
    check_output(output)
    clang = clang or find_clang()
    with scratch_folder() as temporary:
        sdist = fetch_sdist(recipe, cache_dir or temporary / "cache")
        root = unpack_sources(recipe, sdist, temporary)
        local = jobs if isinstance(jobs, int) else 1
        compilation = compilation_of(recipe, clang, root, opt_level, local)
        workloads = build_workloads(recipe, root, clang, compilation.flags)
        return build_from_sources(
            compilation,
            expand_globs(recipe, root),
            output,
            keep_going=keep_going,
            progress=progress,
            info=recipe_info(recipe),
            workloads=workloads,
            compile_all=compile_sources if isinstance(jobs, int) else jobs(recipe, sdist),
        )


def build_from_sources(
    compilation: Compilation,
    sources: Sequence[str],
    output: Path,
    *,
    keep_going: bool = False,
    progress: Progress | None = None,
    info: Mapping[str, str] | None = None,
    workloads: Path | None = None,
    compile_all: CompileSources = compile_sources,
) -> BuildReport:
    """Compile sources of a local folder into a corpus.

    Args:
        compilation: how, and the folder that they are in.
        sources: relative to that folder, with ``/`` between parts; doubles count once.
        output: as for `build_corpus`.
        keep_going: leave out sources that do not compile, as long as one does.
        progress: called after each source.
        info: provenance for ``corpus_info.json``, beside compiler and optimisation level.
        workloads: a folder that becomes the corpus's, where there is one.
        compile_all: what compiles them.

    Raises:
        CorpusToolsError: see `corpus_tools.errors`. ``output`` is then as it was before.
    """
    sources = sorted(set(sources))
    start = time.monotonic()
    with staged_corpus(output) as staged:
        failures = compile_all(compilation, sources, staged, progress)
        modules = _kept(sources, failures, keep_going=keep_going)
        built_by = compiler_info(compilation.clang, compilation.opt_level)
        left_out = {"left_out": [each.source for each in failures]} if failures else {}
        more = _take_workloads(workloads, staged / WORKLOADS) if workloads else {}
        write_json(staged / INFO_NAME, {**(info or {}), **built_by, **left_out, **more})
        Manifest(modules).write(staged)
    return BuildReport(output, modules, failures, time.monotonic() - start)


def compilation_of(
    recipe: Recipe, clang: Clang, root: Path, opt_level: str, jobs: int = 1
) -> Compilation:
    """How a recipe's sources are compiled, which are unpacked in ``root``.

    Raises:
        ToolchainError: it needs Python's headers, and there are none.
    """
    return Compilation(
        clang=clang,
        root=root,
        flags=(*recipe.flags, *python_header_flags(recipe)),
        file_flags=recipe.file_flags,
        opt_level=opt_level,
        jobs=jobs,
    )


def expand_globs(recipe: Recipe, root: Path) -> tuple[str, ...]:
    """Return the sources that a recipe selects, relative to ``root``, sorted.

    Args:
        recipe: its globs and exclusions.
        root: the unpacked sdist.

    Raises:
        RecipeError: a glob matches no file, or nothing but excluded ones, or all together select
            another number of files than the recipe says.
    """
    sources: set[str] = set()
    for glob in recipe.globs:
        sources |= _matches(recipe, glob, root)
    if recipe.modules not in {None, len(sources)}:
        problem = f"expected {recipe.modules} modules, found {len(sources)} sources"
        raise RecipeError(f"recipe {recipe.name!r}: {problem}")
    return tuple(sorted(sources))


def python_header_flags(recipe: Recipe) -> tuple[str, ...]:
    """Return the include flags of the running Python, if the recipe needs them.

    Raises:
        ToolchainError: it needs them and there is no Python.h.
    """
    if not recipe.needs_python_headers:
        return ()
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise ToolchainError(
            f"recipe {recipe.name!r}: expected Python.h in {folder}, found none; "
            "on Debian or Ubuntu: apt-get install python3-dev"
        )
    folders = dict.fromkeys([str(folder), sysconfig.get_path("platinclude")])
    # Assertions in Python's headers put __FILE__ into the bitcode.
    return tuple(
        flag for name in folders for flag in (f"-I{name}", f"-fmacro-prefix-map={name}=python")
    )


def _matches(recipe: Recipe, glob: str, root: Path) -> set[str]:
    glob_of = f"recipe {recipe.name!r}: glob {glob!r}"
    files = {path.relative_to(root).as_posix() for path in root.glob(glob) if path.is_file()}
    if not files:
        raise RecipeError(f"{glob_of} matches no file of {recipe.sdist}")
    kept = {file for file in files if not any(fnmatchcase(file, no) for no in recipe.exclude)}
    if not kept:
        raise RecipeError(f"{glob_of} matches only excluded files of {recipe.sdist}")
    return kept


def _take_workloads(folder: Path, target: Path) -> dict[str, object]:
    if not folder.is_dir():
        return {}
    shutil.move(folder, target)
    return {WORKLOAD_FILES: digests_of(target)}


def _kept(
    sources: Sequence[str], failures: tuple[CompileFailure, ...], *, keep_going: bool
) -> tuple[str, ...]:
    failed = {failure.source for failure in failures}
    modules = tuple(source for source in sources if source not in failed)
    if not modules or (failures and not keep_going):
        raise BuildFailedError(failures, len(sources))
    return modules


def recipe_info(recipe: Recipe) -> dict[str, str]:
    """Return what ``corpus_info.json`` says of a recipe, and of the Python whose headers it needs.

    Args:
        recipe: the recipe.
    """
    info = {
        "recipe": recipe.name,
        "recipe_digest": recipe.digest,
        "package": recipe.package,
        "version": recipe.version,
        "sdist": recipe.sdist,
        "sha256": recipe.sha256,
        "split": recipe.split,
        "license": recipe.license,
    }
    info |= {"python": platform.python_version()} if recipe.needs_python_headers else {}
    return info | workloads_digest(recipe.name)


def compiler_info(clang: Clang, opt_level: str) -> dict[str, str]:
    """Return what ``corpus_info.json`` says of the compiler."""
    return {"clang": clang.banner, "opt_level": opt_level}


def is_up_to_date(output: Path, recipe: Recipe, clang: Clang, opt_level: str) -> bool:
    """Say whether a build would only repeat what is there.

    Args:
        output: where the corpus would go.
        recipe: what would be built.
        clang: by which compiler.
        opt_level: at which level.

    Returns:
        True if a corpus is there that was made of the same recipe, by a clang of the same banner,
        at the same level, without leaving a source out, and all of its bitcode and of its
        workloads is still there.
        The headers of the system, other than Python's, are not looked at.
    """
    try:
        Manifest.read(output)
        info = parse_json(read_regular(output / INFO_NAME))
    except (LayoutError, OSError, ValueError):
        return False
    made = info.pop(WORKLOAD_FILES, {}) if isinstance(info, dict) else {}
    is_whole = digests_of(output / WORKLOADS) == made
    return is_whole and bool(info == recipe_info(recipe) | compiler_info(clang, opt_level))


Status = Literal["built", "up to date", "incomplete", "failed"]
"""The outcomes of a recipe; an incomplete corpus lacks the sources that did not compile."""

StartProgress = Callable[[Recipe], Progress]
"""Called before a recipe is built; what it returns is called after each of its sources."""


@dataclass(frozen=True, slots=True)
class RecipeOutcome:
    """The outcome of one recipe.

    Attributes:
        recipe: the recipe.
        output: where its corpus is, or would be.
        status: see `Status`.
        modules: how many modules the corpus has; 0 if the build failed.
        bitcode_bytes: the size of their bitcode.
        elapsed_s: seconds that it took, waiting for the sdist included.
        problems: the messages of what went wrong.
    """

    recipe: Recipe
    output: Path
    status: Status
    modules: int
    bitcode_bytes: int
    elapsed_s: float
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the corpus is there, with all of its modules."""
        return self.status in {"built", "up to date"}


def build_all(
    recipes: Sequence[Recipe],
    output: Path,
    *,
    clang: Clang | None = None,
    opt_level: str = "Oz",
    jobs: Jobs = 1,
    cache_dir: Path | None = None,
    keep_going: bool = False,
    progress: StartProgress | None = None,
) -> tuple[RecipeOutcome, ...]:
    """Build the corpus of each recipe into ``output/NAME``, unless it is up to date.

    Args:
        recipes: what to build, in this order; their names must differ.
        output: the folder of the corpora; made if missing.
        clang: the compiler; by default the one that `find_clang` finds.
        opt_level: one of `corpus_tools.clang.OPT_LEVELS`.
        jobs: how many clangs run at a time, or who compiles elsewhere.
        cache_dir: where sdists are looked for and kept; by default they are not kept.
        keep_going: leave out sources that do not compile, as long as one of the recipe does.
        progress: called, from the calling thread, for each recipe that is built.

    Returns:
        One outcome for each recipe, in the same order.

    Raises:
        BuildOptionError: an option is out of range, or two recipes have the same name.
        ToolchainError: there is no clang that will do.
    """
    check_options(opt_level, jobs)
    _check_names(recipes)
    clang = clang or find_clang()
    build = partial(
        build_corpus, clang=clang, opt_level=opt_level, jobs=jobs, keep_going=keep_going
    )
    folders = {recipe.name: output / recipe.name for recipe in recipes}
    stale = [
        recipe
        for recipe in recipes
        if not is_up_to_date(folders[recipe.name], recipe, clang, opt_level)
    ]
    outcomes = {
        recipe.name: _up_to_date(recipe, folders[recipe.name])
        for recipe in recipes
        if recipe not in stale
    }
    with scratch_folder() as temporary, _fetching(stale, cache_dir or temporary) as sdists:
        for recipe, sdist in zip(stale, sdists, strict=True):
            report_to = progress(recipe) if progress else None
            attempt = partial(build, cache_dir=cache_dir or temporary, progress=report_to)
            outcomes[recipe.name] = _attempt(recipe, folders[recipe.name], sdist, attempt)
    return tuple(outcomes[recipe.name] for recipe in recipes)


def _check_names(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            problem = f"expected each name once, found {name!r} more than once"
            raise BuildOptionError(f"recipes: {problem}")


@contextmanager
def _fetching(recipes: Sequence[Recipe], cache: Path) -> Iterator[list[Future[Path]]]:
    """Fetch sdists one after the other while the block runs."""
    fetcher = ThreadPoolExecutor(1)
    try:
        yield [fetcher.submit(fetch_sdist, recipe, cache) for recipe in recipes]
    finally:
        # On an interrupt, what has not started does not start.
        fetcher.shutdown(cancel_futures=True)


def _attempt(
    recipe: Recipe, folder: Path, sdist: Future[Path], build: Callable[..., BuildReport]
) -> RecipeOutcome:
    start = time.monotonic()
    try:
        sdist.result()
        report = build(recipe, folder)
    except CorpusToolsError as error:
        elapsed_s = time.monotonic() - start
        return RecipeOutcome(recipe, folder, "failed", 0, 0, elapsed_s, (str(error),))
    problems = tuple(failure.reason for failure in report.failures)
    return RecipeOutcome(
        recipe,
        folder,
        "incomplete" if problems else "built",
        len(report.modules),
        _bitcode_bytes(folder, report.modules),
        time.monotonic() - start,
        problems,
    )


def _up_to_date(recipe: Recipe, folder: Path) -> RecipeOutcome:
    modules = Manifest.read(folder).modules
    size_bytes = _bitcode_bytes(folder, modules)
    return RecipeOutcome(recipe, folder, "up to date", len(modules), size_bytes, 0.0)


def _bitcode_bytes(folder: Path, modules: Sequence[str]) -> int:
    return sum((folder / f"{module}.bc").stat().st_size for module in modules)
