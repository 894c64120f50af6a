"""Fetching the sdist of a recipe: out of the cache, or from wherever pip would look for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from corpus_tools.errors import SdistError
from corpus_tools.reading import open_regular
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import sibling_folder


def fetch_sdist(recipe: Recipe, cache_dir: Path) -> Path:
    """Return the recipe's sdist, downloading it if the cache does not have it.

    Args:
        recipe: names the file and its SHA-256, which is checked in either case.
        cache_dir: folder to keep the file in; made if missing. A file of the right name and the
            wrong content is replaced. Nothing half-written is ever there under that name.

    Returns:
        The file, in ``cache_dir``.

    Raises:
        SdistError: the network failed, nobody has the file, what came is not what the recipe
            asks for, or unearth is missing.
    """
    cached = cache_dir / recipe.sdist
    if cached.is_file() and sha256_of(cached) == recipe.sha256:
        return cached
    with sibling_folder(cached) as temporary:
        fetched = _download(recipe, temporary)
        check_sha256(fetched, recipe.sha256)
        fetched.replace(cached)
    return cached


def check_sha256(path: Path, expected: str) -> None:
    """See that a file is the one that was meant.

    Args:
        path: the file.
        expected: hexadecimal SHA-256.

    Raises:
        SdistError: it is another.
    """
    found = sha256_of(path)
    if found != expected:
        raise SdistError(f"{path.name}: expected sha256 {expected}, found {found}")


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(recipe: Recipe, folder: Path) -> Path:
    try:
        from corpus_tools.package_index import download  # noqa: PLC0415 - an extra brings unearth
    except ModuleNotFoundError as error:
        raise SdistError(
            f"package {recipe.package!r}: needs {error.name}; run: pip install 'mlgo-gym[corpus]'"
        ) from error
    return download(recipe, folder)
