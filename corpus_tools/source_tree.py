"""The tree that a recipe is compiled in: its sdist, with what the package's build would add.

Some sdists carry a library as an archive of its own, and some sources include headers that
``configure`` or ``cmake`` would write. A recipe names the first and holds the second; neither may
replace a file that the sdist has.
"""

from __future__ import annotations

from pathlib import Path

from corpus_tools.archive import unpack_sdist
from corpus_tools.errors import RecipeError
from corpus_tools.recipes import Recipe


def unpack_sources(recipe: Recipe, sdist: Path, folder: Path) -> Path:
    """Unpack an sdist, then the recipe's archives in it, then write its generated files.

    Args:
        recipe: the recipe.
        sdist: its file, whose hash was checked.
        folder: an existing folder to unpack into.

    Returns:
        The package's top folder, inside a new folder of ``folder``.

    Raises:
        SdistError: see `unpack_sdist`.
        RecipeError: an archive is not there, or what is added has the name of what is there.
    """
    root = unpack_sdist(sdist, folder)
    for archive in recipe.archives:
        _unpack_beside(recipe, archive, root)
    for name, content in recipe.generated_files:
        _write(recipe, name, content, root)
    return root


def _unpack_beside(recipe: Recipe, name: str, root: Path) -> None:
    archive = root / name
    if not archive.is_file():
        problem = f"expected an archive in {recipe.sdist}, found none"
        raise RecipeError(f"recipe {recipe.name!r}: {name!r}: {problem}")
    top = unpack_sdist(archive, archive.parent)
    target = archive.parent / top.name
    if target.exists():
        raise _taken(recipe, target.relative_to(root).as_posix())
    top.rename(target)
    top.parent.rmdir()


def _write(recipe: Recipe, name: str, content: str, root: Path) -> None:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(content)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _taken(recipe, name) from error


def _taken(recipe: Recipe, name: str) -> RecipeError:
    problem = f"expected a new name, found it in {recipe.sdist}"
    return RecipeError(f"recipe {recipe.name!r}: {name!r}: {problem}")
