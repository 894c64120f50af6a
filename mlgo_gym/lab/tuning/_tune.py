"""A model for one project: from one that is there, by the project's own modules.

Of the models that are there the one is started from that makes the least linked text. A quarter of
the modules is held out; of a few modules no model is trained, and all say which of those that are
there is the best. The trainer ``advantage`` learns from the others, around that model; then
LLVM's own heuristic and that model are compared by linked text of all, and the tuned one with the
better of them by what is held out.

::

    tune.json           what is tuned, and what the trainer was told
    scores.NAME.json    every module under LLVM's own heuristic and models; those of ``plain`` are
                        without the project file
    run/                the trainer's folder
    model/              the model that was chosen; not there where that is none

Started again with the same folder, a tune goes on where it was: what is there is not made again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from corpus_tools.reading import Shape, reason_of, shaped
from mlgo_gym.base import (
    InputError,
    MlgoGymError,
    OptionsError,
    TrainingError,
    check_kind,
    read_bounded,
    read_json,
    write_json,
)
from mlgo_gym.cc import ALL, RECORDS
from mlgo_gym.corpus import ModuleKey, Packages, check_not_final
from mlgo_gym.evaluation import ModuleScores, Setting, Track, in_order, module_scores
from mlgo_gym.lab.tuning._tuned import TUNED, TuneChoice, Tuned, choose, linked_bytes
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, llvm_version, options_of
from mlgo_gym.model import CARD_FILE, read_card
from mlgo_gym.problems import InliningForSize
from mlgo_gym.rollout import BASELINE, Code, Failure
from mlgo_gym.runners import check_files, native_policy
from mlgo_gym.training import (
    NothingToLearnError,
    Watcher,
    check_trainer_settings,
    describe,
    imported,
    train,
)

MAX_BYTES: Final = 1 << 30
_GRAPH: Final = "model.tflite"
_NAMES: Final = ("package", "module", "language", "llvm_version", "module_sha256")
"""Texts of a module's scores."""

