"""The findings of a tune, as tables for terminals and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mlgo_gym.cli import Cell, Grid, Row, amount, as_page, change, ratio
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.lab.tuning._tuned import BUILT, PLAIN, TUNED, change_of
from mlgo_gym.rollout import BASELINE

if TYPE_CHECKING:
    from mlgo_gym.cli import Section
    from mlgo_gym.evaluation import Scored
    from mlgo_gym.lab.tuning._tuned import Tuned, VerifiedTarget

_LINKS: Final = {"text": "text", "gc": "--gc-sections", "icf": "and --icf=safe"}
_LINKED: Final = (
    "What ld.lld keeps of each target's modules, against clang's own. A target that grows keeps "
    "LLVM's own answers: the project file says so."
)


def parts_grid(found: Tuned) -> Grid:
    """Linked text of what is held out, what training has seen and all."""
    parts = {
        "held out": found.part(is_held_out=True),
        "seen": found.part(is_held_out=False),
        "all": found.scored(),
    }
    rows = [_part(name, scored) for name, scored in parts.items() if scored.modules]
    return Grid(("linked text", "modules", *found.names), rows)


def _part(name: str, scored: Scored) -> Row:
    linked = next(each for each in scored.statistics() if each.key == "linked_text")
    changes = (change_of(scored, linked, policy) for policy in scored.policies)
    return [
        name,
        amount(len(scored.modules)),
        amount(scored.baseline(linked)),
        *(change(each.value, each.interval) for each in changes),
    ]


def targets_grid(found: Tuned) -> Grid:
    """Linked text of each target, and as it will be built."""
    sizes = found.target_bytes()
    rows: list[Row] = [
        [name, amount(len(found.targets[name])), *_sizes(each, found)]
        for name, each in sizes.items()
    ]
    footer: Row = []
    if len(sizes) > 1:
        sums = {name: sum(each[name] for each in sizes.values()) for name in found.columns}
        footer = ["total", "", *_sizes(sums, found)]
    headings = ("target: linked text", "modules", *found.columns)
    return Grid(headings, rows, footer, folds=True)


def verified_grid(found: Tuned) -> Grid:
    """The code of each target, linked from clang's own objects and as it is built."""
    rows: list[Row] = [
        [name, *(_linked(each, key) for key in _LINKS), each.why or "smaller or equal"]
        for name, each in found.verified.items()
    ]
    return Grid(("target: linked by lld", *_LINKS.values(), "verified"), rows, folds=True)


def _linked(target: VerifiedTarget, key: str) -> Cell | str:
    if target.plain is None or target.built is None:
        return ""
    return ratio(getattr(target.built, key), getattr(target.plain, key))


def _sizes(sizes: Mapping[str, int], found: Tuned) -> list[Cell]:
    first, *others = found.columns
    return [amount(sizes[first]), *(ratio(sizes[name], sizes[first]) for name in others)]


def built(found: Tuned) -> str:
    """Describe what is built, in a sentence."""
    text = f"{BUILT.capitalize()}: {found.choice.name}"
    if _compares(found):
        text += ", the smaller object kept"
    if found.searched:
        text += f"; {len(found.searched)} of {len(found.scores)} modules by what a search found"
    if found.unsearched:
        text += f"; {found.unsearched} not searched for want of time"
    return f"{text}."


def _compares(found: Tuned) -> bool:
    """Whether the build compares each object with LLVM's own."""
    return found.keeps_smaller and found.choice.name != BASELINE


def modules_grid(found: Tuned) -> Grid:
    """The code of each module's object."""
    rows: list[Row] = []
    for each in found.built():
        code = {name: code.text_bytes for name, code in each.code.items()}
        key = ModuleKey(each.package, each.module)
        part = "held out" if key in found.held_out else "seen"
        part += ", searched" if key in found.searched else ""
        rows.append([str(key).lstrip("/"), part, *_sizes(code, found)])
    headings = ("module: text", "part", *found.columns)
    return Grid(headings, rows)


def page(
    found: Tuned,
    title: str,
    how: Sequence[str],
    build: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> bytes:
    """The report; of how the tune was made, how to build with it and what was left out, lines."""
    version = next((each.llvm_version for each in found.scores if each.llvm_version), "")
    introduction = (
        f"Bytes of code by LLVM {version}, and changes against its own heuristic ({BASELINE}); "
        f"negative is smaller. {found.start} is the model that the tune started from, {TUNED} what "
        "it learned. Linked text counts each COMDAT group once. What is held out was not trained "
        "on, and decides about the tuned model; all targets decide about the first one. "
    )
    if _compares(found):
        introduction += (
            "Of what is built, each object is LLVM's own where that has less code "
            "(--mlgo-keep-smaller), or what a search found for it, which makes less of what is "
            "linked by the model and of the object by LLVM's own. "
        )
    if found.plain:
        introduction += (
            f"{PLAIN} is LLVM's own without the project file, all else is with it: functions that "
            "other objects share with none are local. "
        )
    introduction += "Click a heading to sort."
    sections: list[Section] = [
        ("Chosen", [f"{found.choice.name}. {found.choice.why}", parts_grid(found)]),
        ("Targets", [built(found), targets_grid(found)]),
        ("To build with it", list(build)),
        ("Modules", [modules_grid(found)]),
        ("How it was made", list(how)),
    ]
    if found.verified:
        sections.insert(2, ("Linked", [_LINKED, verified_grid(found)]))
    if left_out:
        sections.append(("Left out", list(left_out)))
    return as_page(title, introduction, sections)


def times(found: Tuned) -> str:
    """How long each step took."""
    return ", ".join(f"{name} {value:,.0f} s" for name, value in found.spent_s.items())
