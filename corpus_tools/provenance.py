"""The record of a corpus's making, ``corpus_info.json``, and whether that is up to date."""

from __future__ import annotations

import platform
from pathlib import Path

from corpus_tools.clang import Clang
from corpus_tools.errors import LayoutError
from corpus_tools.manifest import Manifest
from corpus_tools.reading import parse_json, read_regular
from corpus_tools.recipes import Recipe
from corpus_tools.staging import INFO_NAME, WORKLOAD_FILES, WORKLOADS, digests_of
from corpus_tools.workloads import workloads_digest


def recipe_info(recipe: Recipe) -> dict[str, str]:
    """Return what ``corpus_info.json`` says of a recipe, and of the Python whose headers it needs.

    Args:
        recipe: the recipe.
    """
    info = {
        "recipe": recipe.name,
        "recipe_digest": recipe.digest,
        "package": recipe.package,
        "version": recipe.version,
        "sdist": recipe.sdist,
        "sha256": recipe.sha256,
        "split": recipe.split,
        "license": recipe.license,
    }
    info |= {"python": platform.python_version()} if recipe.needs_python_headers else {}
    return info | workloads_digest(recipe.name)


def compiler_info(clang: Clang, opt_level: str) -> dict[str, str]:
    """Return what ``corpus_info.json`` says of the compiler."""
    return {"clang": clang.banner, "opt_level": opt_level}


def is_up_to_date(output: Path, recipe: Recipe, clang: Clang, opt_level: str) -> bool:
    """Say whether a build would only repeat what is there.

    Args:
        output: where the corpus would go.
        recipe: what would be built.
        clang: by which compiler.
        opt_level: at which level.

    Returns:
        True if a corpus is there that was made of the same recipe, by a clang of the same banner,
        at the same level, without leaving a source out, and all of its bitcode and of its
        workloads is still there.
        The headers of the system, other than Python's, are not looked at.
    """
    try:
        Manifest.read(output)
        info = parse_json(read_regular(output / INFO_NAME))
    except (LayoutError, OSError, ValueError):
        return False
    made = info.pop(WORKLOAD_FILES, {}) if isinstance(info, dict) else {}
    is_whole = digests_of(output / WORKLOADS) == made
    return is_whole and bool(info == recipe_info(recipe) | compiler_info(clang, opt_level))
