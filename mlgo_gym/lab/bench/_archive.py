"""Suites as folders and as archives: made from corpora, packed, and unpacked.

An archive is a tar file compressed by xz. The same files give the same archive, byte for byte with
the same liblzma: names in order, no times, no owners.

`tarfile` writes archives but does not read them here. It keeps whatever a header says of the next
one in memory (a name of GBs), and takes a time that grows with the square of its length. Of what
others write, only what `pack` writes is taken: a file, and before it a name that is long.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import runpy
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from corpus_tools import Recipe, available_recipes, find_clang, load_recipe
from corpus_tools.budget import Budget
from corpus_tools.build import build_all
from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import Manifest, encode_command
from corpus_tools.reading import brief
from corpus_tools.scratch import scratch_folder
from corpus_tools.staging import INFO_NAME, WORKLOADS
from mlgo_gym.base import (
    BenchmarkError,
    OptionsError,
    open_regular,
    read_bounded,
    replacing,
    staged_folder,
    write_atomically,
    write_json,
    wrong_name,
)
from mlgo_gym.cc import localize_project, project_of_corpus, read_facts
from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus, corpus_info
from mlgo_gym.lab.bench._suite import (
    LOCAL,
    MAX_FILE_BYTES,
    PACKAGES_FILE,
    PLAIN,
    RECORDINGS,
    SUITE_FILE,
    SUMS_FILE,
    Suite,
    check_equal,
    differing,
    recording_file,
    shipped_suites,
    sums_of,
    sums_text,
)
from mlgo_gym.lab.bench._suite_runs import Submission
from mlgo_gym.lab.tiers import load_recordings
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, embedded_version
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import RecordedPolicy, Trace, trace_path

_ORIGIN: Final = ("recipe", "recipe_digest", "package", "version", "sdist", "sha256", "license")
_MODE: Final = 0o644
MAX_BYTES: Final = 1 << 32
_MAX_FILES: Final = 1 << 20
_MAX_NAME_BYTES: Final = 4096
_MAX_LEVELS: Final = 100
_BLOCK: Final = 512
_COPIED: Final = 1 << 20
_NAMED: Final = re.compile(rb"\d{1,4} path=(.+)\n", re.DOTALL)
_XZ: Final = 6

_SAMPLE: Final = "sample"


def make_suite(
    suite: Suite,
    sources: Mapping[str, Path],
    output: Path,
    *,
    jobs: int = 1,
    modules: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Make the folder of a suite from corpora, or of recordings.

    Objects of a suite of sizes have sections that a linker can drop and fold.

    Args:
        suite: its description, and the hashes that its files must have, if they are known.
        sources: the corpus of each package, or the file of each recording.
        output: the new folder, which appears whole or not at all.
        jobs: how many modules are worked on at once.
        modules: only these, of every package.
        progress: called with what is done next.

    Returns:
        The paths of files that are other ones than the suite names.

    Raises:
        BenchmarkError: a package is missing, is of another level or split, or LLVM's version is
            another one.
    """
    _check_llvm(suite)
    if missing := [name for name in suite.packages if name not in sources]:
        raise BenchmarkError(
            f"suite {suite.name}: expected {len(suite.packages)} packages, found no {missing[0]!r}"
        )
    with staged_folder(output, SUITE_FILE) as staged:
        origins: dict[str, Any] = {}
        for name in suite.packages:
            progress(name)
            if suite.traits.is_recorded:
                target = staged / RECORDINGS / recording_file(name)
                origins[name] = _copy_recording(sources[name], target)
                continue
            origins[name] = _copy_plain(suite, sources[name], staged / PLAIN / name, modules)
            if LOCAL in suite.tracks:
                _localize(suite, staged / PLAIN / name, staged / LOCAL / name, jobs)
        write_json(staged / PACKAGES_FILE, origins)
        write_json(staged / SUITE_FILE, suite.description)
        sums = sums_of(staged)
        write_atomically(staged / SUMS_FILE, sums_text(sums).encode())
        made = Suite.read(staged / SUITE_FILE, staged / SUMS_FILE, staged)
    return differing(suite, made)


