"""Building the corpora of many recipes, each into a folder of its own.

One recipe is compiled at a time, by as many clangs as there are jobs, while the sdists of the next
ones are fetched. A corpus that is up to date is left alone, so that a run that was stopped goes on
where it was; a recipe that fails does not keep the others from being built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from corpus_tools.build import BuildReport, build_corpus
from corpus_tools.clang import Clang, find_clang
from corpus_tools.compilation import Jobs, Progress, check_options
from corpus_tools.errors import BuildOptionError, CorpusToolsError
from corpus_tools.manifest import Manifest
from corpus_tools.provenance import is_up_to_date
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import scratch_folder
from corpus_tools.sdist import fetch_sdist

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
    with _cache(cache_dir) as cache, _fetching(stale, cache) as sdists:
        for recipe, sdist in zip(stale, sdists, strict=True):
            report_to = progress(recipe) if progress else None
            attempt = partial(build, cache_dir=cache, progress=report_to)
            outcomes[recipe.name] = _attempt(recipe, folders[recipe.name], sdist, attempt)
    return tuple(outcomes[recipe.name] for recipe in recipes)


def _check_names(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            problem = f"expected each name once, found {name!r} more than once"
            raise BuildOptionError(f"recipes: {problem}")


@contextmanager
def _cache(folder: Path | None) -> Iterator[Path]:
    with scratch_folder() as temporary:
        yield folder or temporary


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
