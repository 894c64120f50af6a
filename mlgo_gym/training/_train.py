"""Training by name: from corpora to a model directory; settings, and the ranges of their numbers.

A trainer is a module with `Config`, a dataclass of settings with a field ``seed``, and
``train(run, config, data)``. ``REWARDLESS`` says why it takes no reward, if it takes none. Ours are
modules of this package; others' are found by entry points of the group ``mlgo_gym.trainers``.

Importing this module needs no extra; training does.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypedDict,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from corpus_tools.printable import listed
from mlgo_gym.base import (
    EnvironmentSetupError,
    OptionsError,
    TrainingError,
    broken,
    load,
    local_folder,
    missing_parts,
    plugins,
    report,
    worked_folder,
)
from mlgo_gym.corpus import Packages, PackagesLike
from mlgo_gym.llvm import Jobs, check_choice
from mlgo_gym.problems import DEFAULT, Problem, problem_named

if TYPE_CHECKING:
    from mlgo_gym.rollout import Failure
    from mlgo_gym.training._data import Data
    from mlgo_gym.training._run import TrainingRun

_MOST_SEED: Final = (1 << 32) - 1
TRAINERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clone": "imitate LLVM's default, or a named policy",
        "imitate": "imitate the best traces that 'search' has found",
        "advantage": "learn which single answers save bytes (inliner)",
        "group": "policy gradient on allocations of one function, compared (eviction)",
        "evolution": "evolution strategies: networks with other weights, compared",
    }
)
"""The trainers, and what each does."""

GROUP: Final = "mlgo_gym.trainers"

TENSORFLOW_SETTINGS: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "3",  # it greets nobody
    "TF_ENABLE_ONEDNN_OPTS": "0",  # its sums do not depend on the machine's load
    "TF_FLAG_SAVED_MODEL_FINGERPRINTING": "0",  # nobody reads one, and it fails otherwise
}


@dataclass(frozen=True, slots=True)
class Range:
    """Finite numbers from ``least`` on, or above ``above``, up to ``most``."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf

    def __contains__(self, value: float) -> bool:
        return math.isfinite(value) and self.above < value and self.least <= value <= self.most

    def __str__(self) -> str:
        if self.above > -math.inf:
            end = f" and up to {self.most:,}" if self.most < math.inf else ""
            return f"above {self.above:g}{end}"
        if self.most < math.inf:
            return f"from {self.least:,} to {self.most:,}"
        return f"of at least {self.least:,}"


Seed: TypeAlias = Annotated[int, Range(0, _MOST_SEED)]
Count: TypeAlias = Annotated[int, Range(1, 1 << 31)]
Whole: TypeAlias = Annotated[int, Range(0, 1 << 31)]
Cost: TypeAlias = Annotated[int, Range(-(1 << 31), 1 << 31)]
Positive: TypeAlias = Annotated[float, Range(above=0)]
NotNegative: TypeAlias = Annotated[float, Range(0)]
Share: TypeAlias = Annotated[float, Range(above=0, most=1)]
Part: TypeAlias = Annotated[float, Range(0, 1)]
Width: TypeAlias = Annotated[int, Range(1, 4096)]
Widths: TypeAlias = tuple[Width, ...]
Band: TypeAlias = tuple[Cost, Cost]


