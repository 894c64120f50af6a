"""The gain of tuning a model to a project, and the choice among LLVM and two models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_gym.cc import ALL, Build, compile_objects
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.evaluation import (
    ModuleScores,
    RelativeChange,
    Scored,
    Statistic,
    draw,
    interval,
)
from mlgo_gym.rollout import BASELINE, Code, LinkedSizes, linked_sizes, linked_text_bytes

_LIBRARIES: Final = frozenset({".so", ".a", ".lib", ".dylib"})

TUNED: Final = "tuned"
"""The name of the tuned model."""

PLAIN: Final = "plain"
"""The outcome of LLVM's own heuristic without the project file."""

BUILT: Final = "built"
"""The outcome of a build that keeps the smaller of LLVM's object and the chosen model's."""

ENOUGH: Final = 8
"""Modules that an interval is made of."""

_LINKED: Final = "linked_text"


@dataclass(frozen=True, slots=True)
class VerifiedTarget:
    """The code of a target, linked from clang's own objects and from the tuned ones.

    Attributes:
        plain: from clang's own objects; ``None`` where that cannot be told.
        built: as it is built in the end.
        why: why the target keeps LLVM's own answers; empty where it does not.
    """

    plain: LinkedSizes | None
    built: LinkedSizes | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the sizes in bytes, and the reason."""
        return asdict(self)


def verify(
    build: Build,
    targets: Mapping[str, Sequence[ModuleKey]],
    settings: Sequence[str],
    *,
    jobs: int,
    timeout_s: float,
) -> dict[str, VerifiedTarget]:
    """Compile and link all targets plainly and as they were tuned.

    A target keeps LLVM's own answers where it grows: linked plainly, after ``--gc-sections``, or
    after ``--icf=safe`` besides. So does one that cannot be compared.

    Args:
        build: the modules and their commands.
        targets: the modules of what is linked, by its name.
        settings: options of ``mlgo-cc``.
        jobs: how many compilers run at once.
        timeout_s: how long one may take, in seconds.
    """
    plain, plain_failures = compile_objects(build, (), jobs=jobs, timeout_s=timeout_s)
    tuned, tuned_failures = compile_objects(build, settings, jobs=jobs, timeout_s=timeout_s)
    failures = plain_failures | tuned_failures
    modules = {target: [key.name for key in keys] for target, keys in targets.items()}
    before, reasons = _linked(modules, plain, failures)
    while True:
        # Objects of a target that keeps LLVM's own are so in other targets, too.
        kept = {name for target in reasons for name in modules[target]}
        mixed = {name: (plain if name in kept else tuned)[name] for name in tuned if name in plain}
        after, new = _linked(modules, mixed, failures)
        new |= {
            target: why
            for target, sizes in after.items()
            if target in before and (why := _growth(before[target], sizes))
        }
        if new.keys() <= reasons.keys():
            break
        reasons = new | reasons
    return {
        target: VerifiedTarget(before.get(target), after.get(target), reasons.get(target, ""))
        for target in sorted(modules)
    }


def _linked(
    targets: Mapping[str, Iterable[str]],
    objects: Mapping[str, bytes],
    failures: Mapping[str, str],
) -> tuple[dict[str, LinkedSizes], dict[str, str]]:
    """The sizes of targets, and why those of others are not known."""
    sizes: dict[str, LinkedSizes] = {}
    unknown: dict[str, str] = {}
    for target, names in targets.items():
        missing = [name for name in names if name not in objects]
        if missing:
            reason = failures.get(missing[0], "it has no command")
            unknown[target] = f"cannot be compared: {missing[0]}: {reason}"
            continue
        try:
            files = [objects[name] for name in names]
            sizes[target] = linked_sizes(files, exports=exports_of(target))
        except ValueError as error:
            unknown[target] = f"cannot be compared: {error}"
    return sizes, unknown


def exports_of(target: str) -> tuple[str, ...]:
    """The patterns of what a linked file exports: ``main`` alone if it is a program.

    All modules of a build that does not say what it links may be a library.
    """
    is_library = not _LIBRARIES.isdisjoint(PurePath(target).suffixes)
    return ("*",) if is_library or target == ALL else ("main",)


def _growth(before: LinkedSizes, after: LinkedSizes) -> str:
    """Name what grows; empty if nothing does."""
    names = {"text": "linked", "gc": "after --gc-sections", "icf": "after --icf=safe"}
    grown = [
        f"{getattr(before, key):,} to {getattr(after, key):,} bytes {words}"
        for key, words in names.items()
        if getattr(after, key) > getattr(before, key)
    ]
    return f"grows: {', '.join(grown)}" if grown else ""


class TuneChoice(NamedTuple):
    """The choice: a model's name or `BASELINE`, and the reason in a sentence."""

    name: str
    why: str