def pack(suite: Suite, path: Path) -> None:
    """Write a suite's folder into an archive."""
    folder = suite.place
    names = sorted([*suite.sums, SUITE_FILE, SUMS_FILE])
    with (
        replacing(path) as file,
        lzma.open(file, "wb", preset=_XZ) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            data = read_bounded(folder / name, MAX_BYTES)
            member = tarfile.TarInfo(f"{suite.name}/{name}")
            member.size, member.mode = len(data), _MODE
            archive.addfile(member, io.BytesIO(data))


def unpack(path: Path, output: Path, suite: Suite | None = None, called: str = "") -> Suite:
    """Take a suite out of an archive, and check every file of it.

    Args:
        path: the archive.
        output: the new folder, which appears whole or not at all.
        suite: what it must be, if that is known.
        called: what errors call the archive, if not by its path.

    Raises:
        BenchmarkError: the archive is damaged, has something else in it, or its files are not
            those of its suite.
    """
    where = called or str(path)
    with staged_folder(output, SUITE_FILE) as staged:
        try:
            with open_regular(path) as file:
                if (size := os.fstat(file.fileno()).st_size) > MAX_BYTES:
                    raise BenchmarkError(
                        f"{where}: expected at most {MAX_BYTES:,} bytes, found {size:,}"
                    )
                with lzma.open(file, format=lzma.FORMAT_XZ) as packed:
                    _extract(packed, staged, where)
        except (tarfile.TarError, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise BenchmarkError(f"{where}: expected a suite's archive, found: {error}") from error
        except OSError as error:
            raise BenchmarkError(f"{where}: cannot be unpacked: {error.strerror}") from error
        if not (staged / SUITE_FILE).is_file():
            raise BenchmarkError(f"{where}: expected {SUITE_FILE} of a suite in it, found none")
        try:
            found = Suite.open(staged)
        except BenchmarkError as error:
            raise BenchmarkError(f"{where}: {error}") from error
        if suite is not None:
            check_equal(suite, found)
    return replace(found, folder=output)


def _extract(packed: IO[bytes], output: Path, where: str) -> None:
    budget = Budget(
        lambda problem: BenchmarkError(f"{where}: {problem}"), bytes=MAX_BYTES, files=_MAX_FILES
    )
    for member, size in _members(packed, where):
        budget.charge(bytes=size, files=1)
        if wrong_name(member) is not None or not 1 <= member.count("/") <= _MAX_LEVELS:
            raise BenchmarkError(f"{where}: expected files of a suite, found {member!r}")
        _, _, name = member.partition("/")
        if size > MAX_FILE_BYTES:
            expected = f"expected a file of at most {MAX_FILE_BYTES:,} bytes, found {size:,}"
            raise BenchmarkError(f"{where}: {name}: {expected}")
        target = output / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for part in _parts(packed, size):
                    file.write(part)
        except OSError as error:
            what = f"cannot be unpacked: {error.strerror}"
            raise BenchmarkError(f"{where}: {brief(name)}: {what}") from error


def _members(packed: IO[bytes], where: str) -> Iterator[tuple[str, int]]:
    """The name and the size of each file; its content is read before the next is asked for."""
    name = ""
    while any(block := _exactly(packed, _BLOCK)):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        if header.type == tarfile.XHDTYPE and not name and 0 < header.size <= _MAX_NAME_BYTES:
            given = _NAMED.fullmatch(b"".join(_parts(packed, header.size)))
            name = given[1].decode() if given else ""
            if name:
                continue
        if header.type != tarfile.REGTYPE or header.size < 0:
            raise BenchmarkError(f"{where}: expected files of a suite, found {header.name!r}")
        yield name or header.name, header.size
        name = ""


def _parts(packed: IO[bytes], size: int) -> Iterator[bytes]:
    """The content of a member, in parts, and what fills its last block."""
    for start in range(0, size, _COPIED):
        yield _exactly(packed, min(_COPIED, size - start))
    _exactly(packed, -size % _BLOCK)


def _exactly(packed: IO[bytes], size: int) -> bytes:
    data = packed.read(size)
    if len(data) < size:
        raise EOFError("the end, in the middle of a file")
    return data


def _copy_recording(source: Path, target: Path) -> dict[str, Any]:
    (recording,) = load_recordings(source).values()
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    return {"llvm": recording.llvm, "program_sha256": recording.program_sha256}


def _localize(suite: Suite, plain: Path, target: Path, jobs: int) -> None:
    project = project_of_corpus(plain)
    facts, unread = read_facts(project, jobs, DEFAULT_TIMEOUT_S)
    how: dict[str, Any] = {"jobs": jobs, "timeout_s": DEFAULT_TIMEOUT_S}
    _, failed = localize_project(project, facts, target, **how)
    for problem in (*unread, *failed.values()):
        raise BenchmarkError(f"suite {suite.name}: package {plain.name}: {problem}")


def _copy_plain(suite: Suite, source: Path, target: Path, modules: Sequence[str]) -> dict[str, Any]:
    corpus, info = Corpus.load(source), corpus_info(source)
    corpus = corpus.only(modules) if modules else corpus
    for key, expected in (("split", suite.split), ("opt_level", suite.opt_level)):
        if expected and info.get(key) != expected:
            what = f"expected a corpus of {key} {expected!r}, found {info.get(key)!r}"
            raise BenchmarkError(f"suite {suite.name}: package {target.name}: {what}")
    target.mkdir(parents=True)
    Manifest(corpus.names, corpus.has_thinlto, corpus.global_command).write(target)
    for name in corpus:
        module = corpus[name]
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / f"{name}.bc").write_bytes(module.data)
        if module.command is not None:
            command = [*module.command, *suite.traits.options]
            (target / f"{name}.cmd").write_bytes(encode_command(command))
    if suite.traits.has_workloads:
        shutil.copytree(corpus.folder / WORKLOADS, target / WORKLOADS)
    origin: dict[str, Any] = {key: info[key] for key in _ORIGIN if key in info}
    about = {**origin, "split": suite.split, "opt_level": suite.opt_level}
    write_json(target / INFO_NAME, about)
    return origin


def _check_llvm(suite: Suite) -> None:
    if suite.llvm_version != embedded_version():
        raise BenchmarkError(
            f"suite {suite.name}: expected LLVM {suite.llvm_version}, found {embedded_version()}; "
            "install the llvmlite of that LLVM"
        )


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


def function_of(given: str) -> PolicyLike:
    """The function of a file, ``FILE:NAME``.

    Raises:
        OptionsError: there is no such file or function, or the file cannot be loaded.
    """
    path, _, name = given.rpartition(":")
    if not path or not Path(path).is_file():
        raise OptionsError(f"--function: expected FILE:NAME, found {given!r}")
    try:
        found = runpy.run_path(path).get(name)
    except Exception as error:
        raise OptionsError(f"--function: {path}: cannot be loaded: {error}") from error
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