class Ranged:
    """A dataclass whose fields are looked at by their annotations.

    A field of type ``Annotated[int, Range(1)]`` has a number in that range, one of type
    ``tuple[Annotated[int, Range(1)], ...]`` several.

    Raises:
        OptionsError: a number is out of range, or something is of another type.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            _check(getattr(self, name), hint, name)


def _check(value: Any, hint: Any, name: str) -> None:
    if get_origin(hint) is Annotated:
        kind, *ranges = get_args(hint)
        for each in ranges:
            if isinstance(each, Range) and not (_is_number(value, kind) and value in each):
                what = "a whole number" if kind is int else "a number"
                raise OptionsError(f"{name}: expected {what} {each}, found {value!r}")
    elif get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1:] == (...,):
            parts = parts[:1] * len(value)
        if len(value) != len(parts):
            raise OptionsError(f"{name}: expected {len(parts)} values, found {value!r}")
        for each, part in zip(value, parts, strict=True):
            _check(each, part, name)
    elif isinstance(hint, type) and not isinstance(value, hint):
        raise OptionsError(f"{name}: expected a value of type {hint.__name__}, found {value!r}")


def _is_number(value: Any, kind: type) -> bool:
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


class NothingToLearnError(TrainingError):
    """Labels do not say when to inline a call, and when not."""


class Watcher:
    """A function that is called during a run; this one does nothing.

    >>> class Printed(Watcher):
    ...     def doing(self, what):
    ...         print(what)
    >>> Printed().doing("fitting")
    fitting
    """

    def doing(self, what: str) -> None:
        """The run begins with something, such as ``fitting``."""

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step."""

    def warn(self, message: str) -> None:
        """Something is left out."""


class RunSettings(TypedDict, total=False):
    """Keywords that every training run takes."""

    seed: int
    jobs: Jobs
    timeout_s: float
    watcher: Watcher
    reward: str | None
    most_text: float | None


@dataclass(frozen=True)
class Trained:
    """The result of a training run.

    Attributes:
        model: the model directory; of a run that a URI names, a copy of what is there.
        validation: what it is worth on the modules that were held out, as JSON values.
        spent_s: how long all runs in the folder took, in seconds.
        left_out: why modules were left out.

    >>> Trained(Path("run/model"), {"modules": 5}, spent_s=60.0, left_out=()).model.name
    'model'
    """

    model: Path
    validation: Mapping[str, Any]
    spent_s: float
    left_out: tuple[str, ...]


def train(
    trainer: str,
    corpora: PackagesLike,
    *,
    output: Path | str,
    problem: Problem | str = DEFAULT,
    budget_minutes: float | None = None,
    hold_out_packages: Sequence[str] = (),
    settings: Sequence[str] = (),
    **how: Unpack[RunSettings],
) -> Trained:
    """Train a policy, or go on with the run in a folder; at any time its best model is there.

    Args:
        trainer: the name of one of `TRAINERS`, or of one that another package adds.
        corpora: folders of corpora, packages, corpora by the names of theirs, or one corpus.
        output: the run's folder, also ``s3://BUCKET/KEY``: worked on here, and put there with each
            checkpoint and each model.
        problem: what is trained, or its name.
        budget_minutes: for all runs in the folder together; ``None`` is no limit.
        hold_out_packages: packages to choose the model on, not to train on; none holds out every
            fourth module.
        settings: of the trainer, texts such as ``fit.epochs=10``; the value is JSON.
        how: ``seed`` of everything random (0), ``jobs`` modules that are compiled at once (1),
            ``timeout_s`` for LLVM's part of one compilation, and the ``watcher``; ``reward``, what
            is to be less, such as ``instructions`` or ``text:0.5,cost:0.5``, as
            `rollout.measure_named` has it (``None``: the problem's own measure); beside it
            ``most_text``, how many times LLVM's own text the chosen model makes at most, if any
            makes so little.

    Raises:
        EnvironmentSetupError: the extra ``train`` is not installed, or another package's trainer
            cannot be used.
        OptionsError: there is no such trainer, package, setting or reward, or the trainer takes
            none.
        WorkloadError: programs are to run, and none are there to train on or to choose on.
        TrainingError: the folder holds another run, there is nothing to train on, or a module
            cannot be read now: started again, the run goes on.
        OSError: the folder is given by URI and cannot be copied; ``filename`` is the URI.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["bignum.c", "digest.c", "expr_vm.c", "scene.cpp"])
    >>> with tempfile.TemporaryDirectory() as run:
    ...     trained = train("clone", corpus, output=f"{run}/run", settings=["fit.epochs=2"])
    ...     trained.model.name, trained.validation["modules"]
    ('model', 1)
    """
    if unknown := set(how) - RunSettings.__annotations__.keys():
        raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
    if budget_minutes is not None and not budget_minutes > 0:
        raise OptionsError(f"budget_minutes: expected a number above 0, found {budget_minutes!r}")
    check_choice("trainer", trainer, trainer_names())
    found = _trainer(trainer)
    kept, held_out = Packages.of(corpora).hold_out(hold_out_packages)
    asked = problem_named(problem)() if isinstance(problem, str) else problem
    known = _goal(
        trainer, getattr(found, "REWARDLESS", None), asked, how.get("reward"), how.get("most_text")
    )
    known["budget_s"] = None if budget_minutes is None else 60 * budget_minutes
    known["provenance"] = provenance(kept, held_out)
    config = configured(found.Config(seed=how.get("seed", 0)), settings)
    with worked_folder(output) as folder:
        begin = imported("run").TrainingRun
        run = partial(begin, folder.path, trainer, asked, config, folder=folder, **known)
        train_in = found.train if trainer in TRAINERS else partial(_checked, trainer, found.train)
        trained = _trained(train_in, run, kept, held_out, how)
        return replace(trained, model=local_folder(f"{folder.place}/{trained.model.name}"))


