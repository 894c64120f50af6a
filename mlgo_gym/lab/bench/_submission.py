"""Submissions: what policies answered on a suite, and what it is said to come to.

A submission is a zip file::

    card.json                                   what it says of itself: `Card`
    traces/TRACK/SEED/PACKAGE/MODULE.trace      a recorded compilation (`mlgo_gym.rollout.Trace`)
    traces/tiers/SEED/PROGRAM.decisions         of a suite of tiers: a byte a decision, by zlib

The same answers make the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from corpus_tools.reading import Shape, brief
from mlgo_gym.base import (
    BenchmarkError,
    open_zip,
    parse_json,
    read_bounded,
    replacing,
    wrong_name,
)
from mlgo_gym.lab.bench._kinds import TIERS
from mlgo_gym.lab.bench._suite import (
    BEST,
    NAME_EXPECTED,
    Suite,
    are_names,
    check_line,
    checked,
    is_name,
)
from mlgo_gym.llvm import embedded_version
from mlgo_gym.rollout import BASELINE

CARD_FILE: Final = "card.json"
TRACES: Final = "traces"
VERIFIED: Final = ".verified.json"
"""The end of the name of what `bench verify` leaves beside a submission."""

_VERSION: Final = 1
_TEXTS: Final = ("suite", "suite_sha256", "llvm_version", "name", "authors", "about", "url")
_SHAPE: Final[dict[str, Shape]] = {
    **dict.fromkeys(_TEXTS, str),
    "seeds": [str],
    "sha256": {"*": str},
    "values": {"*": {"*": {"*": {"*": float}}}},
}
_URL: Final = re.compile(r"https?://[^\s()<>|\"'`\\\[\]]{1,1000}")
_MAX_CARD_BYTES: Final = 1 << 24
_MAX_BYTES: Final = 1 << 28
_MAX_FILES: Final = 1 << 17
_DATE: Final = (1980, 1, 1, 0, 0, 0)

SuiteValues = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
"""Numbers by track, by package, by policy (LLVM's own among them), and by measure."""


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a submission.

    Attributes:
        name: what the table calls it; empty until it is submitted.
        authors: who made it.
        about: a sentence for people.
        url: where it is described.
        suite: the suite's name.
        suite_sha256: `Suite.sha256`.
        llvm_version: of the embedded compiler.
        seeds: the policies, one for each seed.
        values: what they come to, LLVM's own heuristic among them.
        sha256: the hash of each file of the traces, by its path.
    """

    suite: str
    suite_sha256: str
    llvm_version: str
    seeds: tuple[str, ...]
    values: SuiteValues = field(repr=False)
    sha256: Mapping[str, str] = field(repr=False)
    name: str = ""
    authors: str = ""
    about: str = ""
    url: str = ""

    @classmethod
    def from_json(cls, value: Any, where: str) -> Self:
        """Check what was read from a file.

        Raises:
            BenchmarkError: it is no card; the message says what was expected and found.
        """
        found = checked(value, _SHAPE, _VERSION, where)
        _check_url(found["url"], where)
        if found["name"]:
            _check_name(found["name"], f"{where}: name")
        seeds = found["seeds"]
        if not seeds or not are_names(seeds) or {BASELINE, BEST} & set(seeds):
            raise BenchmarkError(f"{where}: seeds: expected their names, found {brief(seeds)}")
        if not all(wrong_name(name) is None for name in found["sha256"]):
            names = brief(found["sha256"])
            raise BenchmarkError(f"{where}: sha256: expected hashes by path, found {names}")
        return cls(**found | {"seeds": tuple(seeds)})

    def to_json(self) -> dict[str, Any]:
        """The content of `CARD_FILE`."""
        return {"version": _VERSION, **asdict(self)}

    def check(self, suite: Suite) -> None:
        """See that it is of this suite and this LLVM, and that nothing is missing or added.

        Raises:
            BenchmarkError: it is not.
        """
        where = f"submission {self.name or '?'}"
        for what, expected, found in (
            ("suite", suite.name, self.suite),
            ("suite_sha256", suite.sha256, self.suite_sha256),
            ("llvm_version", suite.llvm_version, self.llvm_version),
            ("the embedded LLVM", suite.llvm_version, embedded_version()),
        ):
            if expected != found:
                raise BenchmarkError(f"{where}: {what}: expected {expected}, found {found}")
        expected_values = {each: set(suite.packages) for each in suite.scored_tracks}
        if {track: set(packages) for track, packages in self.values.items()} != expected_values:
            found = ", ".join(f"{track}: {len(each)}" for track, each in self.values.items())
            expected = ", ".join(f"{track}: {len(each)}" for track, each in expected_values.items())
            what = f"expected numbers of the suite's packages, {expected}"
            raise BenchmarkError(f"{where}: values: {what}, found {found}")
        expected_files = set(self.files(suite))
        if other := sorted(expected_files ^ self.sha256.keys()):
            some = f"{len(other)} that are missing or added, first {other[0]}"
            raise BenchmarkError(f"{where}: expected a trace of every module, found {some}")

    def files(self, suite: Suite) -> Iterator[str]:
        """The paths of the traces that it must have."""
        if suite.traits.is_recorded:
            for seed in self.seeds:
                yield from (decisions_path(seed, name) for name in suite.packages)
        for track in suite.tracks:
            for key in suite.modules(track):
                yield from (trace_name(track, each, key.package, key.name) for each in self.seeds)


def trace_name(track: str, seed: str, package: str, module: str) -> str:
    """The path of a module's trace in a submission."""
    return f"{TRACES}/{track}/{seed}/{package}/{module}.trace"


def decisions_path(seed: str, program: str) -> str:
    """The path of the decisions on a recording."""
    return f"{TRACES}/{TIERS}/{seed}/{program}.decisions"


@dataclass(frozen=True, slots=True)
class Submission:
    """A card and the files of its traces, in memory.

    Attributes:
        card: what it says of itself.
        files: the bytes of each file of its traces, by its path.
        sha256: the hash of the file that it was loaded from; empty of a run.

    Raises:
        BenchmarkError: of methods, a file cannot be read, is damaged, or has something else in it.

    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.lab.bench import run, sample_suite
    >>> with sample_suite(["digest.c"]) as suite:
    ...     made = run(suite, {"0": InliningForSize.policy("never")})
    >>> made.named("never", "A. Author", "nothing is inlined", "").card.name
    'never'
    """

    card: Card
    files: Mapping[str, bytes] = field(repr=False)
    sha256: str = ""

    @classmethod
    def of(
        cls, suite: Suite, seeds: tuple[str, ...], values: SuiteValues, files: Mapping[str, bytes]
    ) -> Self:
        """The submission of a run, without a name yet."""
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        card = Card(suite.name, suite.sha256, suite.llvm_version, seeds, values, hashes)
        return cls(card, files)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file, and check that every trace has the hash that the card says."""
        try:
            data = read_bounded(path, _MAX_BYTES)
            with open_zip(data, _MAX_BYTES, _MAX_FILES) as archive:
                files = _read(archive, str(path))
        except OSError as error:
            raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise BenchmarkError(f"{path}: expected a submission, found: {error}") from error
        if CARD_FILE not in files:
            raise BenchmarkError(f"{path}: expected {CARD_FILE} in it, found none")
        try:
            value = parse_json(files.pop(CARD_FILE))
        except ValueError as error:
            raise BenchmarkError(f"{path}: {CARD_FILE}: {error}") from error
        card = Card.from_json(value, f"{path}: {CARD_FILE}")
        for name in sorted({*files, *card.sha256}):
            found = hashlib.sha256(files[name]).hexdigest() if name in files else "none"
            if found != card.sha256.get(name):
                expected = card.sha256.get(name, "no such file")
                what = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
                raise BenchmarkError(f"{path}: {name}: {what}: the traces were altered")
        return cls(card, files, hashlib.sha256(data).hexdigest())

    def named(self, name: str, authors: str, about: str, url: str) -> Submission:
        """The same with a name, and who made it.

        Raises:
            BenchmarkError: a table cannot use the name or one of the texts.
        """
        _check_name(name, "name")
        check_line(authors, "authors")
        check_line(about, "about")
        _check_url(url, "--url")
        card = replace(self.card, name=name, authors=authors, about=about, url=url)
        return Submission(card, self.files)

    def save(self, path: Path) -> None:
        """Write the file."""
        text = json.dumps(self.card.to_json(), indent=1, sort_keys=True).encode()
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in sorted({CARD_FILE: text, **self.files}.items()):
                member = zipfile.ZipInfo(name, _DATE)
                member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(member, data)


def _read(archive: zipfile.ZipFile, where: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for member in archive.infolist():
        if wrong_name(member.filename) is not None or member.filename in files:
            raise BenchmarkError(f"{where}: expected files once each, found {member.filename!r}")
        if member.filename == CARD_FILE and member.file_size > _MAX_CARD_BYTES:
            raise BenchmarkError(
                f"{where}: {CARD_FILE}: expected at most {_MAX_CARD_BYTES:,} bytes"
            )
        with archive.open(member) as file:  # to read all of it would unpack more than it claims
            files[member.filename] = file.read(member.file_size)
    return files


def _check_name(name: str, where: str) -> None:
    if not is_name(name) or name == BASELINE:
        expected = f"expected {NAME_EXPECTED} other than {BASELINE!r}"
        raise BenchmarkError(f"{where}: {expected}, found {brief(name)}")


def _check_url(url: str, where: str) -> None:
    if url and not _URL.fullmatch(url):
        raise BenchmarkError(f"{where}: url: expected one of https or http, found {brief(url)}")
