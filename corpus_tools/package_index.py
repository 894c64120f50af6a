"""Finding and downloading an sdist where pip would, with what the extra ``corpus`` brings.

``pip download`` itself would run the package's build backend only to fetch a file. So pip is asked
for its configuration alone, and `unearth`, the package finder made from pip's, finds and downloads
the file.
"""

from __future__ import annotations

import ast
import logging
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, cast

from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.errors import UnpackError
from unearth.fetchers import Fetcher, PyPIClient
from unearth.preparer import HTTPErrors

from corpus_tools.errors import SdistError
from corpus_tools.recipes import Recipe

PIP_DEADLINE_S: Final = 60.0
_PYPI: Final = "https://pypi.org/simple/"
_PIPS_TIMEOUT_S: Final = 15.0
_SECTIONS: Final = ("global", "download", ":env:")  # the later wins, as in pip's Configuration
_TRUE: Final = {"1", "true", "yes", "y", "on", "t"}

_DOWNLOAD_FAILURES: tuple[type[Exception], ...] = (UnpackError, *HTTPErrors)
_LOOKUP_FAILURES: tuple[type[Exception], ...] = (ValueError, *HTTPErrors)

Source = tuple[Literal["index", "folder"], str]


def download(recipe: Recipe, folder: Path) -> Path:
    """Find the recipe's sdist where pip is configured to look, and download it into a folder.

    Raises:
        SdistError: the network failed, nobody has the file, or pip's configuration cannot be read.
    """
    options = _pip_options()
    sources = _sources(options)
    with _session(options, sources) as session:
        link = _find(recipe, sources, session)
        finder = PackageFinder(session=session)
        try:
            # No hashes: the recipe's is the one that counts, and is checked by the caller.
            file = finder.download(link, folder, hashes={})
        except _DOWNLOAD_FAILURES as error:
            raise _network_failure(recipe, f"{link.redacted}: {error}") from error
        # A link to a local file is answered with that file, which is not ours to move.
        return file if file.parent == folder else Path(shutil.copy(file, folder))


def _pip_options() -> dict[str, str]:
    """Pip's configuration: from long options, without dashes, to values in pip's spelling.

    Nothing where Python has no pip.
    """
    if find_spec("pip") is None:
        return {}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_DEADLINE_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().rpartition("\n")[2]
        raise SdistError(f"pip config list: exit status {error.returncode}: {last}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SdistError(f"pip config list: {error}") from error
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in done.stdout.splitlines():
        key, equals, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if equals and section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {option: value for section in _SECTIONS for option, value in sections[section].items()}


def _sources(options: Mapping[str, str]) -> list[Source]:
    folders: list[Source] = [("folder", each) for each in options.get("find-links", "").split()]
    if options.get("no-index", "").lower() in _TRUE:
        return folders
    indexes = (options.get("index-url") or _PYPI, *options.get("extra-index-url", "").split())
    return [*folders, *(("index", url) for url in indexes)]


@contextmanager
def _session(options: Mapping[str, str], sources: Sequence[Source]) -> Iterator[Fetcher]:
    client = PyPIClient(
        trusted_hosts=options.get("trusted-host", "").split(),
        verify=ssl.create_default_context(cafile=options.get("cert") or None),
        timeout=float(options.get("timeout") or options.get("default-timeout") or _PIPS_TIMEOUT_S),
    )
    # The default would ask for a password on the terminal.
    indexes = [address for kind, address in sources if kind == "index"]
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=indexes)
    with client:
        # Its methods take more arguments, in another order, than the protocol names.
        yield cast("Fetcher", client)


def _find(recipe: Recipe, sources: Sequence[Source], session: Fetcher) -> Link:
    """Ask one source after the other: one that fails must not keep the next from being asked."""
    notes: list[str] = []
    failures: list[Exception] = []
    for source in sources:
        try:
            with _notes_of_unearth(notes):
                if link := _find_in(source, recipe, session):
                    return link
        except _LOOKUP_FAILURES as error:
            notes.append(f"{Link(source[1]).redacted}: {error}")
            failures += [error] if isinstance(error, HTTPErrors) else []
    if failures:
        raise _network_failure(recipe, "; ".join(notes)) from failures[0]
    searched = ", ".join(Link(address).redacted for _, address in sources)
    found = "; ".join(notes) or "other files only"
    raise SdistError(
        f"package {recipe.package!r}: expected {recipe.sdist} in {searched}; found {found}"
    )


def _network_failure(recipe: Recipe, reason: str) -> SdistError:
    return SdistError(f"network failure while fetching package {recipe.package!r}: {reason}")


def _find_in(source: Source, recipe: Recipe, session: Fetcher) -> Link | None:
    kind, address = source
    finder = PackageFinder(
        session=session,
        index_urls=[address] if kind == "index" else [],
        find_links=[address] if kind == "folder" else [],
        no_binary=[":all:"],
    )
    packages = finder.find_matches(f"{recipe.package}=={recipe.version}")
    return next((found.link for found in packages if found.link.filename == recipe.sdist), None)


class _Notes(logging.Handler):
    """Collects what unearth only logs: which index did not answer as an index should."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message for the error that may follow."""
        self._notes.append(record.getMessage())


@contextmanager
def _notes_of_unearth(notes: list[str]) -> Iterator[None]:
    logger = logging.getLogger("unearth.collector")
    handler = _Notes(notes)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
