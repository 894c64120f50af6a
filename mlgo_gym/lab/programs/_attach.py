"""Putting a profile's counts into the bitcode of a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from corpus_tools.errors import CompileError
from corpus_tools.manifest import Manifest, write_json
from corpus_tools.profdata import ProfileTools
from corpus_tools.reading import LARGEST_TEXT_BYTES
from corpus_tools.scratch import scratch_folder
from corpus_tools.staging import INFO_NAME, WORKLOAD_FILES, WORKLOADS, digests_of, staged_corpus
from mlgo_gym.base import ModuleError, ProfileError, read_bounded
from mlgo_gym.corpus import Corpus, Module, corpus_info
from mlgo_gym.curation import describe_module
from mlgo_gym.lab.programs._file import ProfileFile, summary_of_profile
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Compiler, Jobs, each


@dataclass(frozen=True, slots=True)
class Attached:
    """The outcome of attaching counts to the functions of modules.

    Attributes:
        counted: how many got counts.
        unknown: how many the profile does not know, which is so of code in no program that ran.
        mismatched: how many the profile knows with another control flow: it is of another build.

    >>> Attached(3, 1, 0) + Attached(1, 0, 1)
    Attached(counted=4, unknown=1, mismatched=1)
    """

    counted: int = 0
    unknown: int = 0
    mismatched: int = 0

    def __add__(self, other: Attached) -> Attached:
        return Attached(
            self.counted + other.counted,
            self.unknown + other.unknown,
            self.mismatched + other.mismatched,
        )


def attach_profile(
    corpus: Corpus,
    profile: ProfileFile,
    output: Path | str,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Attached]:
    """Write a corpus with a profile's counts in its bitcode; it appears whole or not at all.

    Names, command lines, workloads and what is known of the origin stay.

    Args:
        corpus: whose modules.
        profile: of these modules as they are, before optimisation.
        output: the new corpus.
        jobs: how many modules are worked on at once.
        timeout_s: how long LLVM may take for one, in seconds.
        progress: called when a module is done.

    Returns:
        What became of each module's functions.

    Raises:
        ModuleError: a module has a profile already, or LLVM refuses it.
        ProfileError: LLVM cannot read the profile, or no function gets counts of it.
        OutputError: the new corpus cannot be written there.
        ToolchainError: a tool of LLVM's is missing.

    >>> Attached(counted=10).mismatched
    0
    """
    tools = ProfileTools.find()
    with (
        staged_corpus(Path(output)) as staged,
        profile.at_hand() as counts,
        scratch_folder() as folder,
    ):
        summary_of_profile(profile)  # LLVM reads it

        def attach(compiler: Compiler, name: str) -> Attached:
            module = corpus[name]
            found, bitcode = _annotated(compiler, module, tools, counts, folder)
            made = staged / f"{name}.bc"
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(bitcode)
            return found

        compiler = partial(Compiler, timeout_s=timeout_s)
        found: dict[str, Attached] = {}
        with closing(each(corpus.names, attach, compiler, jobs=jobs, in_order=True)) as running:
            for done in running:
                found[done.item] = done.value
                progress()
        _check_fits(profile, corpus, found)
        _copy_rest(corpus, profile, staged)
    return found


def _annotated(
    compiler: Compiler, module: Module, tools: ProfileTools, counts: Path, folder: Path
) -> tuple[Attached, bytes]:
    before = describe_module(compiler, module)
    if before.profile.kind is not None:
        raise ModuleError(
            module.name, f"expected a module without a profile, found one: {before.profile.kind}"
        )
    bitcode = folder / f"{module.sha256}.bc"
    bitcode.write_bytes(module.data)
    try:
        annotated = tools.annotate(bitcode, counts, module.name)
    except CompileError as error:
        raise ModuleError(module.name, f"cannot be given counts: {error.last_line}") from error
    after = describe_module(compiler, Module(module.name, annotated.bitcode))
    counted = after.profile.functions_with_counts
    unknown = len(after.bodies) - counted - annotated.mismatches
    return Attached(counted, unknown, annotated.mismatches), annotated.bitcode


def _check_fits(profile: ProfileFile, corpus: Corpus, found: dict[str, Attached]) -> None:
    total = sum(found.values(), Attached())
    if not total.counted:
        raise ProfileError(
            profile.name,
            f"expected counts of functions of corpus {str(corpus.folder)!r}, found none: "
            f"{total.mismatched} have another control flow there, {total.unknown} are not in it",
        )


def _copy_rest(corpus: Corpus, profile: ProfileFile, staged: Path) -> None:
    """Everything but bitcode."""
    for name in corpus:
        command = corpus.folder / f"{name}.cmd"
        if command.is_file():
            data = read_bounded(command, LARGEST_TEXT_BYTES)
            (staged / f"{name}.cmd").write_bytes(data)
    info: dict[str, Any] = corpus_info(corpus.folder)
    info |= {"profile": {"sha256": hashlib.sha256(profile.data).hexdigest()}}
    folder = (corpus.folder / WORKLOADS).resolve()
    for path in sorted(folder.rglob("*")):
        # What a link leads to elsewhere is nothing of the corpus's.
        if path.is_file() and path.resolve().is_relative_to(folder):
            made = staged / WORKLOADS / path.relative_to(folder)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(read_bounded(path, LARGEST_TEXT_BYTES))
    if (staged / WORKLOADS).is_dir():
        info[WORKLOAD_FILES] = digests_of(staged / WORKLOADS)
    Manifest(corpus.names, corpus.has_thinlto, corpus.global_command).write(staged)
    write_json(staged / INFO_NAME, info)