def trainer_names() -> tuple[str, ...]:
    """Return the names of our own trainers, then those of other packages."""
    return (*TRAINERS, *plugins(GROUP, TRAINERS))


def described_trainers() -> dict[str, str]:
    """Return what each trainer does, by name: our own, then those of other packages.

    Those of other packages are loaded for their ``ABOUT``. One that cannot be used is left out with
    a warning.
    """
    found = dict(TRAINERS)
    for name, point in plugins(GROUP, TRAINERS).items():
        of = point.dist.name if point.dist else point.value
        try:
            found[name] = getattr(_trainer(name), "ABOUT", f"a trainer of {of}")
        except EnvironmentSetupError as error:
            report(error)
    return found


def _trainer(name: str) -> Any:
    """Load a trainer.

    Raises:
        EnvironmentSetupError: the extra ``train`` is not installed, or it is another package's and
            cannot be used.
    """
    if name in TRAINERS:
        return imported(name)
    _set_tensorflow()
    return load(plugins(GROUP, TRAINERS)[name], _lacks)


def _lacks(trainer: Any) -> str | None:
    if problem := missing_parts(trainer, ("Config", "train")):
        return problem
    if not is_dataclass(trainer.Config) or "seed" not in trainer.Config.__dataclass_fields__:
        return f"Config: expected a dataclass with a field 'seed', found {trainer.Config!r}"
    return None


def _trained(
    train_in: Callable[..., Any],
    run: partial[Any],
    kept: Packages,
    held_out: Packages,
    how: RunSettings,
) -> Trained:
    from mlgo_gym.training._data import Data, rewards_of  # noqa: PLC0415

    watcher = how.get("watcher") or Watcher()
    failures: dict[str, None] = {}
    compiling: dict[str, Any] = {name: how[name] for name in ("jobs", "timeout_s") if name in how}
    measuring: AbstractContextManager[Any] = nullcontext()  # by the problem's own measure
    if name := run.keywords.get("reward"):
        measuring = rewards_of(name, kept, held_out, **compiling)
    with measuring as rewards, run(report=watcher.report, doing=watcher.doing) as going:
        warn = partial(_left_out, failures, watcher)
        worth = {"rewards": rewards, "most_text": going.most_text}
        data = Data(kept, held_out, warn=warn, **compiling, **worth)
        found = train_in(going, going.config, data)
        return Trained(going.model, found.to_json(), going.spent_s, tuple(failures))


def _checked(
    trainer: str, train_in: Callable[..., Any], run: TrainingRun, config: Any, data: Data
) -> Any:
    """Train as another package does, and see that it leaves a model and says what it is worth."""
    found = train_in(run, config, data)
    worth = found.to_json() if hasattr(found, "to_json") else None
    if not isinstance(worth, dict) or not {"modules", "worse_modules"} <= worth.keys():
        problem = f"expected 'modules' and 'worse_modules' by to_json(), found {worth!r}"
    elif not run.model.is_dir():
        problem = f"expected a model directory at {str(run.model)!r}, found none"
    else:
        return found
    raise broken(plugins(GROUP, TRAINERS)[trainer], f"train: {problem}")


