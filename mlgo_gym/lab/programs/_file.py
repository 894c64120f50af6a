"""Profiles as LLVM's ``llvm-profdata merge`` writes them, of instrumented IR."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from corpus_tools.errors import CompileError
from corpus_tools.profdata import ProfileTools
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import ProfileError, read_bounded
from mlgo_gym.lab.programs._profile_summary import Summary

LARGEST_BYTES: Final = 1 << 28

_INDEXED: Final = b"\xfflprofi\x81"
_RAW: Final = (b"\xfflprofr\x81", b"\x81rforpl\xff")
_HEADER: Final = struct.Struct("<QQ")
_OF_IR, _OF_CONTEXTS = 1 << 56, 1 << 57
_EXPECTED: Final = "expected a profile of instrumented IR as 'llvm-profdata merge' writes it"
_FUNCTION: Final = re.compile(
    r"^  (?P<name>.+):\n    Hash: (?P<hash>0x[0-9a-f]+)\n    Counters: \d+\n"
    r"    Block counts: \[(?P<counts>[\d, ]*)\]",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """An indexed profile of instrumented IR, whose header has been read.

    Attributes:
        name: what it is called in errors.
        data: its bytes.

    Raises:
        ProfileError: it is something else.

    >>> ProfileFile("a.profdata", b"")
    Traceback (most recent call last):
    mlgo_gym.errors.ProfileError: profile 'a.profdata': expected a profile of instrumented IR as \
'llvm-profdata merge' writes it, found an empty file
    """

    name: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if found := _problem_of(self.data):
            raise ProfileError(self.name, f"{_EXPECTED}, found {found}")

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read one.

        Raises:
            ProfileError: it cannot be read, is too large, or something else.
        """
        try:
            return cls(str(path), read_bounded(Path(path), LARGEST_BYTES))
        except OSError as error:
            raise ProfileError(str(path), f"cannot be read: {error.strerror}") from error

    @contextmanager
    def at_hand(self) -> Iterator[Path]:
        """A file of these bytes, for LLVM's tools."""
        with scratch_folder() as folder:
            path = folder / "profile.profdata"
            path.write_bytes(self.data)
            yield path


def _problem_of(data: bytes) -> str | None:
    if not data:
        return "an empty file"
    if data.startswith(_RAW):
        return "a raw one, which is to be merged first"
    if not data.startswith(_INDEXED):
        return "something else"
    if len(data) < _HEADER.size:
        return f"{len(data)} bytes"
    version = _HEADER.unpack_from(data)[1]
    if version & _OF_CONTEXTS:
        return "one of contexts, after inlining"
    return None if version & _OF_IR else "one of clang's front end"


def summary_of_profile(profile: ProfileFile) -> Summary:
    """LLVM's summary of a profile.

    Raises:
        ProfileError: LLVM cannot read it.
        ToolchainError: llvm-profdata is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import collect_profile
    >>> summary_of_profile(collect_profile(Corpus.load(SAMPLE_CORPUS)).profile).functions
    45
    """
    return Summary.printed(_shown(profile, "--detailed-summary"))


def counters_of(profile: ProfileFile) -> dict[tuple[str, str], tuple[int, ...]]:
    """The counters of a profile's functions.

    Raises:
        ProfileError: LLVM cannot read it.
        ToolchainError: llvm-profdata is missing.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import collect_profile
    >>> found = counters_of(collect_profile(Corpus.load(SAMPLE_CORPUS)).profile)
    >>> [counts for (name, _), counts in found.items() if name == "json_parse"]
    [(80, 80, 0, 80, 0)]
    """
    text = _shown(profile, "--all-functions", "--counts")
    return {
        (match["name"], match["hash"]): tuple(map(int, match["counts"].split(", ")))
        for match in _FUNCTION.finditer(text)
    }


def _shown(profile: ProfileFile, *options: str) -> str:
    tools = ProfileTools.find()
    with profile.at_hand() as path:
        try:
            return tools.show(path, *options)
        except CompileError as error:
            raise _unreadable(profile, error) from error


def _unreadable(profile: ProfileFile, error: CompileError) -> ProfileError:
    """Return the error for a profile that LLVM's tools refuse."""
    said = error.stderr_tail.rpartition(": ")[2].strip() or str(error)
    return ProfileError(profile.name, f"expected one that LLVM reads, found it {said!r}")
