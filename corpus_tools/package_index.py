"""Finding and downloading an sdist, with what the extra ``corpus`` brings.

`unearth`, the package finder made from pip's, finds and downloads the file. ``pip download``
itself would run the package's build backend only to fetch a file.
"""

from __future__ import annotations

import logging
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.errors import UnpackError
from unearth.fetchers import Fetcher, PyPIClient
from unearth.preparer import HTTPErrors

from corpus_tools.errors import SdistError
from corpus_tools.pip_config import PipConfig
from corpus_tools.recipes import Recipe

_DOWNLOAD_FAILURES: tuple[type[Exception], ...] = (UnpackError, *HTTPErrors)
_LOOKUP_FAILURES: tuple[type[Exception], ...] = (ValueError, *HTTPErrors)

Source = tuple[Literal["index", "folder"], str]


def download(recipe: Recipe, folder: Path, config: PipConfig) -> Path:
    """Find the recipe's sdist and download it into a folder.

    Raises:
        SdistError: the network failed, or nobody has the file.
    """
    with _session(config) as session:
        link = _find(recipe, config, session)
        finder = PackageFinder(session=session)
        try:
            # No hashes: the recipe's is the one that counts, and is checked by the caller.
            file = finder.download(link, folder, hashes={})
        except _DOWNLOAD_FAILURES as error:
            raise _network_failure(recipe, f"{link.redacted}: {error}") from error
        # A link to a local file is answered with that file, which is not ours to move.
        return file if file.parent == folder else Path(shutil.copy(file, folder))


@contextmanager
def _session(config: PipConfig) -> Iterator[Fetcher]:
    verify = ssl.create_default_context(cafile=config.certificates)
    client = PyPIClient(trusted_hosts=config.trusted_hosts, verify=verify, timeout=config.timeout_s)
    # The default would ask for a password on the terminal.
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=config.index_urls)
    with client:
        # Its methods take more arguments, in another order, than the protocol names.
        yield cast("Fetcher", client)


def _find(recipe: Recipe, config: PipConfig, session: Fetcher) -> Link:
    """Ask one source after the other: one that fails must not keep the next from being asked."""
    notes: list[str] = []
    failures: list[Exception] = []
    for source in _sources(config):
        try:
            with _notes_of_unearth(notes):
                if link := _find_in(source, recipe, session):
                    return link
        except _LOOKUP_FAILURES as error:
            notes.append(f"{Link(source[1]).redacted}: {error}")
            failures += [error] if isinstance(error, HTTPErrors) else []
    if failures:
        raise _network_failure(recipe, "; ".join(notes)) from failures[0]
    searched = ", ".join(Link(address).redacted for _, address in _sources(config))
    found = "; ".join(notes) or "other files only"
    raise SdistError(
        f"package {recipe.package!r}: expected {recipe.sdist} in {searched}; found {found}"
    )


def _network_failure(recipe: Recipe, reason: str) -> SdistError:
    return SdistError(f"network failure while fetching package {recipe.package!r}: {reason}")


def _sources(config: PipConfig) -> list[Source]:
    folders: list[Source] = [("folder", link) for link in config.find_links]
    return [*folders, *(("index", url) for url in config.index_urls)]


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
