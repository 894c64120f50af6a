"""Labels for the inliner: what other answers than a policy's would have saved.

Every module is compiled under the policy, and then a few times more with many answers changed at
once (`search._attribution`). Single decisions are flipped, and all calls of a callee
together, which is what it takes to make the callee disappear. A decision's label is the mean over
the flips that it was part of, each flip's bytes shared by its decisions.

There are two labels: bytes of the object, and bytes of the linked package, where a function that is
in the objects of n modules (a COMDAT group) counts as 1/n of its size in each. Summed over the
modules of a package, that is the code that a linker keeps.

By a reward there is one instead, a share of its baseline, for which each flip is compiled and
measured by itself: a measure of what programs take says nothing of single functions, so that the
changes of several flips in one compilation cannot be told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_gym.base import CompilationError, MlgoGymError, ModuleError, WorkloadError
from mlgo_gym.corpus import Module, ModuleKey, Packages, function_sizes
from mlgo_gym.datasets import Episode, Source
from mlgo_gym.llvm import (
    COMPILE,
    DEFAULT_TIMEOUT_S,
    Compiler,
    Done,
    Jobs,
    each,
    options_of,
    settings_of,
)
from mlgo_gym.problems import InliningForSize, PolicyLike
from mlgo_gym.rollout import Measure, Rewards, of_module, without_frames
from mlgo_gym.search import (
    FlipEffect,
    NamedCompilation,
    NamedDecision,
    NamingCompiler,
    Wanted,
    disjoint_flips,
    effects_of,
    flipped,
    single_flips,
)

Shares = Mapping[str, Mapping[str, int]]
"""For each package, how many of its objects have a function, for those that more than one has."""

REWARD: Final = "reward"
"""The setting of a source that says what its labels are of, where they are not bytes of code."""

_INDEX: Final = {name: at for at, name in enumerate(InliningForSize().layout.feature_names)}
_COST: Final = _INDEX["cost_estimate"]
_BELOW, _NEAR, _ABOVE, _BEYOND = 0.05, 1.0, 0.7, 0.02
_NEAR_PART: Final = 85 / 145
"""How much of the band is near: where LLVM's answers at -Oz are open."""


