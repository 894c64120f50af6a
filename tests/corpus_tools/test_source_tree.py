"""Source trees: sdists with archives unpacked in them and generated files beside theirs."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_tools import Recipe
from corpus_tools.errors import RecipeError, SdistError
from corpus_tools.sdist import unpack_sources
from tests.folders import tree

MakeRecipe = Callable[..., Recipe]


def _zip(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return stream.getvalue()


def _sdist(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "tiny-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_archives_are_unpacked_beside_themselves_and_files_are_written(
    tmp_path: Path, tiny_recipe: MakeRecipe
) -> None:
    inner = _zip({"lib-2/src/b.c": "int b;"})
    sdist = _sdist(tmp_path, {"a.c": b"int a;", "deps/lib.zip": inner})
    recipe = tiny_recipe(
        archives=("deps/lib.zip",),
        generated_files=(("deps/lib-2/config.h", "#define B 1\n"), ("new/c.h", "// \u00e9\r\n")),
    )
    root = unpack_sources(recipe, sdist, tmp_path)
    assert tree(root) == {
        "a.c": b"int a;",
        "deps/lib.zip": inner,
        "deps/lib-2/src/b.c": b"int b;",
        "deps/lib-2/config.h": b"#define B 1\n",
        "new/c.h": "// \u00e9\r\n".encode(),
    }
    assert [path.name for path in (root / "deps").iterdir() if path.is_dir()] == ["lib-2"]


@pytest.mark.parametrize(
    ("changes", "name", "problem"),
    [
        ({"archives": ("b.zip",)}, "b.zip", "expected an archive in tiny-1.0.tar.gz, found none"),
        ({"archives": ("src",)}, "src", "expected an archive in tiny-1.0.tar.gz, found none"),
        ({"archives": ("lib.zip",)}, "src", "expected a new name, found it in tiny-1.0.tar.gz"),
        (
            {"generated_files": (("src/a.c", ""),)},
            "src/a.c",
            "expected a new name, found it in tiny-1.0.tar.gz",
        ),
        (
            {"generated_files": (("src", ""),)},
            "src",
            "expected a new name, found it in tiny-1.0.tar.gz",
        ),
        (
            {"generated_files": (("src/a.c/b.h", ""),)},
            "src/a.c/b.h",
            "expected a new name, found it in tiny-1.0.tar.gz",
        ),
    ],
)
def test_what_does_not_fit_the_sdist_is_refused(
    tmp_path: Path,
    tiny_recipe: MakeRecipe,
    changes: dict[str, tuple[object, ...]],
    name: str,
    problem: str,
) -> None:
    sdist = _sdist(tmp_path, {"src/a.c": b"int a;", "lib.zip": _zip({"src/b.c": ""})})
    with pytest.raises(RecipeError) as caught:
        unpack_sources(tiny_recipe(**changes), sdist, tmp_path)
    assert str(caught.value) == f"recipe 'tiny': {name!r}: {problem}"


def test_an_archive_in_an_sdist_is_as_suspect_as_the_sdist(
    tmp_path: Path, tiny_recipe: MakeRecipe
) -> None:
    sdist = _sdist(tmp_path, {"bad.zip": _zip({"../../evil": ""}), "text.zip": b"no archive"})
    with pytest.raises(SdistError):
        unpack_sources(tiny_recipe(archives=("bad.zip",)), sdist, tmp_path)
    with pytest.raises(SdistError):
        unpack_sources(tiny_recipe(archives=("text.zip",)), sdist, tmp_path)
    assert not list(tmp_path.rglob("evil"))
