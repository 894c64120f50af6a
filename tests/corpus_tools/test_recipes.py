"""Recipes: those that ship, and every way for a file not to be one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.licenses import canonicalize_license_expression

from corpus_tools import Recipe, available_recipes, load_recipe
from corpus_tools.errors import RecipeError
from corpus_tools.recipes import FIELDS

_GOOD: dict[str, object] = {
    "name": "tiny",
    "package": "Tiny.Package",
    "version": "1.0rc1",
    "sdist": "tiny-1.0rc1.zip",
    "sha256": "0123456789abcdef" * 4,
    "split": "test",
    "language": "C",
    "license": "MIT",
    "globs": ["src/**/*.c"],
}
_GLOBS = "a list of patterns relative to the sdist, without '..'"
_ARCHIVES = "a list of names relative to the sdist, without '..'"
_GENERATED = "a table from name, relative to the sdist and without '..', to text"


def _write(folder: Path, table: dict[str, object]) -> Path:
    # JSON's scalars and lists are TOML's; its tables are not.
    path = folder / "tiny.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    return path


def _without_punctuation(name: str) -> str:
    """As indexes compare the names of packages."""
    return re.sub("[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", available_recipes())
def test_shipped_recipes_load_under_their_own_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    sdist = f"{recipe.package}-{recipe.version}.tar.gz"
    assert _without_punctuation(recipe.sdist) == _without_punctuation(sdist)


@pytest.mark.parametrize("name", available_recipes())
def test_shipped_recipes_name_their_licenses_as_spdx_does(name: str) -> None:
    found = load_recipe(name).license
    assert found == canonicalize_license_expression(found)


def test_no_policy_is_trained_on_the_packages_it_is_tested_on() -> None:
    recipes = [load_recipe(name) for name in available_recipes()]
    packages = {
        split: {recipe.package for recipe in recipes if recipe.split == split}
        for split in ("train", "test", "final")
    }
    first = {"box2d-py", "cmarkgfm", "libsass", "lupa", "pycares", "yara-python"}
    assert packages["test"] >= first
    for one, other in itertools.combinations(packages.values(), 2):
        assert one.isdisjoint(other)


def test_the_shipped_recipes_are_many_and_each_is_one_of_its_own() -> None:
    recipes = [load_recipe(name) for name in available_recipes()]
    assert len(recipes) > 40
    assert all(recipe.modules for recipe in recipes)
    assert sum(recipe.modules or 0 for recipe in recipes) > 1000
    assert len({(recipe.sdist, recipe.globs) for recipe in recipes}) == len(recipes)
    hashes = {(recipe.package, recipe.version): recipe.sha256 for recipe in recipes}
    assert len(set(hashes.values())) == len({recipe.sha256 for recipe in recipes}) == len(hashes)


def test_every_field_of_the_table_is_a_field_of_the_recipe() -> None:
    assert list(FIELDS) == list(Recipe.__dataclass_fields__)


def test_a_file_gives_all_fields(tmp_path: Path) -> None:
    more = {"exclude": ["src/main.c"], "needs_python_headers": True}
    path = _write(tmp_path, _GOOD | more | {"archives": ["deps/a.zip"], "modules": 3})
    path.write_text(
        path.read_text()
        + '[file_flags]\n"*avx2*" = ["-mavx2", "-mbmi"]\n'
        + "[generated_files]\n\"conf/a.h\" = '''\n#define A 1\n'''\n"
    )
    recipe = load_recipe(path)
    assert recipe.globs == ("src/**/*.c",)
    assert recipe.exclude == ("src/main.c",)
    assert recipe.file_flags == (("*avx2*", ("-mavx2", "-mbmi")),)
    assert recipe.needs_python_headers
    assert recipe.archives == ("deps/a.zip",)
    assert recipe.generated_files == (("conf/a.h", "#define A 1\n"),)
    assert recipe.modules == 3


@pytest.mark.parametrize(
    ("key", "value", "expected", "found"),
    [
        ("name", "Tiny Recipe", "lower-case letters, digits, '-', '_'", "'Tiny Recipe'"),
        ("package", "../tiny", "a package's name", "'../tiny'"),
        ("version", 1.0, "a version", "1.0"),
        ("sdist", "a/b.tar.gz", "a file name that ends with .tar.gz or .zip", "'a/b.tar.gz'"),
        ("sdist", "b.whl", "a file name that ends with .tar.gz or .zip", "'b.whl'"),
        ("sha256", "abc", "64 lower-case hexadecimal digits", "'abc'"),
        ("sha256", "A" * 64, "64 lower-case hexadecimal digits", repr("A" * 64)),
        ("split", "dev", "'train', 'test' or 'final'", "'dev'"),
        ("language", "", "a non-empty string", "''"),
        ("license", 3, "a non-empty string", "3"),
        ("globs", [], f"{_GLOBS}, not empty", "[]"),
        ("globs", "*.c", f"{_GLOBS}, not empty", "'*.c'"),
        ("globs", ["/etc/*"], f"{_GLOBS}, not empty", "['/etc/*']"),
        ("globs", ["a/../../*.c"], f"{_GLOBS}, not empty", "['a/../../*.c']"),
        ("exclude", ["../*.c"], _GLOBS, "['../*.c']"),
        ("flags", "-O2", "a list of strings", "'-O2'"),
        ("flags", [1], "a list of strings", "[1]"),
        ("file_flags", [], "a table from pattern to list of strings", "[]"),
        ("needs_python_headers", 1, "true or false", "1"),
        ("archives", ["../a.zip"], _ARCHIVES, "['../a.zip']"),
        ("archives", "a.zip", _ARCHIVES, "'a.zip'"),
        ("generated_files", ["a.h"], _GENERATED, "['a.h']"),
        ("modules", 0, "a whole number of at least 1", "0"),
        ("modules", 1.5, "a whole number of at least 1", "1.5"),
        ("modules", True, "a whole number of at least 1", "True"),
    ],
)
def test_a_malformed_value_is_refused(
    tmp_path: Path, key: str, value: object, expected: str, found: str
) -> None:
    path = _write(tmp_path, _GOOD | {key: value})
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value) == f"{path}: key {key!r}: expected {expected}, found {found}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('"/etc/a.h" = ""', "{'/etc/a.h': ''}"),
        ('"a/../../a.h" = ""', "{'a/../../a.h': ''}"),
        ('"a.h" = 1', "{'a.h': 1}"),
        ('"" = ""', "{'': ''}"),
    ],
)
def test_a_generated_file_has_a_name_in_the_sdist_and_text(
    tmp_path: Path, line: str, found: str
) -> None:
    path = _write(tmp_path, _GOOD)
    path.write_text(f"{path.read_text()}[generated_files]\n{line}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    start = f"{path}: key 'generated_files': expected "
    assert str(caught.value) == f"{start}{_GENERATED}, found {found}"


def test_a_digest_is_of_every_field(tiny_recipe: Callable[..., Recipe]) -> None:
    changes: dict[str, object] = {
        "name": "a",
        "package": "a",
        "version": "2",
        "sdist": "a.zip",
        "sha256": "1" * 64,
        "split": "test",
        "language": "C++",
        "license": "ISC",
        "globs": ("a.c",),
        "exclude": ("b.c",),
        "flags": ("-w",),
        "file_flags": (("a.c", ("-w",)),),
        "needs_python_headers": True,
        "archives": ("a.zip",),
        "modules": 1,
        "generated_files": (("a.h", ""),),
    }
    assert set(changes) == {field.name for field in dataclasses.fields(Recipe)}
    digests = {tiny_recipe(**{key: value}).digest for key, value in changes.items()}
    assert len(digests | {tiny_recipe().digest}) == len(changes) + 1
    assert tiny_recipe().digest == tiny_recipe().digest


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, _GOOD | {"glob": "*.c"})
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    known = ", ".join(FIELDS)
    assert str(caught.value) == f"{path}: key 'glob': expected one of {known}, found an unknown key"


@pytest.mark.parametrize("key", sorted(_GOOD))
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = _write(tmp_path, {other: value for other, value in _GOOD.items() if other != key})
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    expected = FIELDS[key].expected
    assert str(caught.value) == f"{path}: key {key!r}: expected {expected}, found no such key"


@pytest.mark.parametrize(
    "content",
    [b"name =", b"\xff\xfe", b"name = " + b"[" * 100_000],
    ids=["half", "no UTF-8", "deep"],
)
def test_what_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"bad\.toml: expected TOML, found "):
        load_recipe(path)


def test_a_recipe_of_any_size_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    with path.open("wb") as stream:
        stream.truncate(1 << 33)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    problem = "expected at most 1048576 bytes, found 8589934592"
    assert str(caught.value) == f"{path}: cannot be read: {problem}"


def test_a_recipe_made_in_code_is_checked_too(tiny_recipe: Callable[..., Recipe]) -> None:
    with pytest.raises(RecipeError) as caught:
        tiny_recipe(split="dev")
    assert (
        str(caught.value)
        == "recipe 'tiny': key 'split': expected 'train', 'test' or 'final', found 'dev'"
    )


@pytest.mark.parametrize(
    ("name", "like_it"),
    [
        ("lua", ["lupa"]),
        ("no/such.toml", [*available_recipes()[:3]]),
        ("lupa.toml", ["lupa"]),
    ],
)
def test_an_unknown_name_lists_known_ones(name: str, like_it: list[str]) -> None:
    """Those that are like it, or the first ones."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(name)
    more = len(available_recipes()) - len(like_it)
    known = f"{', '.join(like_it)} and {more} more"
    assert str(caught.value) == f"no recipe {name!r}; known recipes: {known}"
