"""The facts that all decisions of a dataset share, and whether two datasets go together.

It stands in the metadata of every Parquet file, under the key `METADATA_KEY`, as JSON::

    format            1, the version of the layout
    problem           what LLVM asked for, such as "InliningForSize"
    problem_settings  the problem's settings; null where they are not known
    llvm_version      the LLVM that compiled; null where it is not known
    llvmlite_version  the llvmlite that it came in, for information
    opt_level         the level that was forced on all modules; null: each module's own
    features          the specs of an observation's tensors that are features
    extras            the specs of those that LLVM sends besides
    order             the names of features and extras as they stand in an observation, where that
                      is not one after the other
    advice            the spec of an answer
    score             the spec of a training log's outcomes; null where there are none
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from corpus_tools.reading import Shape, shaped
from mlgo_gym.base import DatasetError, SpecError, TensorSpec, TrainingLogError, parse_json
from mlgo_gym.problems import HASH_SUFFIX, Layout, Problem, layout_differences, problems
from mlgo_gym.stream import Header, feature_specs

FORMAT: Final = 1
"""The version of the layout; another version is refused."""

METADATA_KEY: Final = b"mlgo_gym.dataset"
"""The key of the header in a Parquet file's metadata."""

REWARD: Final = TensorSpec("reward", "float", (1,))
"""The outcomes of the training logs that are written here, as of LLVM's eviction advisor."""

_UNKNOWN: Final = "unknown"
_SHAPE: Final[Shape] = {
    "problem": str,
    **dict.fromkeys(("features", "extras"), list),
    "advice": dict,
    **dict.fromkeys(("llvm_version?", "llvmlite_version?", "opt_level?"), (str, type(None))),
    "problem_settings?": (dict, type(None)),
    "order?": (list, type(None)),
}


@dataclass(frozen=True)
class DatasetHeader:
    """The facts that all decisions of a dataset share, as above; the score is one float."""

    layout: Layout
    settings: Mapping[str, Any] | None = None
    llvm_version: str | None = None
    opt_level: str | None = None
    score: TensorSpec | None = REWARD
    llvmlite_version: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        score = self.score
        if score is not None and (score.type, score.element_count) != ("float", 1):
            raise SpecError(
                f"score {score.name!r}: expected one float, found {score.type} {score.shape}"
            )

    @classmethod
    def of(
        cls,
        problem: Problem,
        llvm_version: str | None,
        *,
        opt_level: str | None = None,
        llvmlite_version: str | None = None,
    ) -> Self:
        """The header of compilations for a problem with these settings."""
        return cls(
            problem.layout,
            problem.settings(),
            llvm_version,
            opt_level,
            llvmlite_version=llvmlite_version,
        )

    def with_layout(self, layout: Layout) -> Self:
        """Return this header with a layout that has all tensors of its own; otherwise as it is."""
        if self.layout.name != layout.name or self.layout.differences(layout.header):
            return self
        return replace(self, layout=layout)

    def score_differences(self, other: DatasetHeader) -> list[str]:
        """Return the outcomes of another dataset, where they are not those of this one."""
        mine, others = (
            f"{each.name} {each.shape}" if each else "none" for each in (self.score, other.score)
        )
        return [] if self.score == other.score else [f"score: expected {mine}, found {others}"]

    def log_header(self) -> Header:
        """The header of a training log of these decisions, in the order of LLVM's own."""
        return Header((*self.layout.specs, self.layout.advice), self.score)

    def differences(self, other: DatasetHeader) -> list[str]:
        """Return the differences to another dataset that matter: not the score, not llvmlite."""
        if self.layout.name != other.layout.name:
            return [f"problem: expected {self.layout.name}, found {other.layout.name}"]
        mine, others = self._decisive(), other._decisive()
        features = layout_differences(self.layout.specs, other.layout.specs)
        return [*filter(None, [features])] + [
            f"{name}: expected {mine.get(name, _UNKNOWN)}, found {others.get(name, _UNKNOWN)}"
            for name in dict.fromkeys((*mine, *others))
            if mine.get(name, _UNKNOWN) != others.get(name, _UNKNOWN)
        ]

    def to_json(self) -> bytes:
        """The header as JSON."""
        layout = self.layout
        names = [each.spec.name for each in layout.features + layout.extras]
        order = [spec.name for spec in layout.specs]
        value = {
            "format": FORMAT,
            "problem": layout.name,
            "problem_settings": self.settings if self.settings is None else dict(self.settings),
            "llvm_version": self.llvm_version,
            "llvmlite_version": self.llvmlite_version,
            "opt_level": self.opt_level,
            "features": [_value(each.spec) for each in layout.features],
            "extras": [_value(each.spec) for each in layout.extras],
            "advice": _value(layout.advice),
            "score": _value(self.score) if self.score else None,
        } | ({"order": order} if order != names else {})
        return json.dumps(value, allow_nan=False).encode()

    @classmethod
    def from_json(cls, text: bytes, source: str) -> Self:
        """Read a header."""
        try:
            return cls._read(parse_json(text))
        except TrainingLogError as error:
            raise DatasetError(source, str(error)) from error
        except (ValueError, SpecError) as error:
            raise DatasetError(source, f"header: {error}") from error

    @classmethod
    def _read(cls, value: Any) -> Self:
        if (found := shaped(value, {"format": int})["format"]) != FORMAT:
            raise SpecError(f"format: expected {FORMAT}, found {found}")
        shaped(value, _SHAPE)
        score = value.get("score")
        return cls(
            _layout(value),
            value.get("problem_settings"),
            value.get("llvm_version"),
            value.get("opt_level"),
            score=None if score is None else TensorSpec.from_value(score),
            llvmlite_version=value.get("llvmlite_version"),
        )

    def _decisive(self) -> dict[str, Any]:
        versions = {"llvm_version": self.llvm_version or _UNKNOWN}
        level = {"opt_level": self.opt_level or "each module's own"}
        settings = self.settings or {"problem": self.layout.name}
        # Of what names a file, the hash decides.
        decisive = {
            name: value
            for name, value in settings.items()
            if f"{name}{HASH_SUFFIX}" not in settings
        }
        return versions | decisive | level


def _layout(value: Mapping[str, Any]) -> Layout:
    """The layout of what the LLVM has sent whose decisions these are."""
    known = {kind.name: kind for kind in problems().values()}
    if (problem := known.get(value["problem"])) is None:
        expected = ", ".join(known)
        raise SpecError(f"problem: expected one of {expected}, found {value['problem']!r}")
    features = feature_specs(value["features"])
    specs = features + feature_specs(value["extras"])
    names = [spec.name for spec in specs]
    order = value.get("order") or names
    if sorted(map(repr, order)) != sorted(map(repr, names)):
        raise SpecError(f"order: expected all of {names}, found {order}")
    (advice,) = feature_specs([value["advice"]])
    ordered = tuple(sorted(specs, key=lambda spec: order.index(spec.name)))
    layout, header = problem().layout, Header(ordered, advice=advice)
    if differences := layout.differences(header):
        raise SpecError("; ".join(differences))
    own = {spec.name for spec in layout.specs}
    observed = [spec.name for spec in features if spec.name not in own]
    return layout.as_sent(header, observed, problem.optional_names())


def _value(spec: TensorSpec) -> Any:
    return json.loads(spec.to_json())