def _goal(
    trainer: str,
    rewardless: str | None,
    problem: Problem,
    reward: str | None,
    most_text: float | None,
) -> dict[str, Any]:
    """Return the goal of a run besides the problem's own measure, for `TrainingRun`."""
    if reward is None and most_text is None:
        return {}
    from mlgo_gym.search import (  # noqa: PLC0415
        check_limit,
        check_most_text,
        reward_beside,
    )

    name = reward_beside(problem, reward)
    check_most_text(most_text, name, reward)
    check_limit(most_text)
    if name and rewardless:
        raise OptionsError(f"{trainer}: expected no reward, since {rewardless}, found {reward!r}")
    return {"reward": name, "most_text": most_text}


def provenance(kept: Packages, held_out: Packages) -> dict[str, Any]:
    from mlgo_gym.training._data import describe  # noqa: PLC0415

    return {
        "command": shlex.join(["mlgo-gym", *sys.argv[1:]]),
        "trained_on": describe(kept),
        "validated_on": describe(held_out),
    }


def _left_out(failures: dict[str, None], watcher: Watcher, failure: Failure) -> None:
    from mlgo_gym.training._data import check_lasting  # noqa: PLC0415

    check_lasting(failure)
    message = str(failure)
    if message not in failures:
        failures[message] = None
        watcher.warn(f"{message}; left out")


def check_trainer_settings(trainer: str, settings: Sequence[str]) -> None:
    """See that a trainer takes settings, before any work.

    Raises:
        OptionsError: it does not, or one is given twice.
    """
    configured(_trainer(trainer).Config(seed=0), settings)
    names = [each.partition("=")[0] for each in settings]
    if twice := [each for each in names if names.count(each) > 1]:
        raise OptionsError(f"--set {twice[0]}: expected one value, found {names.count(twice[0])}")


def configured(config: Any, settings: Sequence[str]) -> Any:
    """A dataclass with some fields set, by texts such as ``fit.epochs=10``; the last one counts."""
    for setting in settings:
        name, found, text = setting.partition("=")
        try:
            value = json.loads(text) if found else None
        except ValueError:
            value = text
        if not found:
            raise OptionsError(f"--set: expected NAME=VALUE, found {setting!r}")
        config = _with(config, name.split("."), value, name)
    return config


def _with(config: Any, path: list[str], value: Any, name: str) -> Any:
    known = {field.name: getattr(config, field.name) for field in fields(config)}
    if path[0] not in known:
        raise OptionsError(
            f"--set {name}: expected one of {listed(known, path[0])}, found {path[0]!r}"
        )
    current = known[path[0]]
    if is_dataclass(current) and len(path) > 1:
        return replace(config, **{path[0]: _with(current, path[1:], value, name)})
    if isinstance(current, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if len(path) > 1 or (current is not None and type(value) is not type(current)):
        expected = type(current).__name__
        raise OptionsError(f"--set {name}: expected a value of type {expected}, found {value!r}")
    try:
        return replace(config, **{path[0]: value})
    except OptionsError as error:
        before = name.removesuffix(path[0])
        raise OptionsError(f"--set {before}{error}") from error


def imported(name: str, within: str = "mlgo_gym.training") -> ModuleType:
    """Import a private module of a package that needs the extra ``train``."""
    _set_tensorflow()
    try:
        return importlib.import_module(f"{within}._{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mlgo_gym"):
            raise
        raise EnvironmentSetupError(
            f"train: expected the package {error.name!r}, found none; "
            "pip install 'mlgo-gym[train]' brings it"
        ) from error


def _set_tensorflow() -> None:
    """Set what TensorFlow reads when it is imported, unless the user has."""
    for variable, value in TENSORFLOW_SETTINGS.items():
        os.environ.setdefault(variable, value)
