"""Building a corpus: from a recipe, or from a folder of sources.

The same inputs give the same bytes, whatever the number of jobs and wherever the sources are
unpacked: clang runs at their root and sees relative names only. The output folder appears when
the corpus is complete, and is not touched before.
"""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from corpus_tools.clang import Clang, find_clang
from corpus_tools.compilation import (
    Compilation,
    CompileSources,
    Jobs,
    Progress,
    check_options,
    compile_sources,
)
from corpus_tools.errors import BuildFailedError, CompileFailure, RecipeError, ToolchainError
from corpus_tools.manifest import Manifest, write_json
from corpus_tools.provenance import compiler_info, recipe_info
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import scratch_folder
from corpus_tools.sdist import fetch_sdist
from corpus_tools.source_tree import unpack_sources
from corpus_tools.staging import (
    INFO_NAME,
    WORKLOAD_FILES,
    WORKLOADS,
    check_output,
    digests_of,
    staged_corpus,
)
from corpus_tools.workloads import build_workloads


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
        flags = (*recipe.flags, *python_header_flags(recipe))
        workloads = build_workloads(recipe, root, clang, flags)
        compilation = Compilation(
            clang=clang,
            root=root,
            flags=flags,
            file_flags=recipe.file_flags,
            opt_level=opt_level,
            jobs=jobs if isinstance(jobs, int) else 1,
        )
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
        failures = compile_all(compilation, sources, staged, progress=progress)
        modules = _kept(sources, failures, keep_going=keep_going)
        built_by = compiler_info(compilation.clang, compilation.opt_level)
        left_out = {"left_out": [each.source for each in failures]} if failures else {}
        more = _take_workloads(workloads, staged / WORKLOADS) if workloads else {}
        write_json(staged / INFO_NAME, {**(info or {}), **built_by, **left_out, **more})
        Manifest(modules).write(staged)
    return BuildReport(output, modules, failures, time.monotonic() - start)


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