_NONE: Final = TuneChoice(BASELINE, "")


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a project.

    Attributes:
        scores: of its modules under LLVM's own heuristic, the model that was started from, and the
            tuned one.
        start: the name of the model that was started from.
        held_out: the modules that were not trained on.
        targets: the modules of what the project links, by its name.
        spent_s: how long each step took, in seconds.
        validation: what the trainer says of its model.
        seed: of the bootstrap.
        choice: which is taken.
        searched: the code of the modules that a search found answers for, which builds repeat.
        unsearched: how many modules that matter the search had no time for.
        plain: the code of modules without the project file, where there is one.
        verified: what linking said of each target, where it was asked.
        keeps_smaller: the build keeps LLVM's own object where that has less code.
    """

    scores: Sequence[ModuleScores]
    start: str
    held_out: frozenset[ModuleKey]
    targets: Mapping[str, tuple[ModuleKey, ...]]
    spent_s: Mapping[str, float]
    validation: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    choice: TuneChoice = _NONE
    searched: Mapping[ModuleKey, Code] = field(default_factory=dict)
    unsearched: int = 0
    plain: Mapping[ModuleKey, Code] = field(default_factory=dict)
    verified: Mapping[str, VerifiedTarget] = field(default_factory=dict)
    keeps_smaller: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """LLVM's own heuristic, the model that was started from, and the tuned one if there is."""
        return BASELINE, *self.models

    @property
    def models(self) -> tuple[str, ...]:
        """The model that was started from, and the tuned one if there was time for it."""
        is_tuned = any(TUNED in each.code for each in self.scores)
        return (self.start, TUNED) if is_tuned else (self.start,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the sizes of targets; the first is what the others are compared with."""
        return (*([PLAIN] if self.plain else []), *self.names, BUILT)

    def scored(self) -> Scored:
        """Sums over modules, which are linked with their packages."""
        return Scored(list(self.scores), self.models, self.seed)

    def part(self, *, is_held_out: bool) -> Scored:
        """The modules that are held out, or those that were trained on."""
        return self.scored().only(
            lambda each: (ModuleKey(each.package, each.module) in self.held_out) == is_held_out
        )

    def built(self) -> list[ModuleScores]:
        """Return the complete scores, with those of the build under `BUILT`."""
        return [
            replace(
                each, code={**each.code, **self._plain_code(each), BUILT: self._built_code(each)}
            )
            for each in self.scores
            if each.is_complete
        ]

    def _plain_code(self, scores: ModuleScores) -> dict[str, Code]:
        if not self.plain:
            return {}
        # A module that cannot be compiled as it stands cannot be compared.
        return {
            PLAIN: self.plain.get(ModuleKey(scores.package, scores.module), scores.code[BASELINE])
        }

    def _built_code(self, scores: ModuleScores) -> Code:
        if found := self.searched.get(ModuleKey(scores.package, scores.module)):
            return found
        if not self.keeps_smaller:
            return scores.code[self.choice.name]
        pair = (scores.code[name] for name in (BASELINE, self.choice.name))
        return min(pair, key=lambda code: code.text_bytes)

    def target_bytes(self) -> dict[str, dict[str, int]]:
        """The linked text of each target, in bytes, under each name and as `BUILT`."""
        return target_bytes(self.built(), self.targets, self.columns)

    def to_json(self, choice: TuneChoice | None = None) -> dict[str, Any]:
        """Return the record of it, as JSON values."""
        chosen = choice or self.choice
        found = replace(self, choice=chosen)
        parts = {"held_out": self.part(is_held_out=True), "all": self.scored()}
        return {
            "chosen": chosen.name,
            "why": chosen.why,
            "started_from": self.start,
            "linked_text": {part: _changes(scored) for part, scored in parts.items()},
            "targets": found.target_bytes(),
            "searched": len(found.searched),
            "unsearched": found.unsearched,
            "verified": {name: each.to_json() for name, each in found.verified.items()},
            "spent_s": {name: round(value, 1) for name, value in self.spent_s.items()},
        }


def choose(found: Tuned) -> TuneChoice:
    """LLVM's own, the first model, or the tuned one, by linked text; in doubt the one before.

    The first model has seen none of the project's modules, so all targets decide about it. The
    tuned one must make less of what is held out, and no more of all targets.
    """
    held_out = found.part(is_held_out=True)
    modules = len(held_out.modules)
    if not modules:
        return TuneChoice(BASELINE, "No module that is held out was compiled by all.")
    sums = {name: float(held_out.linked_text[name].sum()) for name in found.names}
    linked = linked_bytes(found.scores, found.targets, found.names)
    why = _said(found, held_out, sums)
    name = found.start if linked[found.start] < linked[BASELINE] else BASELINE
    if TUNED in sums and sums[TUNED] < sums[name] and linked[TUNED] <= linked[name]:
        name = TUNED
    first = min(found.names, key=sums.__getitem__)
    if linked[name] < linked[first]:
        why += f" Of all targets, {name} makes less than {first}."
    return TuneChoice(name, why)


def _said(found: Tuned, held_out: Scored, sums: Mapping[str, float]) -> str:
    """The changes of linked text of what is held out, in a sentence."""
    changes = [
        f"{name} {_percent(sums[name] / sums[BASELINE] - 1)}" for name in reversed(found.models)
    ]
    text = (
        f"Linked text of the {len(held_out.modules)} module{'s' * (len(held_out.modules) > 1)} "
        "held out, against LLVM's own: "
        f"{', '.join(changes)}."
    )
    if ends := against_start(found, held_out):
        ends_text = ", ".join(_percent(each - 1) for each in ends)
        text += (
            f" {TUNED} against {found.start}: "
            f"{_percent(sums[TUNED] / sums[found.start] - 1)} [{ends_text}]."
        )
    return text


def against_start(found: Tuned, scored: Scored) -> tuple[float, float] | None:
    """A 95 % interval of the ratio of the tuned model's linked text to that of the first one.

    There is none of too few modules.
    """
    if len(scored.modules) < ENOUGH or TUNED not in found.models:
        return None
    weights = draw([each.package for each in scored.modules], found.seed)
    tuned, start = (scored.linked_text[name] for name in (TUNED, found.start))
    return interval(weights, np.asarray(tuned), np.asarray(start))


def change_of(scored: Scored, statistic: Statistic, name: str) -> RelativeChange:
    """The change of a statistic under a model; an interval only of enough modules."""
    change = scored.change(statistic, name)
    return change if len(scored.modules) >= ENOUGH else replace(change, interval=None)


def _changes(scored: Scored) -> dict[str, Any]:
    statistic = next((each for each in scored.statistics() if each.key == _LINKED), None)
    if statistic is None:
        return {}
    found = {name: change_of(scored, statistic, name) for name in scored.policies}
    return {
        "modules": len(scored.modules),
        **{name: {"change": each.value, "interval": each.interval} for name, each in found.items()},
    }


def target_bytes(
    scores: Iterable[ModuleScores],
    targets: Mapping[str, Sequence[ModuleKey]],
    names: Collection[str],
) -> dict[str, dict[str, int]]:
    """The linked text of each target under each name, in bytes, of modules that are complete."""
    known = {ModuleKey(each.package, each.module): each.code for each in scores if each.is_complete}
    return {
        target: {
            name: linked_text_bytes([known[key][name] for key in keys if key in known])
            for name in names
        }
        for target, keys in targets.items()
    }


def linked_bytes(
    scores: Iterable[ModuleScores],
    targets: Mapping[str, Sequence[ModuleKey]],
    names: Collection[str],
) -> dict[str, int]:
    """The sums of `target_bytes` over the targets, by name."""
    found = target_bytes(scores, targets, names).values()
    return {name: sum(each[name] for each in found) for name in names}


def _percent(change: float) -> str:
    return f"{100 * change:+.2f} %"