_SCORES_SHAPE: Final[Shape] = {
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

FEWEST: Final = 4
"""Modules of which one can be held out; of fewer no model is trained."""

_FOR_SPEED: Final = frozenset({"O1", "O2", "O3"})
_TRAINER: Final = "advantage"
_CAUTION: Final = 1.0
"""How much the first model's certainty counts beside what is learned: here, as much."""

_TREES: Final = 100
"""Fewer than of many packages: labels are fewer."""

_ROUNDS: Final = 3
_MOST_BATCHES: Final = 24
_LABELLING: Final = 0.75
"""The trainer's (`training._advantage`), whose import loads TensorFlow."""

_ROUND_PARTS: Final = 1.5
"""A round without labels, and the evaluation after, in times of two compilations of all."""

_FIT_S: Final = 10.0
"""The time that fitting takes on top."""

_FILE: Final = "tune.json"
_SHAPE: Final[Shape] = {
    "trainer?": [str],
    "trained?": {"budget_s": float, "spent_s": float, "validation": dict},
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
            known = shaped(read_json(path, MAX_BYTES), _SCORES_SHAPE)
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


@dataclass(frozen=True, slots=True)
class TuneSetting:
    """How a project is tuned.

    Attributes:
        models: model directories, of which it starts from the best.
        problem: what LLVM asks for.
        budget_s: how long it may take, over all runs in a folder, in seconds.
        search_s: how much of that is left for a search.
        seed: of everything random.
        jobs: how many modules are compiled at once.
        timeout_s: for LLVM's part of one compilation.
        settings: of the trainer, texts such as ``fit.epochs=10``.
    """

    models: tuple[Path, ...]
    problem: InliningForSize
    budget_s: float
    search_s: float = 0.0
    seed: int = 0
    jobs: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    settings: tuple[str, ...] = ()

    def check(self) -> dict[str, Path]:
        """Return the models by their names; an error before modules are compiled."""
        check_trainer_settings(_TRAINER, self.settings)
        models = _named(self.models)
        for each in models.values():
            _check_model(each, self.problem)
        return models


@dataclass(frozen=True, slots=True)
class Tuning:
    """The folder of one tune.

    Attributes:
        folder: where all is written.
        packages: the project's modules.
        targets: the modules of what the project links, by its name; without any, of each package.
        plain: the modules without the project file, where the project's have local functions.
        setting: how it is tuned.
        watcher: is told what goes on.
        track: shows how far compiling is.
        lto_modules: how many modules the build compiles with ``-flto``; their objects have no code
            to compare, so the build keeps those of the model.
    """

    folder: Path
    packages: Packages
    setting: TuneSetting
    targets: Mapping[str, tuple[ModuleKey, ...]] = field(default_factory=dict)
    plain: Packages | None = None
    watcher: Watcher = field(default_factory=Watcher)
    track: Track = lambda scores, _: scores
    lto_modules: int = 0

    def run(self) -> Tuned:
        """Tune, or go on with it."""
        models = self.setting.check()
        check_not_final(self.packages, "to train and to choose on")
        held_out = self.packages if self._is_small else self.packages.hold_out()[1]
        targets = dict(self.targets) or _as_one(self.packages)
        self._begin()
        self._warn_of_speed()
        self._warn_of_lto()
        named = " and ".join([*models, "LLVM's own"])
        scoring = self._scoring(self.packages)
        plain, plain_s = self._plain_code()
        first, first_s = scoring.scores("start", models, named)
        if not any(each.is_complete for each in first):
            raise TrainingError(f"tune: expected modules that compile, found none of {len(first)}")
        linked = linked_bytes(first, targets, models)
        name = min(models, key=linked.__getitem__)
        scores, spent_s = first, {"evaluating": plain_s + first_s, "training": 0.0}
        validation: Mapping[str, Any] = {}
        if trained := self._train(models[name], first_s, plain_s):
            spent_s["training"], validation = trained
            tuned = {TUNED: self.folder / "run" / "model"}
            second, second_s = scoring.scores(TUNED, tuned, "the tuned model")
            spent_s["evaluating"] += second_s
            scores = joined(first, second)
        found = Tuned(
            in_order(scores, self.packages),
            name,
            frozenset(held_out),
            targets,
            spent_s,
            validation,
            self.setting.seed,
            plain=plain,
            keeps_smaller=not self.lto_modules,
        )
        chosen = choose(found)
        self._keep(chosen, found, models[name])
        return replace(found, choice=chosen)

    def _warn_of_speed(self) -> None:
        levels = []
        for key in self.packages:
            with suppress(MlgoGymError):  # compiling it says why it cannot be read
                levels.append(options_of(self.packages[key]).opt_level)
        fast = [level for level in levels if level in _FOR_SPEED]
        if fast:
            named = ", ".join(f"-{level}" for level in sorted(set(fast)))
            self.watcher.warn(
                f"{len(fast)} of {len(levels)} modules are compiled at {named}, for speed: what "
                "makes them smaller may make them slower; measure that, or build with -Os or -Oz"
            )

    def _warn_of_lto(self) -> None:
        if self.lto_modules:
            self.watcher.warn(
                f"{self.lto_modules} of {len(self.packages)} modules are compiled with -flto: all "
                "sizes are of objects compiled without it, and what the build links may change "
                "otherwise; it has no --mlgo-keep-smaller, which compares objects that have code"
            )

    @property
    def _is_small(self) -> bool:
        """Whether there is too little to train on; all modules say then which model is best."""
        return len(self.packages) < FEWEST

    def _scoring(self, packages: Packages) -> Scoring:
        setting = self.setting
        how = Setting(setting.problem, jobs=setting.jobs, timeout_s=setting.timeout_s)
        return Scoring(self.folder, packages, how, self.watcher, self.track)

    def _plain_code(self) -> tuple[dict[ModuleKey, Code], float]:
        """The code of modules without the project file, and the seconds that took."""
        if self.plain is None:
            return {}, 0.0
        named = "LLVM's own, without the project file"
        found, spent_s = self._scoring(self.plain).scores("plain", {}, named)
        codes = {
            ModuleKey(each.package, each.module): each.code[BASELINE]
            for each in found
            if each.is_complete
        }
        return codes, spent_s

    def _begin(self) -> None:
        """Make the folder, or see that it is of the same tune."""
        asked = {
            "models": [str(each) for each in self.setting.models],
            "models_sha256": [digest(each) for each in self.setting.models],
            "llvm_version": llvm_version(),
            "problem": self.setting.problem.settings(),
            "seed": self.setting.seed,
            "settings": list(self.setting.settings),
            "corpus": describe(self.packages),
        }
        path = self.folder / _FILE
        try:
            if path.exists():
                known = self._state()
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                check_kind(self.folder, *RECORDS)
                write_json(path, known := asked)
        except OSError as error:
            raise self._error(f"{error.filename}: {error.strerror}") from error
        for key, value in json.loads(json.dumps(asked)).items():
            if known.get(key) != value:
                there = known.get(key)
                raise self._error(f"holds another tune: {key}: expected {value!r}, found {there!r}")

    def _train(
        self, start: Path, first_s: float, plain_s: float
    ) -> tuple[float, Mapping[str, Any]] | None:
        """Train in the time that is left, which an evaluation of one model must follow.

        Where there are few modules, or a search leaves no time for it, no model is trained.
        """
        if self._is_small:
            self.watcher.warn(
                f"no model is trained: expected at least {FEWEST} modules, of which a quarter is "
                f"held out, found {len(self.packages)}"
            )
            return None
        budget_s = self.setting.budget_s - self.setting.search_s
        known = self._state().get("trained", {"budget_s": 0.0})
        if known["budget_s"] >= budget_s:
            return known["spent_s"], known["validation"]
        pair_s = first_s * 2 / (1 + len(self.setting.models))
        left_s = budget_s - plain_s - first_s - pair_s
        least_s = plain_s + first_s + (1 + _ROUND_PARTS) * pair_s + _FIT_S
        if budget_s < least_s:
            needed = f"{least_s:.0f}s for one round of {len(self.packages)} modules"
            if not self.setting.search_s:
                raise OptionsError(
                    f"tune: expected a budget of at least {needed}, found {budget_s:g}s"
                )
            self.watcher.warn(f"no model is trained: {needed}, the search leaves {budget_s:g}s")
            return None
        try:
            trained = train(
                _TRAINER,
                self.packages,
                output=self.folder / "run",
                problem=self.setting.problem,
                budget_minutes=left_s / 60,
                settings=self._settings(start, left_s, pair_s),
                seed=self.setting.seed,
                jobs=self.setting.jobs,
                timeout_s=self.setting.timeout_s,
                watcher=self.watcher,
            )
        except NothingToLearnError as error:  # the others are there to choose from
            self.watcher.warn(f"no model is trained: {error}")
            return None
        done = {"spent_s": trained.spent_s, "validation": dict(trained.validation)}
        done["budget_s"] = budget_s
        write_json(self.folder / _FILE, self._state() | {"trained": done})
        return trained.spent_s, trained.validation

    def _settings(self, start: Path, left_s: float, pair_s: float) -> list[str]:
        """Return the trainer's settings whenever it goes on: as many flips as time allows.

        A batch is two compilations of each module that is trained on.
        """
        known = self._state()
        if "trainer" not in known:
            batches = int(_LABELLING * left_s / _ROUNDS / max(pair_s, 1e-3))
            known["trainer"] = [
                f"start={start}",
                f"caution={_CAUTION}",
                f"teacher.iterations={_TREES}",
                "teacher.bags=1",  # they leave out packages, of which there is one
                f"batches={min(max(batches, 1), _MOST_BATCHES)}",
            ]
            write_json(self.folder / _FILE, known)
        return [*known["trainer"], *self.setting.settings]

    def trainer(self) -> tuple[str, ...]:
        """The settings of the trainer."""
        return _TRAINER, *self._state().get("trainer", []), *self.setting.settings

    def _state(self) -> dict[str, Any]:
        try:
            return dict(shaped(read_json(self.folder / _FILE, MAX_BYTES), _SHAPE))
        except (OSError, ValueError) as error:
            raise self._error(f"{_FILE}: {reason_of(error)}") from error

    def _keep(self, choice: TuneChoice, found: Tuned, start: Path) -> None:
        target = self.folder / "model"
        if choice.name == BASELINE:
            shutil.rmtree(target, ignore_errors=True)
            return
        source = start if choice.name == found.start else self.folder / "run" / "model"
        card = imported("export").read_model_json(source / CARD_FILE, str(source))
        imported("export").save_model(
            source, self.setting.problem, target, card | {"tuned": found.to_json(choice)}
        )

    def _error(self, message: str) -> TrainingError:
        return TrainingError(f"tune {str(self.folder)!r}: {message}")


def _named(models: Sequence[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for each in models:
        if each.name in {*found, TUNED, BASELINE}:
            taken = ", ".join([*found, TUNED, BASELINE])
            raise OptionsError(
                f"tune: expected a model's name other than {taken}, found {str(each)!r}"
            )
        found[each.name] = each
    return found


def _check_model(model: Path, problem: InliningForSize) -> None:
    """See that a model can be started from, before modules are compiled."""
    if card := read_card(model):
        card.check_llvm(llvm_version(), str(model))
    check_files(model, problem)
    imported("start").load_start(str(model), problem)


def _as_one(packages: Packages) -> dict[str, tuple[ModuleKey, ...]]:
    """Return each package as one linked target, where a build does not say it."""
    return {name or ALL: keys for name, keys in packages.by_package.items()}
