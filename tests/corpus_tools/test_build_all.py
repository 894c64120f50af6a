"""Building many recipes: what is built, what is left alone, what fails on its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_tools import Clang, Manifest, Recipe, build_corpus
from corpus_tools.build import RecipeOutcome, build_all, is_up_to_date
from corpus_tools.compilation import Progress
from corpus_tools.errors import BuildOptionError
from corpus_tools.staging import INFO_NAME

MakeRecipe = Callable[..., Recipe]

_FILES = {
    "a.c": "int a(int x) { return x + 1; }\n",
    "b.c": "int b(int x) { return x + 2; }\n",
    "c.c": "int c(int x) { return x + 3; }\n",
    "bad.c": "#error no\n",
}


@pytest.fixture
def recipes(make_sdist: MakeRecipe) -> tuple[Recipe, Recipe]:
    recipe = make_sdist(_FILES)
    return (
        replace(recipe, name="one", globs=("a.c",), modules=1),
        replace(recipe, name="two", globs=("b.c", "c.c"), split="test"),
    )


def _statuses(outcomes: tuple[RecipeOutcome, ...]) -> dict[str, str]:
    return {each.recipe.name: each.status for each in outcomes}


def _times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_each_recipe_gets_a_folder_of_its_own(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    one, two = build_all(recipes, tmp_path / "out", clang=clang22, jobs=2)
    assert [one.recipe, two.recipe] == list(recipes)
    assert (one.status, one.modules, one.problems, one.is_complete) == ("built", 1, (), True)
    assert (two.status, two.modules, two.problems, two.is_complete) == ("built", 2, (), True)
    assert one.output == tmp_path / "out" / "one"
    assert Manifest.read(two.output).modules == ("b.c", "c.c")
    sizes = [(two.output / f"{name}.bc").stat().st_size for name in ("b.c", "c.c")]
    assert two.bitcode_bytes == sum(sizes) > 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"one", "two"}


def test_a_corpus_is_what_build_corpus_makes(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    build_all(recipes, tmp_path / "out", clang=clang22)
    build_corpus(recipes[1], tmp_path / "alone", clang=clang22)
    for path in (tmp_path / "alone").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / "two" / path.name).read_bytes()


def test_what_is_up_to_date_is_left_alone_and_nothing_is_fetched(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    before = build_all(recipes, tmp_path / "out", clang=clang22)
    times = _times(tmp_path / "out")
    (tmp_path / "links" / recipes[0].sdist).unlink()
    after = build_all(recipes, tmp_path / "out", clang=clang22)
    assert _statuses(after) == {"one": "up to date", "two": "up to date"}
    assert [each.bitcode_bytes for each in after] == [each.bitcode_bytes for each in before]
    assert [each.modules for each in after] == [1, 2]
    assert all(each.is_complete for each in after)
    assert _times(tmp_path / "out") == times


@pytest.mark.e2e
def test_a_new_recipe_or_level_or_a_lost_module_is_built_again(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    output = tmp_path / "out"
    build_all(recipes, output, clang=clang22)
    one, two = recipes
    changed = (replace(one, flags=("-DA",)), two)
    assert _statuses(build_all(changed, output, clang=clang22)) == {
        "one": "built",
        "two": "up to date",
    }
    (output / "two" / "b.c.bc").unlink()
    assert _statuses(build_all(changed, output, clang=clang22))["two"] == "built"
    (output / "two" / "corpus_info.json").write_text("{")
    assert _statuses(build_all(changed, output, clang=clang22))["two"] == "built"
    assert set(_statuses(build_all(changed, output, clang=clang22)).values()) == {"up to date"}
    again = build_all(changed, output, clang=clang22, opt_level="O2")
    assert set(_statuses(again).values()) == {"built"}
    other = replace(clang22, banner=f"{clang22.banner} (another)")
    assert set(_statuses(build_all(changed, output, clang=other, opt_level="O2")).values()) == {
        "built"
    }


def test_one_that_fails_does_not_stop_the_others(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    one, two = recipes
    failing = {
        "no-file": replace(one, name="no-file", sdist="tiny-1.0.zip"),
        "no-glob": replace(one, name="no-glob", globs=("*.cc",)),
        "count": replace(one, name="count", modules=2),
        "bad": replace(one, name="bad", globs=("bad.c",)),
    }
    outcomes = build_all((*failing.values(), two), tmp_path / "out", clang=clang22)
    found = {each.recipe.name: each for each in outcomes}
    assert _statuses(outcomes) == dict.fromkeys(failing, "failed") | {"two": "built"}
    assert found["count"].problems == ("recipe 'count': expected 2 modules, found 1 sources",)
    assert found["no-glob"].problems == (
        "recipe 'no-glob': glob '*.cc' matches no file of tiny-1.0.tar.gz",
    )
    assert found["no-file"].problems[0].startswith("package 'tiny': expected tiny-1.0.zip in ")
    assert found["bad"].problems[0].startswith("1 of 1 sources did not compile:\nbad.c: ")
    assert not any(found[name].is_complete or found[name].modules for name in failing)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["two"]


@pytest.mark.e2e
def test_an_incomplete_corpus_is_said_to_be_and_tried_again(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    recipe = replace(recipes[0], globs=("a.c", "bad.c"), modules=2)
    for _ in range(2):
        (outcome,) = build_all([recipe], tmp_path / "out", clang=clang22, keep_going=True)
        assert (outcome.status, outcome.modules, outcome.is_complete) == ("incomplete", 1, False)
        assert outcome.problems[0].startswith("bad.c: clang exited with 1\n")
    info = json.loads((tmp_path / "out" / "one" / "corpus_info.json").read_bytes())
    assert info["left_out"] == ["bad.c"]


@pytest.mark.e2e
def test_progress_is_of_the_recipes_that_are_built(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    seen: list[tuple[str, int, int]] = []

    def start(recipe: Recipe) -> Progress:
        return lambda done, total, _source: seen.append((recipe.name, done, total))

    build_all(recipes[:1], tmp_path / "out", clang=clang22)
    build_all(recipes, tmp_path / "out", clang=clang22, progress=start)
    assert seen == [("two", 1, 2), ("two", 2, 2)]


@pytest.mark.e2e
def test_an_interrupted_run_keeps_what_it_had_built(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    def start(recipe: Recipe) -> Progress:
        def interrupt(done: int, total: int, source: str) -> None:
            if recipe.name == "two":
                raise KeyboardInterrupt(done, total, source)

        return interrupt

    with pytest.raises(KeyboardInterrupt):
        build_all(recipes, tmp_path / "out", clang=clang22, progress=start)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one"]
    after = build_all(recipes, tmp_path / "out", clang=clang22)
    assert _statuses(after) == {"one": "up to date", "two": "built"}


def test_sdists_are_kept_where_they_are_asked_for(
    clang22: Clang, tmp_path: Path, recipes: tuple[Recipe, Recipe]
) -> None:
    build_all(recipes, tmp_path / "out", clang=clang22, cache_dir=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tiny-1.0.tar.gz"]


@pytest.mark.e2e
def test_the_python_whose_headers_are_needed_is_part_of_the_corpus(
    clang22: Clang,
    tmp_path: Path,
    recipes: tuple[Recipe, Recipe],
    python_headers: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert python_headers.is_dir()
    both = (replace(recipes[0], needs_python_headers=True), recipes[1])
    build_all(both, tmp_path / "out", clang=clang22)
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    after = build_all(both, tmp_path / "out", clang=clang22)
    assert _statuses(after) == {"one": "built", "two": "up to date"}


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("one", "two", "one"), {}, "recipes: expected each name once, found 'one' more than once"),
        (("one",), {"jobs": 0}, "jobs: expected at least 1, found 0"),
        (
            ("one",),
            {"opt_level": "O1"},
            "opt_level: expected one of O2, O3, Os, Oz, found 'O1'",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(
    tmp_path: Path,
    tiny_recipe: MakeRecipe,
    names: tuple[str, ...],
    options: dict[str, object],
    message: str,
) -> None:
    recipes = [tiny_recipe(name=name) for name in names]
    with pytest.raises(BuildOptionError) as caught:
        build_all(recipes, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_a_corpus_whose_info_is_nested_too_deeply_is_built_again(
    clang22: Clang, tmp_path: Path, tiny_recipe: MakeRecipe
) -> None:
    Manifest(()).write(tmp_path)
    (tmp_path / INFO_NAME).write_text("[" * 100_000)
    assert not is_up_to_date(tmp_path, tiny_recipe(), clang22, "Oz")
