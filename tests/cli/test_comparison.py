"""Comparisons of policies with LLVM's default: every number, for one module and for more."""

from __future__ import annotations

from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._grid import Cell, Row
from mlgo_gym.errors import InputError
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.rollout._measures import TextSize
from mlgo_gym.rollout._rollout import Attempt, ModuleReport


def made(text: int, decisions: int = 0) -> CompilationResult:
    """An object of so much code, whose hash is its size."""
    sections = ((".text", text), (".data", 5))
    return CompilationResult("m", "sha", {"level": "Oz"}, "22", decisions, sections, f"#{text}")


def report(module: str, baseline: int, **policies: int | str) -> ModuleReport:
    """Of each policy the size of its code, or why there is none; asked as often."""
    attempts = tuple(
        Attempt(name, None, InputError(given))
        if isinstance(given, str)
        else Attempt(name, made(given, given))
        for name, given in policies.items()
    )
    return ModuleReport(module, TextSize(), made(baseline), attempts)


ONE = (report("a.c", 200, mine=150, other=250),)
FAILED = ModuleReport("no.c", TextSize(), None, (), error=InputError("LLVM crashed"))
MORE = (*ONE, report("b.c", 100, mine=100, other="timeout"), report("c.c", 50, mine=50, other=51))


def texts(row: Row) -> list[str]:
    return [each.text if isinstance(each, Cell) else each for each in row]


def test_a_grid_of_one_module() -> None:
    grid = comparison.as_grid(ONE, ["mine", "other"])
    assert grid.headings == ("module", "decisions", "LLVM, bytes", "mine", "other")
    assert [texts([*row]) for row in grid.rows] == [["a.c", "150", "200", "-25.0 %", "+25.0 %"]]
    assert texts([*grid.footer]) == ["total", "150", "200", "-25.0 %", "+25.0 %"]


def test_totals_are_of_what_all_have_compiled() -> None:
    grid = comparison.as_grid((*MORE, FAILED), ["mine", "other"])
    assert [texts([*row]) for row in grid.rows] == [
        ["a.c", "150", "200", "-25.0 %", "+25.0 %"],
        ["b.c", "100", "100", "0.00 %", "failed"],
        ["c.c", "50", "50", "0.00 %", "+2.00 %"],
        ["no.c", "", "failed", "", ""],
    ]
    assert texts([*grid.footer]) == ["total", "200", "250", "-20.0 %", "+20.4 %"]
    total = comparison.as_json((*MORE, FAILED), ["mine", "other"])["total"]
    assert total == {
        "modules": 2,
        "baseline_text_size_bytes": 250,
        "text_size_bytes": {"mine": 200, "other": 301},
    }


def test_records_of_modules() -> None:
    first, _, _, failed = comparison.as_json((*MORE, FAILED), ["mine", "other"])["modules"]
    assert failed == {"module": "no.c", "error": "LLVM crashed", "policies": {}}
    code = {"settings": {"level": "Oz"}}
    assert first == {
        "module": "a.c",
        "error": None,
        "sha256": "sha",
        "llvm_version": "22",
        "baseline": code | {"text_size_bytes": 200, "object_sha256": "#200"},
        "policies": {
            "mine": code
            | {"text_size_bytes": 150, "object_sha256": "#150", "decisions": 150, "reward": 0.25},
            "other": code
            | {"text_size_bytes": 250, "object_sha256": "#250", "decisions": 250, "reward": -0.25},
        },
    }
    second = comparison.as_json(MORE, ["mine", "other"])["modules"][1]
    assert second["policies"]["other"] == {"error": "timeout"}


def test_nothing_was_compiled() -> None:
    grid = comparison.as_grid((), ["mine"])
    assert (grid.headings[2], grid.rows) == ("LLVM, score", [])
    assert not grid.footer
    assert not comparison.as_grid((FAILED,), ["mine"]).footer
    assert comparison.as_json((), ["mine"])["total"] == {
        "modules": 0,
        "baseline_score": 0,
        "score": {"mine": 0},
    }
    assert comparison.legend((), "mine").startswith("LLVM:  as LLVM's own")
    assert comparison.plot((FAILED,), ["mine"]) is None


def test_a_legend_says_what_is_measured() -> None:
    assert comparison.legend(ONE, "mine") == (
        f"LLVM: {TextSize.meaning} as LLVM's own heuristic leaves it. Policies: change against it; "
        "negative is smaller. Decisions: asked under mine; other answers lead to more or fewer."
    )


def test_a_control_that_is_equal_needs_no_excuse() -> None:
    equal = "Control: answered with LLVM's default, {} of {} objects are equal byte for byte to "
    equal += "those of LLVM left alone."
    assert comparison.control_note(MORE[2:], "mine") == equal.format(1, 1)
    note = comparison.control_note((*MORE, FAILED), "mine")
    assert note == equal.format(1, 2) + (
        " Others grew to the limit at which LLVM's advisor stops asking; "
        "--size-increase-threshold inf lifts it."
    )
