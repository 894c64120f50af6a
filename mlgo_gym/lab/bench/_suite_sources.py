"""Where suites and policies come from: names, folders, recipes, files of functions, traces."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from corpus_tools import Recipe, available_recipes, find_clang, load_recipe
from corpus_tools.build import build_all
from corpus_tools.errors import CorpusToolsError
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import BenchmarkError, OptionsError
from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.lab.bench._archive import make_suite
from mlgo_gym.lab.bench._submission import Submission
from mlgo_gym.lab.bench._suite import Suite, recording_file, shipped_suites, some_of
from mlgo_gym.llvm import embedded_version
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import RecordedPolicy, Trace, trace_path

_SAMPLE: Final = "sample"


def suite_named(given: str | Path) -> Suite:
    """A suite that ships, or that of a description file, whose hashes are beside it if known."""
    path = Path(given)
    if str(given) in shipped_suites() or path.suffix != ".json":
        return Suite.shipped(str(given))
    return Suite.read(path, path.with_suffix(".sha256"))


@contextmanager
def open_or_sample(folder: Path | None) -> Iterator[Suite]:
    """The suite of a folder; without one, that of the sample corpus."""
    if folder is not None:
        yield Suite.open(folder)
        return
    with sample_suite() as suite:
        yield suite


@contextmanager
def sample_suite(modules: Sequence[str] = ()) -> Iterator[Suite]:
    """A suite of sizes of the sample corpus, in a folder for the time of the block.

    Args:
        modules: which; all by default.

    >>> with sample_suite(["digest.c"]) as suite:
    ...     suite.tracks, len(suite.modules("plain"))
    (('plain', 'local'), 1)
    """
    suite = Suite(
        name="size-sample",
        kind="size",
        about="The sample corpus at -Oz, for a first look.",
        llvm_version=embedded_version(),
        problem="inlining-for-size",
        opt_level="",
        split="",
        tracks=("plain", "local"),
        packages=(_SAMPLE,),
    )
    with scratch_folder() as scratch:
        folder = scratch / suite.name
        make_suite(suite, {_SAMPLE: SAMPLE_CORPUS}, folder, modules=modules)
        yield Suite.open(folder)


def sources_in(suite: Suite, folder: Path) -> dict[str, Path]:
    """The corpora of a suite's packages in a folder of corpora, or its recordings."""
    is_recorded = suite.traits.is_recorded
    found = {
        name: folder / (recording_file(name) if is_recorded else name) for name in suite.packages
    }
    return {name: path for name, path in found.items() if path.exists()}


def build_sources(
    suite: Suite, folder: Path, clang: str | None, jobs: int, progress: Callable[[str], None]
) -> dict[str, Path]:
    """Build the corpora of a suite's packages by their recipes.

    Raises:
        BenchmarkError: a package has no recipe, or cannot be built.
    """
    if unknown := [name for name in suite.packages if name not in available_recipes()]:
        raise BenchmarkError(
            f"suite {suite.name}: expected recipes of its packages, found none of {unknown[0]!r}; "
            "give its archive"
        )
    recipes = [load_recipe(name) for name in suite.packages]

    def started(recipe: Recipe) -> Callable[[int, int, str], None]:
        return lambda done, total, _: progress(f"building {recipe.name}: {done} of {total}")

    try:
        outcomes = build_all(
            recipes,
            folder,
            clang=find_clang(clang),
            opt_level=suite.opt_level,
            jobs=jobs,
            progress=started,
        )
    except CorpusToolsError as error:
        raise BenchmarkError(f"suite {suite.name}: {error}") from error
    for each in outcomes:
        if not each.is_complete:
            raise BenchmarkError(
                f"suite {suite.name}: package {each.recipe.name}: {each.problems[0]}"
            )
    return {name: folder / name for name in suite.packages}


def check_differing(suite: Suite, other: Sequence[str]) -> None:
    """Say which files are others than the suite names.

    Raises:
        BenchmarkError: there are some.
    """
    if not other:
        return
    raise BenchmarkError(
        f"suite {suite.name}: expected the {len(suite.sums)} files that it names, found "
        f"{len(other)} that differ: {some_of(other)}; another clang makes other bitcode: give the "
        "archive"
    )


def function_of(given: str) -> PolicyLike:
    """The function of a file, ``FILE:NAME``.

    Raises:
        OptionsError: there is no such file or function.
    """
    path, _, name = given.rpartition(":")
    if not path or not Path(path).is_file():
        raise OptionsError(f"--function: expected FILE:NAME, found {given!r}")
    found = runpy.run_path(path).get(name)
    if not callable(found):
        raise OptionsError(f"--function: expected a function {name!r} in {path}, found {found!r}")
    made: PolicyLike = found
    return made


def recorded_policy(suite: Suite, problem: Problem, given: Sequence[str]) -> RecordedPolicy:
    """Answers as traces do: of each module, those of the smallest text.

    Args:
        suite: what is answered; modules without a trace are left to LLVM's own heuristic.
        problem: what LLVM asks for.
        given: folders that have ``TRACK/PACKAGE/MODULE.trace``, and submissions.

    Raises:
        OptionsError: none of them has a trace of the suite's modules.
    """
    best: dict[str, Trace] = {}
    for trace in _traces(suite, given):
        known = best.get(trace.module_sha256)
        if known is None or trace.text_size_bytes < known.text_size_bytes:
            best[trace.module_sha256] = trace
    if not best:
        raise OptionsError(f"--traces: expected traces of {suite.name}, found none")
    return RecordedPolicy(best.values(), problem.policy())


def _traces(suite: Suite, given: Sequence[str]) -> Iterator[Trace]:
    for each in map(Path, given):
        if each.is_file():
            for name, data in Submission.load(each).files.items():
                yield Trace.from_bytes(data, name)
            continue
        for track in suite.tracks:
            for key in suite.modules(track):
                path = trace_path(each / track / key.package, key.name)
                if path.is_file():
                    yield Trace.load(path)
