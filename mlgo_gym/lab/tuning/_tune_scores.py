"""Scores of modules under models, kept in the folder of a tune.

``scores.NAME.json`` has every module under LLVM's own heuristic and some models, and how long it
took to compile them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from corpus_tools.reading import Shape, shaped
from mlgo_gym.base import InputError, TrainingError, read_bounded, read_json, write_json
from mlgo_gym.corpus import Packages
from mlgo_gym.evaluation import ModuleScores, Setting, Track, in_order, module_scores
from mlgo_gym.rollout import Code, Failure
from mlgo_gym.runners import native_policy
from mlgo_gym.training import Watcher

MAX_BYTES: Final = 1 << 30
_GRAPH: Final = "model.tflite"
_NAMES: Final = ("package", "module", "language", "llvm_version", "module_sha256")
"""Texts of a module's scores."""

_SHAPE: Final[Shape] = {
    "models": {"*": str},
    "spent_s": float,
    "modules": [
        {
            **dict.fromkeys(_NAMES, str),
            "errors": [str],
            "decisions": {"*": int},
            "settings": dict,
            "code": {"*": {"text_bytes": int, "comdat_bytes": {"*": int}}},
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the modules of a tune are compiled.

    Attributes:
        folder: where scores are kept.
        packages: the modules.
        setting: what LLVM asks for, and how many are compiled at once.
        watcher: is told what goes on.
        track: shows how far it is.
    """

    folder: Path
    packages: Packages
    setting: Setting
    watcher: Watcher
    track: Track

    def scores(
        self, name: str, models: Mapping[str, Path], what: str
    ) -> tuple[list[ModuleScores], float]:
        """All modules under LLVM's own heuristic and models, and the seconds that took.

        Args:
            name: of the file that keeps it; what is there of the same models is not made again.
            models: model directories by what they are called.
            what: is said while modules are compiled.

        Raises:
            TrainingError: the file holds no scores.
            ModelError: a model cannot be used.
        """
        path = self.folder / f"scores.{name}.json"
        digests = {each: digest(folder) for each, folder in models.items()}
        if known := self._known(path, digests):
            return known
        self.watcher.doing(f"compiling with {what}")
        start = monotonic()
        with ExitStack() as stack:
            policies = {
                each: native_policy(folder, self.setting.problem, stack)
                for each, folder in models.items()
            }
            made = module_scores(self.packages, policies, self.setting)
            found = in_order(self.track(made, len(self.packages)), self.packages)
        for each in found:
            for error in each.errors:
                self.watcher.warn(f"{error.within(each.package)}; left out")
        spent_s = monotonic() - start
        records = [_record_of(each) for each in found]
        write_json(path, {"models": digests, "spent_s": spent_s, "modules": records})
        return found, spent_s

    def _known(
        self, path: Path, digests: Mapping[str, str]
    ) -> tuple[list[ModuleScores], float] | None:
        """Return the scores that an earlier run found of the same models."""
        try:
            known = shaped(read_json(path, MAX_BYTES), _SHAPE)
            if known["models"] != digests:
                return None
            return [_scores_of(each) for each in known["modules"]], float(known["spent_s"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(f"{path.name}: {error.strerror}") from error
        except ValueError as error:
            raise self._error(f"{path.name}: expected scores: {error}") from error

    def _error(self, message: str) -> TrainingError:
        return TrainingError(f"tune {str(self.folder)!r}: {message}")


def digest(model: Path) -> str:
    """Return the SHA-256 of a model's graph, which decides its answers."""
    return hashlib.sha256(read_bounded(model / _GRAPH, MAX_BYTES)).hexdigest()


def joined(first: Iterable[ModuleScores], second: Iterable[ModuleScores]) -> list[ModuleScores]:
    """The scores of modules under the models of both."""
    others = {(each.package, each.module): each for each in second}
    return [
        replace(
            each,
            decisions={**each.decisions, **other.decisions},
            code={**each.code, **other.code},
            errors=(*each.errors, *other.errors),
        )
        for each in first
        if (other := others[each.package, each.module])
    ]


def _record_of(scores: ModuleScores) -> dict[str, Any]:
    code = {
        name: {"text_bytes": each.text_bytes, "comdat_bytes": dict(each.comdat_bytes)}
        for name, each in scores.code.items()
    }
    return {name: getattr(scores, name) for name in _NAMES} | {
        "errors": list(map(str, scores.errors)),
        "decisions": dict(scores.decisions),
        "settings": dict(scores.settings),
        "code": code,
    }


def _scores_of(record: Mapping[str, Any]) -> ModuleScores:
    code = {
        name: Code(each["text_bytes"], each["comdat_bytes"])
        for name, each in record["code"].items()
    }
    errors = tuple(Failure(InputError(each)) for each in record["errors"])
    named = {name: record[name] for name in (*_NAMES, "decisions", "settings")}
    return ModuleScores(**named, errors=errors, code=code)
