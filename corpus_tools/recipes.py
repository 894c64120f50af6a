"""Recipes: how to make a corpus from the source distribution of a PyPI package.

A recipe is a TOML file; `FIELDS` lists its keys. Those in ``corpus_tools/recipes/`` ship with the
package and are found by name; any other is named by its path.

>>> "lupa" in available_recipes()
True
>>> load_recipe("lupa").sdist
'lupa-2.8.tar.gz'
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Any

from corpus_tools.errors import RecipeError
from corpus_tools.printable import listed
from corpus_tools.reading import read_regular
from corpus_tools.tables import (
    TEXT,
    Field,
    check_table,
    check_values,
    is_count,
    is_names,
    is_strings,
    matches,
    read_table,
)

_SUFFIX = ".toml"
_LARGEST_BYTES = 1 << 20  # a hundred times the largest that ships

_GLOBS = "a list of patterns relative to the sdist, without '..'"


def _is_flag_table(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and is_names(list(value))
        and all(is_strings(flags) for flags in value.values())
    )


def _is_file_table(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and is_names(list(value))
        and all(isinstance(content, str) for content in value.values())
    )


FIELDS: Mapping[str, Field] = {
    "name": Field("lower-case letters, digits, '-', '_'", matches(r"[a-z0-9][a-z0-9_-]*")),
    "package": Field("a package's name", matches(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")),
    "version": Field("a version", matches(r"[0-9][0-9A-Za-z.+!_-]*")),
    "sdist": Field(
        "a file name that ends with .tar.gz or .zip",
        matches(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*\.(tar\.gz|zip)"),
    ),
    "sha256": Field("64 lower-case hexadecimal digits", matches(r"[0-9a-f]{64}")),
    "split": Field("'train', 'test' or 'final'", matches("train|test|final")),
    "language": TEXT,
    "license": TEXT,
    "globs": Field(f"{_GLOBS}, not empty", lambda value: is_names(value) and bool(value)),
    "exclude": Field(_GLOBS, is_names),
    "flags": Field("a list of strings", is_strings),
    "file_flags": Field("a table from pattern to list of strings", _is_flag_table),
    "needs_python_headers": Field("true or false", lambda value: isinstance(value, bool)),
    "archives": Field("a list of names relative to the sdist, without '..'", is_names),
    "generated_files": Field(
        "a table from name, relative to the sdist and without '..', to text", _is_file_table
    ),
    "modules": Field(
        "a whole number of at least 1", lambda value: value is None or is_count(value)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make a corpus from one sdist.

    Attributes:
        name: of the recipe.
        package: its name on PyPI.
        version: of the package.
        sdist: file name of the source distribution.
        sha256: of that file, hexadecimal.
        split: ``train``, ``test`` for packages that no policy may be trained on, or ``final`` for
            those that nothing may be chosen by either.
        language: of the sources, for people.
        license: of the sources, for people.
        globs: which files to compile, as `pathlib.Path.glob` takes them.
        exclude: which of those to leave out, as `fnmatch` takes them, on the whole relative path.
        flags: for clang, relative paths in them starting at the root of the sdist.
        file_flags: pairs (pattern, further flags for the files it matches), as in ``exclude``.
        needs_python_headers: whether the include folder of the running Python is needed.
        archives: inside the sdist, each unpacked beside itself before anything else is done.
        generated_files: pairs (name, content) of files that the package's own build would make.
        modules: how many sources the globs select, or None where that was not recorded.

    Raises:
        RecipeError: a value is malformed.
    """

    name: str
    package: str
    version: str
    sdist: str
    sha256: str
    split: str
    language: str
    license: str
    globs: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    file_flags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    needs_python_headers: bool = False
    archives: tuple[str, ...] = ()
    generated_files: tuple[tuple[str, str], ...] = ()
    modules: int | None = None

    def __post_init__(self) -> None:
        table = {field.name: getattr(self, field.name) for field in fields(self)}
        table |= {key: dict(table[key]) for key in ("file_flags", "generated_files")}
        check_values(table, FIELDS, f"recipe {self.name!r}", RecipeError)

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 over all fields: recipes of one digest build the same corpus."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def available_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that ship with this package, sorted."""
    files = (Path(entry.name) for entry in _shipped().iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == _SUFFIX))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Load a recipe.

    Args:
        name_or_path: the name of a shipped recipe, or the path of a ``.toml`` file.

    Raises:
        RecipeError: no shipped recipe has this name and no file this path, or the file is not a
            valid recipe.
    """
    known = available_recipes()
    if name_or_path in known:
        shipped = _shipped() / f"{name_or_path}{_SUFFIX}"
        return _parse(shipped.read_bytes(), str(shipped))
    path = Path(name_or_path)
    if path.suffix != _SUFFIX or not path.is_file():
        text = f"no recipe {str(name_or_path)!r}; known recipes: {listed(known, name_or_path)}"
        raise RecipeError(text)
    try:
        return _parse(read_regular(path, _LARGEST_BYTES), str(path))
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from error


def flags_for(
    source: str,
    flags: tuple[str, ...],
    file_flags: tuple[tuple[str, tuple[str, ...]], ...] = (),
) -> tuple[str, ...]:
    """Return the flags of one source: those of C++ alone are dropped for C.

    >>> flags_for("a.c", ("-std=c++17", "-Isrc"), (("a.*", ("-mavx2",)),))
    ('-Isrc', '-mavx2')

    Args:
        source: relative to the root of its package.
        flags: of all sources.
        file_flags: pairs (pattern, further flags of the sources it matches).
    """
    is_c = PurePosixPath(source).suffix == ".c"
    general = [flag for flag in flags if not (is_c and flag.startswith(("-std=c++", "-std=gnu++")))]
    own = [flag for glob, more in file_flags if fnmatchcase(source, glob) for flag in more]
    return (*general, *own)


def _shipped() -> Traversable:
    # The folder holds data and is no package: this module has its name.
    return resources.files("corpus_tools") / "recipes"


def _parse(data: bytes, where: str) -> Recipe:
    table = read_table(data, where, RecipeError)
    check_table(table, FIELDS, Recipe, where, RecipeError)
    return Recipe(**{key: _frozen(value) for key, value in table.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, Mapping):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return value
