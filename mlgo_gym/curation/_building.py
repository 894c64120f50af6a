"""Corpora whose sources are compiled elsewhere: on nodes, which are sent a package's sdist.

A node unpacks the sdist as it is unpacked here, and compiles sources as they are compiled here, so
that the bitcode is the same bytes. That takes the same clang, and the same headers of C, C++ and
Python, of which a few are compared.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpus_tools.build import compilation_of, python_header_flags
from corpus_tools.clang import Clang, SourceFile, find_clang
from corpus_tools.compilation import (
    Compilation,
    CompileSources,
    Progress,
    check_source_name,
    largest_first,
)
from corpus_tools.errors import CompileError, CompileFailure, CorpusToolsError
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import scratch_folder
from corpus_tools.sdist import unpack_sources
from mlgo_gym.base import EnvironmentSetupError, read_bounded
from mlgo_gym.llvm import Jobs, each, workers

_MAX_BYTES: Final = 1 << 30
_SUFFIXES: Final = (".bc", ".cmd")
_PROBE: Final = "probe.cpp"
_HEADERS: Final = (
    *("stdlib.h", "stdio.h", "string.h", "math.h", "pthread.h", "unistd.h", "immintrin.h"),
    *("string", "vector", "map", "unordered_map", "memory", "algorithm", "iostream"),
    "Python.h",
)
"""Libraries that machines have of their own, maybe in another version."""


class Builders(AbstractContextManager["Builders"]):
    """Workers that compile one package after the other; as `jobs` of `corpus_tools.build_corpus`.

    Args:
        jobs: what makes the workers, such as a `RayCluster`.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._workers = workers(_Unpacked, jobs)

    def __call__(self, recipe: Recipe, sdist: Path) -> CompileSources:
        """Return the function that compiles the sources of a recipe.

        Raises:
            EnvironmentSetupError: when it is called, where a worker has another clang, other
                headers, or no room for the sources.
        """

        def compile_sources(
            compilation: Compilation,
            sources: Sequence[str],
            output: Path,
            progress: Progress | None,
        ) -> tuple[CompileFailure, ...]:
            for source in sources:
                check_source_name(source)
            headers = _headers_digest(recipe, compilation.clang)
            data = read_bounded(sdist, _MAX_BYTES)
            work = _CompileSource(recipe, data, compilation.clang, headers, compilation.opt_level)
            order = largest_first(sources, compilation.root)
            failures = []
            for count, done in enumerate(each(order, work, self._workers), 1):
                if isinstance(done.value, str):
                    failures.append(CompileFailure(done.item, done.value))
                else:
                    for suffix, content in zip(_SUFFIXES, done.value, strict=True):
                        path = output / f"{done.item}{suffix}"
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content)
                if progress is not None:
                    progress(count, len(order), done.item)
            return tuple(sorted(failures, key=lambda each: each.source))

        return compile_sources

    def __exit__(self, *_: object) -> None:
        self._workers.close()


@dataclass(frozen=True, slots=True)
class _CompileSource:
    """How each source of a package is compiled, and all that it takes but clang and headers."""

    recipe: Recipe
    sdist: bytes
    clang: Clang
    headers: str
    opt_level: str

    def __call__(self, unpacked: _Unpacked, source: str) -> tuple[bytes, ...] | str:
        """Return a source's bitcode and command, or the reason why there are none.

        Raises:
            EnvironmentSetupError: this machine is not as the one that asks.
        """
        compilation = unpacked.compilation(self)
        with scratch_folder() as folder:
            try:
                compilation.compile_source(source, folder)
            except CompileError as error:
                return str(error)
            files = (folder / f"{source}{suffix}" for suffix in _SUFFIXES)
            return tuple(read_bounded(each, _MAX_BYTES) for each in files)


class _Unpacked:
    """The sources of one package at a time, in a folder of this worker's."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._made: tuple[_CompileSource, Compilation] | None = None

    def compilation(self, work: _CompileSource) -> Compilation:
        """How the sources are compiled here.

        Raises:
            EnvironmentSetupError: clang or its headers are others than where work comes from, or
                the sources cannot be unpacked.
        """
        if self._made is None or self._made[0] is not work:
            self.close()
            try:
                self._made = work, self._unpack(work)
            except (CorpusToolsError, OSError) as error:
                raise EnvironmentSetupError(f"node {socket.gethostname()}: {error}") from error
        return self._made[1]

    def interrupt(self) -> None:
        """Nothing that is under way takes long: clang has a deadline."""

    def close(self) -> None:
        """Remove the folder."""
        self._made = None
        self._stack.close()

    def _unpack(self, work: _CompileSource) -> Compilation:
        clang = _clang_like(work.clang)
        if (found := _headers_digest(work.recipe, clang)) != work.headers:
            _refuse("the headers of C, C++ and Python", work.headers, found)
        folder = self._stack.enter_context(scratch_folder())
        sdist = folder / work.recipe.sdist
        sdist.write_bytes(work.sdist)
        root = unpack_sources(work.recipe, sdist, folder)
        return compilation_of(work.recipe, clang, root, work.opt_level)


def _clang_like(wanted: Clang) -> Clang:
    """The clang of the same path, or else the first on PATH, if it is the same one."""
    clang = find_clang(wanted.path if wanted.path.exists() else None)
    if clang.banner != wanted.banner:
        _refuse("clang", wanted.banner, clang.banner)
    return clang


def _refuse(what: str, expected: str, found: str) -> None:
    raise EnvironmentSetupError(
        f"node {socket.gethostname()}: {what}: expected {expected}, as here, found {found}: "
        "corpora could not be compared"
    )


def _headers_digest(recipe: Recipe, clang: Clang) -> str:
    """The hash of what clang makes of headers: SHA-256, of which a few digits do."""
    flags = ("-E", "-P", *python_header_flags(recipe))  # preprocessed, and without paths
    lines = (f"#if __has_include(<{each}>)\n#include <{each}>\n#endif\n" for each in _HEADERS)
    with scratch_folder() as folder:
        (folder / _PROBE).write_text("".join(lines))
        output = folder / "probe.ii"
        SourceFile(clang, _PROBE, folder, flags).compile(output)
        return hashlib.sha256(read_bounded(output, _MAX_BYTES)).hexdigest()[:12]
