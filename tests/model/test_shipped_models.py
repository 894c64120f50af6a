"""Models that ship: found by name, with cards that hold, and better than LLVM where it is quick."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.model._card import find_model, read_card, read_model_json, shipped_models
from mlgo_gym.runners._model_runners import ReleaseModeModelRunner
from mlgo_gym.runners._models import problem_of_models, settings_of_models
from mlgo_gym.runners._policy import RunnerPolicy

DOCS = Path(__file__).parents[2] / "docs" / "results" / "models.md"
NAMES = (
    "inlining-for-size",
    "inlining-for-size-derived",
    "regalloc-eviction",
    "inlining-for-size-project",
)
LEVELS = ("Oz", "Os", "O2", "O3")


def test_they_are_all_there() -> None:
    assert set(shipped_models()) == set(NAMES)


@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_their_cards_hold(name: str, sample: Corpus) -> None:
    folder = Path(find_model(name))
    kind = problem_of_models([str(folder)])
    problem = kind(**settings_of_models([str(folder)], kind))
    card = read_card(folder, problem.layout.specs)
    assert card is not None
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 1 << 20
    with Compiler(timeout_s=120) as compiler:
        result = compiler.compile_module(
            sample["scene.cpp"],
            problem=problem,
            policy=RunnerPolicy(partial(ReleaseModeModelRunner, folder)),
        )
    assert result.decisions > 0


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model(NAMES[0]) != NAMES[0]
    (tmp_path / NAMES[0]).mkdir()
    assert find_model(NAMES[0]) == NAMES[0]
    assert find_model("no-such-model") == "no-such-model"


def rows(docs: str, heading: str) -> dict[str, list[str]]:
    """The cells of a table in docs/results/models.md, by the first cell of each row."""
    table = docs[docs.index(f"| {heading} |") :].partition("\n\n")[0]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in table.splitlines()]
    return {first: others for first, *others in cells[2:]}


def percent(text: str) -> list[float]:
    """The numbers of a cell, as shares."""
    return [round(float(each) / 100, 5) for each in re.findall(r"[-+]?\d+\.\d+", text)]


@pytest.mark.parametrize(
    ("split", "part"), [("test", "packages_test"), ("final", "packages_final")]
)
def test_cards_and_docs_have_the_same_packages(split: str, part: str) -> None:
    table = rows(DOCS.read_text(), f"linked text, `{split}`")
    for column, name in enumerate(NAMES[:2]):
        results = read_model_json(Path(find_model(name)) / "card.json", name)["results"]
        known = results.get(part) or results["dev_test"]
        assert set(table) == set(known["linked_text"])
        for package, cells in table.items():
            (share,) = percent(cells[column])
            assert known["linked_text"][package] == pytest.approx(share, abs=6e-5)
            is_worse = known["linked_text"][package] > 0
            assert (package in known["packages_worse"]) == is_worse


def test_evictions_card_and_docs_have_the_same_packages() -> None:
    table = rows(DOCS.read_text(), "eviction, score, `test`")
    known = read_model_json(Path(find_model(NAMES[2])) / "card.json", NAMES[2])["results"]
    of_packages = known["packages_test"]["score"]
    assert set(table) == set(of_packages) == set(known["dev_test"]["packages"])
    for package, cells in table.items():
        numbers = [number for cell in cells for number in percent(cell)]
        assert list(of_packages[package].values()) == numbers[:-1]
        is_worse = max(numbers[:3]) > 0
        assert (package in known["packages_test"]["packages_worse"]) == is_worse


@pytest.mark.parametrize(
    ("word", "name", "levels"),
    [
        ("inliner", NAMES[0], LEVELS),
        ("inliner that reads the module", NAMES[1], LEVELS[:1]),
        ("eviction", NAMES[2], LEVELS),
    ],
)
def test_cards_and_docs_have_the_same_programs(
    word: str, name: str, levels: tuple[str, ...]
) -> None:
    table = rows(DOCS.read_text(), "model, level")
    results = read_model_json(Path(find_model(name)) / "card.json", name)["results"]
    assert results["programs"].keys() & {*LEVELS} == {*levels}
    for level in levels:
        *cells, worst = table[f"{word}, -{level}"]
        known = results["programs"][level]
        for cell, meter in zip(cells, ("size", "instructions", "cost", "accesses"), strict=True):
            assert [known[meter]["change"], *known[meter]["interval"]] == percent(cell)
        assert [known["worst_program_instructions"]] == percent(worst)


def test_an_installed_package_looks_at_its_own_models_alone(tmp_path: Path) -> None:
    """A folder ``models`` in ``site-packages`` is somebody else's package."""
    root = DOCS.parents[2]
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "mlgo_gym", tmp_path / "mlgo_gym", ignore=skipped)
    shutil.copytree(root / "models", tmp_path / "mlgo_gym" / "model" / "shipped")
    shutil.copytree(root / "models" / "inlining-for-size", tmp_path / "models" / "theirs")
    program = "from mlgo_gym.model import shipped_models; print(*sorted(shipped_models()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "MLGO_GYM_WORKER": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == sorted(NAMES)