class Labelled(NamedTuple):
    """A labelled module: its decisions, if there are any, and the errors of flips."""

    source: Source
    episode: Episode | None = None
    errors: tuple[MlgoGymError, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSetting:
    """How many batches flip single decisions, and callees.

    By a reward so many flips of each kind are made, one a compilation. Decisions whose costs are in
    the band are wanted most.
    """

    problem: InliningForSize = field(default_factory=InliningForSize)
    batches: int = 2
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    seed: int = 0
    flips: int = 12
    band: tuple[int, int] = (-25, 120)
    rewards: Rewards | None = None


def survey(
    packages: Packages, *, jobs: Jobs, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Generator[Done[ModuleKey, tuple[str, ...]]]:
    """Compile all modules plainly: the functions of each object that are in COMDAT groups."""
    compiler = partial(Compiler, timeout_s=timeout_s)
    read, size = packages.file, packages.size_bytes
    return each(packages, _in_comdats, compiler, read=read, jobs=jobs, size=size)


def _in_comdats(compiler: Compiler, module: Module) -> tuple[str, ...]:
    result = compiler.compile_module(module, keep_object=True)
    functions = function_sizes(result.object_bytes or b"")
    return tuple(name for name, function in functions.items() if function.is_comdat)


def shares_of(found: Mapping[ModuleKey, Sequence[str]]) -> dict[str, dict[str, int]]:
    """`Shares`, from what `survey` found."""
    counts: dict[str, Counter[str]] = {}
    for (package, _), functions in sorted(found.items()):
        counts.setdefault(package, Counter()).update(functions)
    return {
        package: {name: count for name, count in each.items() if count > 1}
        for package, each in counts.items()
    }


def label_modules(
    packages: Packages,
    policy: PolicyLike,
    policy_name: str,
    shares: Shares,
    setting: LabelSetting,
) -> Generator[Done[ModuleKey, Labelled]]:
    """Label modules, by bytes of code or by a reward; they come in order, whoever is done first."""
    work = partial(
        _labelled,
        policy=policy,
        policy_name=policy_name,
        shares=shares,
        setting=replace(setting, jobs=1),  # a cluster is not sent to itself
    )
    compiler = partial(Compiler, timeout_s=setting.timeout_s)
    return each(packages, work, compiler, read=packages.keyed, jobs=setting.jobs, in_order=True)


def _labelled(
    compiler: Compiler,
    read: tuple[ModuleKey, Module],
    *,
    policy: PolicyLike,
    policy_name: str,
    shares: Shares,
    setting: LabelSetting,
) -> Labelled:
    key, module = read
    problem, rewards = setting.problem, setting.rewards
    measure = rewards.of(key).measure if rewards else None
    task = measure.task if measure else COMPILE
    options = measure.options_for(options_of(module)) if measure else None
    naming = NamingCompiler(compiler, module, policy, problem, task=task, options=options)
    base = naming.compile()
    settings = settings_of(naming.options, (problem,)) | {"opt_level": base.opt_level}
    settings |= {REWARD: rewards.name} if rewards else {}
    source = Source(key.package, module.name, module.sha256, policy_name, settings)
    if not base.decisions:
        return Labelled(source)
    observed = problem.layout.array(each.payload for each in base.decisions)
    actions = np.array([each.action for each in base.decisions], InliningForSize.advice.dtype)
    errors: tuple[MlgoGymError, ...] = ()
    if measure:
        known, errors = _gained(naming, base, measure, setting)
    else:
        known = _saved(naming, base, setting, shares.get(key.package, {}))
    episode = Episode(source, problem.layout, observed, actions, **known)
    return Labelled(source, episode, errors)


def _gained(
    naming: NamingCompiler, base: NamedCompilation, measure: Measure, setting: LabelSetting
) -> tuple[dict[str, Any], tuple[MlgoGymError, ...]]:
    """Return the gains of flips by a reward, and the errors of others.

    A flip's gain is the reward with it less the reward without, shares of what LLVM's own
    heuristics take; positive is better. Its decisions share it equally.
    """
    module, random = naming.module, _generator(naming.module, setting)
    with of_module(module.name):
        unit = measure.unit(naming.compiler, module, naming.options, setting.problem)
        plain = unit.baseline()
        scores = {"baseline_score": measure.score(plain), "score": measure.score(base.result)}
        if not scores["baseline_score"]:
            raise ModuleError(
                module.name, f"expected {measure.title} to save, found that there are none"
            )
        reward = measure.rewards(base.result, plain)[""]
    wanted = partial(_wanted, setting.band)
    flips = [
        flip
        for by_callee in (False, True)
        for flip in single_flips(base, random, wanted, setting.flips, by_callee=by_callee)
    ]
    sums, counts = (np.zeros(len(base.decisions)) for _ in range(2))
    errors = []
    for flip in flips:
        try:
            other, made = flipped(naming, base, [flip])
            gain = measure.rewards(other.result, plain)[""] - reward if made else None
        except (CompilationError, WorkloadError) as error:
            errors.append(without_frames(error))
            continue
        if gain is not None:
            chosen = list(flip.decisions)
            sums[chosen] += gain / len(chosen)
            counts[chosen] += 1
    labels = {"saved_share": sums / np.where(counts > 0, counts, np.nan), "sample_weight": counts}
    return {**scores, "reward": reward, "labels": labels}, tuple(errors)


def _saved(
    naming: NamingCompiler,
    base: NamedCompilation,
    setting: LabelSetting,
    shares: Mapping[str, int],
) -> dict[str, Any]:
    """The bytes of code that flips save, and the size that they are of."""
    wanted = partial(_wanted, setting.band)
    effects = _effects(naming, base, _generator(naming.module, setting), setting, wanted)
    labels = _means(effects, len(base.decisions), shares)
    return {"labels": labels, "score": float(base.text_size_bytes)}


def _generator(module: Module, setting: LabelSetting) -> np.random.Generator:
    return np.random.default_rng([setting.seed, *bytes.fromhex(module.sha256)])


def _effects(
    naming: NamingCompiler,
    base: NamedCompilation,
    random: np.random.Generator,
    setting: LabelSetting,
    wanted: Wanted,
) -> list[FlipEffect]:
    """Return the effects of batches of flips, of single decisions and callees in turns."""
    effects: list[FlipEffect] = []
    for batch in range(2 * setting.batches):
        flips = disjoint_flips(base, random, wanted, by_callee=bool(batch % 2))
        effects += effects_of(naming, base, flips) if flips else []
    return effects


def _means(
    effects: Sequence[FlipEffect], decisions: int, shares: Mapping[str, int]
) -> dict[str, Any]:
    """Each decision's mean over the flips that it was part of, NaN where there was none."""
    text, linked, count = (np.zeros(decisions) for _ in range(3))
    for effect in effects:
        chosen = list(effect.flip.decisions)
        text[chosen] += effect.total() / len(chosen)
        linked[chosen] += effect.total(lambda name: 1.0 / shares.get(name, 1)) / len(chosen)
        count[chosen] += 1
    known = np.where(count > 0, count, np.nan)
    return {
        "saved_bytes": text / known,
        "saved_linked_bytes": linked / known,
        "sample_weight": count,
    }


def _wanted(band: tuple[int, int], decision: NamedDecision) -> float:
    """How much a decision is wanted: most in the band's lower part, where answers are open."""
    cost = int(np.frombuffer(decision.payload, np.int64)[_COST])
    low, high = band
    bounds = ((low, _BELOW), (low + _NEAR_PART * (high - low), _NEAR), (high, _ABOVE))
    return next((wanted for bound, wanted in bounds if cost < bound), _BEYOND)
