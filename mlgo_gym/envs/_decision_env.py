"""The common part of environments: a corpus, a compiler, and steps that answer LLVM."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypedDict

import gymnasium
import numpy as np

from mlgo_gym.base import (
    CompilationError,
    DecisionLimitError,
    ModuleError,
    OptionsError,
    UsageError,
    WorkloadError,
)
from mlgo_gym.corpus import Module, Packages
from mlgo_gym.envs._drawn import RENDER_MODES, Picture, check_render_mode, rendered
from mlgo_gym.envs._modules import (
    CorporaLike,
    Weights,
    modules_of,
    weights_of,
)
from mlgo_gym.envs._observation_space import ObservationDict, feature_space, observed
from mlgo_gym.envs._reward import rewarding
from mlgo_gym.llvm import (
    ALL_LEVELS,
    DEFAULT_MEMORY_LIMIT_BYTES,
    DEFAULT_TIMEOUT_S,
    Compilation,
    Compiler,
    Steps,
    check_choice,
    run_to_end,
    site_of,
)
from mlgo_gym.problems import Action, Policy, PolicyLike, Problem
from mlgo_gym.rollout import Measure, Result, measure_of
from mlgo_gym.stream import Observation


class EnvSettings(TypedDict, total=False):
    """Keywords that every environment takes."""

    split: str | None
    weights: Weights
    opt_level: str | None
    reward: str | Measure | None
    illegal_action: str
    reward_on_truncation: float
    decision_limit: int | None
    timeout_s: float
    memory_limit_bytes: int
    render_mode: str | None


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """The module that ``reset`` is asked for; ``None`` is the next."""

    module: Module | None = None
    function: str | None = None


class DecisionEnv(gymnasium.Env[ObservationDict, Any]):
    """An environment whose steps are the decisions of one compilation.

    All that depends on the problem comes from it: observations, actions, masks, what a person
    sees. A subclass says how an episode starts (`_begin`) and what came out of it (`_result`).

    Observation: a ``Dict`` of LLVM's features under LLVM's names. NaN and infinity, where LLVM may
    send them, are replaced by the feature's upper bound. After the last decision no question is
    pending, and the observation is all zeros.

    Action: the problem's advice. A number that LLVM does not take is replaced by the problem's
    `Problem.fallback_action`, and ``info["illegal_actions"]`` counts it. With
    ``illegal_action="error"`` it is an error, which leaves the decision pending; anything but a
    number always is.

    Reward: 0 until the last decision, then what the measure's score of the compilation saves of
    the baseline's (`mlgo_gym.rollout.reward_of`); positive is better than the baseline. An episode
    that is truncated ends with ``reward_on_truncation``, -1 by default, which is as bad as code of
    twice the size.

    Info: the same keys and types from ``reset`` to the end, flat, so that it can be recorded step
    by step. ``module``; ``decision``, the number of answers so far; ``illegal_actions``, how many
    of them stand for others; ``action_mask``, ``int8``, where not all actions are always taken;
    ``context``, LLVM's name for the pending decision; ``default_advice``, what LLVM's own heuristic
    would answer, where LLVM says so, -1 where nothing is pending; ``site``, if sites are asked for,
    where the call is that is decided about, as a line of JSON (`mlgo_gym.llvm.Site.from_json`); the
    baseline's score; the score and hashes, 0 and empty before the end; ``error``, empty unless the
    episode was truncated: what crashes LLVM, outruns its deadline or asks more often than it may
    ends its episode with ``truncated`` and ``reward_on_truncation``. What is longer are properties:
    `settings`, `skipped` and `besides`; ``get_wrapper_attr`` and, of vector environments,
    ``get_attr`` find them through wrappers.
    """

    _reset_options: ClassVar[tuple[str, ...]] = ("module",)
    _default_decision_limit: ClassVar[int | None] = None

    metadata = {  # noqa: RUF012 - Gymnasium declares it on instances
        "render_modes": [*RENDER_MODES],
        "render_fps": 4,
    }

    def __init__(
        self,
        problem: Problem,
        corpus: CorporaLike | None = None,
        *,
        split: str | None = None,
        weights: Weights = "uniform",
        opt_level: str | None = None,
        reward: str | Measure | None = None,
        illegal_action: str = "fallback",
        reward_on_truncation: float = -1.0,
        decision_limit: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        if opt_level is not None:
            check_choice("opt_level", opt_level, ALL_LEVELS[1:])  # at O0 nobody is asked
        check_choice("illegal_action", illegal_action, ("error", "fallback"))
        if not _is_finite(reward_on_truncation):
            raise OptionsError(
                f"reward_on_truncation: expected a finite number, found {reward_on_truncation!r}"
            )
        limit = self._default_decision_limit if decision_limit is None else decision_limit
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise OptionsError(f"decision_limit: expected a whole number above 0, found {limit!r}")
        self.corpus: Final = modules_of(corpus, split)
        self._weights, self._chances = weights, weights_of(weights, self.corpus)
        self.problem: Final = problem
        self.compiler: Final = Compiler(timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes)
        self.observation_space = feature_space(problem.layout.features)
        self.action_space = problem.action_space()
        self.render_mode = render_mode
        chosen, is_own = rewarding(reward, self.corpus, opt_level, timeout_s)
        self.measure: Final = chosen or measure_of(problem)
        self._owned = chosen if is_own else None
        self._opt_level = opt_level
        self._sites = False
        self._advice_type = np.float64 if problem.advice.dtype.kind == "f" else np.int64
        self._illegal_action = illegal_action
        self._illegal_actions = 0
        self.reward_on_truncation: Final = float(reward_on_truncation)
        self._decision_limit = limit
        self._unusable: dict[str, str] = {}
        self._compilation: Compilation | None = None
        self._pending: Observation | None = None
        self._last_action: Action | None = None
        self._skipped: dict[str, str] = {}
        self._standing: dict[str, Any] = {}
        self._is_closed = False

    @property
    def weights(self) -> Weights:
        """How often ``reset`` draws each module; set it between episodes for a curriculum.

        ``uniform``, ``size`` (in proportion to the bitcode), or numbers by the modules' names.
        Modules that are not named are never drawn.

        Raises:
            OptionsError: set to something else.
        """
        return self._weights

    @weights.setter
    def weights(self, given: Weights) -> None:
        self._weights, self._chances = given, weights_of(given, self.corpus)
        self._forget_drawn()

    def _forget_drawn(self) -> None:
        """Forget modules that were drawn in advance."""

    @property
    def settings(self) -> dict[str, Any]:
        """How the episode's module is compiled, and the problem's settings; empty without one."""
        return {} if self._compilation is None else dict(self._compilation.settings)

    @property
    def skipped(self) -> dict[str, str]:
        """Modules and functions that the last ``reset`` could not use, with the reason."""
        return dict(self._skipped)

    @property
    def besides(self) -> dict[str, np.ndarray[Any, Any]]:
        """Tensors of the pending decision that the problem does not document, by name."""
        return {} if self._pending is None else self.problem.extra_tensors(self._pending)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Start the next episode; one that is under way is abandoned.

        After an error there is no episode, and the next ``reset`` goes on as if this one had not
        been asked for; an option that cannot be leaves the episode that is under way, too.

        Raises:
            OptionsError: an option is unknown.
            CorpusError: the corpus has no such module, or none that asks for a decision.
            ModuleError: what was asked for asks for no decision, cannot be measured, or LLVM
                refused it.
            CompilationError: LLVM crashed or hung on the module that was asked for.
            UsageError: the environment is closed.
        """
        return run_to_end(self.resetting(seed=seed, options=options))

    def resetting(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Steps[tuple[ObservationDict, dict[str, Any]]]:
        """`reset`, for several at once (`llvm._waiting`); a wrong option changes nothing."""
        self._check_open("reset")
        return self._resetting(seed, _asked_for(options or {}, self._reset_options, self.corpus))

    def _resetting(
        self, seed: int | None, asked: ResetRequest
    ) -> Steps[tuple[ObservationDict, dict[str, Any]]]:
        super().reset(seed=seed)
        if self._compilation is not None:
            self._compilation.close()
        self._compilation = self._pending = None
        skipped: dict[str, str] = {}
        self._compilation = yield from self._begin(asked, skipped, is_seeded=seed is not None)
        self._last_action = None
        self._illegal_actions = 0
        self._skipped = skipped
        scores = self._scores(self._baseline())
        self._standing = {
            **{f"baseline_{name}": score for name, score in scores.items()},
            **{name: type(score)(0) for name, score in scores.items()},
            **self._record(None),
            "error": "",
        }
        return observed(self.problem, self._pending), self._info(self._compilation)

    def step(self, action: Any) -> tuple[ObservationDict, float, bool, bool, dict[str, Any]]:
        """Answer the pending decision and go on to the next.

        Raises:
            UsageError: no decision is pending, LLVM does not take this action, or the environment
                is closed.
        """
        return run_to_end(self.stepping(action))

    def stepping(
        self, action: Any
    ) -> Steps[tuple[ObservationDict, float, bool, bool, dict[str, Any]]]:
        """`step`, for several at once (`llvm._waiting`); a wrong action changes nothing."""
        self._check_open("step")
        if self._compilation is None or self._pending is None:
            raise UsageError("step: expected a pending decision, found none; call reset first")
        return self._stepping(self._compilation, *self._choose(action, self._pending))

    def _stepping(
        self, compilation: Compilation, chosen: Action, is_legal: bool
    ) -> Steps[tuple[ObservationDict, float, bool, bool, dict[str, Any]]]:
        reward, error, ending = 0.0, "", {}
        try:
            compilation.answer(chosen)
            self._last_action = chosen
            self._illegal_actions += not is_legal
            yield compilation
            self._pending = compilation.next_observation()
            self._check_limit(compilation)
            if self._pending is None:
                result = self._result(compilation)
                reward = self.measure.rewards(result, self._baseline())[""]
                ending = {**self._scores(result), **self._record(result)}
        except (CompilationError, ModuleError, WorkloadError) as failure:
            self._pending = None
            error, reward = str(failure), self.reward_on_truncation
        info = self._info(compilation) | ending | {"error": error}
        has_ended = self._pending is None and not error
        return observed(self.problem, self._pending), reward, has_ended, bool(error), info

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The actions that LLVM takes now, ``bool [actions]``, as sb3-contrib's MaskablePPO asks.

        Raises:
            UsageError: the actions cannot be counted.
        """
        mask = self.problem.action_mask(self._pending)
        if mask is None and not isinstance(self.action_space, gymnasium.spaces.Discrete):
            raise UsageError(f"action_masks: {self.problem.name}: actions cannot be counted")
        count = getattr(self.action_space, "n", 0)
        return np.ones(count, np.bool_) if mask is None else mask.astype(np.bool_)

    def render(self) -> str | Picture | None:
        """The state in a few lines of text; as a picture with ``render_mode="rgb_array"``.

        Raises:
            EnvironmentSetupError: a picture is asked for, and Pillow is not installed.
        """
        return rendered(self.render_mode, self._shown)

    def _shown(self) -> str:
        if self._compilation is None:
            return "no episode\n"
        problem, pending, last = self.problem, self._pending, self._last_action
        lines = [
            f"{self._where(self._compilation)}, decision {self._compilation.decisions}",
            f"  last action: {'none' if last is None else problem.describe_action(last)}",
        ]
        if pending is None:
            lines.append("  no decision is pending")
        else:
            default = problem.default_action(pending)
            if default is not None:
                lines.append(f"  LLVM's default: {problem.describe_action(default)}")
            lines += [f"  {line}" for line in problem.describe(pending)]
        return "\n".join(lines) + "\n"

    def fork(self) -> Self:
        """Branch off in the middle of the episode: an environment that has come the same way.

        Both go on by themselves, as `mlgo_gym.llvm.Compilation.fork` describes; the branch starts a
        worker of its own when it is reset, and is closed like any environment. Its random generator
        is a copy.

        Raises:
            UsageError: no decision is pending, or there are too many branches.
            CompilationError: the worker died or did not answer.
        """
        if self._compilation is None or self._pending is None:
            raise UsageError("fork: expected a pending decision, found none; call reset first")
        branch = self._compilation.fork()
        twin, compiler = copy.copy(self), copy.copy(self.compiler)
        vars(twin).update(
            compiler=compiler,
            action_space=copy.deepcopy(self.action_space),
            observation_space=copy.deepcopy(self.observation_space),
            _np_random=copy.deepcopy(self._np_random),
            _unusable=dict(self._unusable),
            _compilation=branch,
            _owned=self._owned and self._owned.share(),
            **self._own_state(compiler),
        )
        return twin

    @abstractmethod
    def _own_state(self, compiler: Compiler) -> dict[str, Any]:
        """Return copies of what a branch changes by itself, by attribute.

        Args:
            compiler: the branch's.
        """

    def close(self) -> None:
        """End the worker process, for good; safe to call twice."""
        self._is_closed = True
        if self._compilation is not None:
            self._compilation.close()
        self.compiler.close()
        if self._owned is not None:
            self._owned.close()
        self._owned = None
        self._compilation = self._pending = None

    @abstractmethod
    def _begin(
        self, asked: ResetRequest, skipped: dict[str, str], *, is_seeded: bool
    ) -> Steps[Compilation]:
        """Start an episode's compilation; what cannot be used is named in ``skipped``."""

    @abstractmethod
    def _baseline(self) -> Result:
        """Return the result that the episode is compared with."""

    @abstractmethod
    def _result(self, compilation: Compilation) -> Result:
        """Return the result of an episode that has ended."""

    @abstractmethod
    def _record(self, result: Any) -> dict[str, Any]:
        """Return what the info says of a result besides the score; of ``None``, neutral values."""

    @abstractmethod
    def _where(self, compilation: Compilation) -> str:
        """Describe the state of the episode for a person."""

    def _first(self, compilation: Compilation) -> Steps[None]:
        """Wait for the first question."""
        self._pending = None
        yield compilation
        self._pending = compilation.next_observation()
        if self._pending is None:
            raise ModuleError(
                compilation.module.name, f"asks for no decision of {self.problem.name}"
            )

    @staticmethod
    def _twice(start: Callable[[], Steps[Compilation]]) -> Steps[Compilation]:
        """Start, twice if need be: what kills a worker once may not be the module's fault."""
        try:
            return (yield from start())
        except CompilationError:
            return (yield from start())

    def _scores(self, result: Result) -> dict[str, np.int64 | np.float64]:
        """Return the scores as numbers of numpy, as recorders of other libraries take them."""
        scores = self.measure.scores(result)
        return {
            name: np.int64(score) if isinstance(score, int) else np.float64(score)
            for name, score in scores.items()
        }

    def _choose(self, action: Any, observation: Observation) -> tuple[Action, bool]:
        """Return the answer to LLVM, and whether it is the action."""
        values = np.asarray(action)
        is_number = values.size == 1 and values.dtype.kind in "fiu"
        chosen: Action = values.item() if is_number else action
        try:
            self.problem.encode_advice(chosen, observation)
        except UsageError:
            if self._illegal_action == "error" or not is_number:
                raise
            return self.problem.fallback_action(observation), False
        return chosen, True

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise UsageError(f"{call}: expected an open environment, found a closed one")

    def _check_limit(self, compilation: Compilation) -> None:
        limit = self._decision_limit
        if limit is not None and self._pending is not None and compilation.decisions >= limit:
            raise DecisionLimitError(
                compilation.module.name,
                f"took more than its {limit} decisions; decision_limit lifts the limit",
            )

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        info: dict[str, Any] = {
            "module": compilation.module.name,
            "decision": np.int64(compilation.decisions),
            "illegal_actions": np.int64(self._illegal_actions),
        }
        mask = self.problem.action_mask(self._pending)
        if mask is not None:
            info["action_mask"] = mask
        pending = self._pending
        site = None if pending is None else site_of(pending)
        info["context"] = "" if pending is None or site else pending.context
        if self._sites:
            info["site"] = site.to_json() if site else ""
        if self.problem.says_default:
            default = None if pending is None else self.problem.default_action(pending)
            info["default_advice"] = self._advice_type(-1 if default is None else default)
        return info | self._standing


def baseline_of(problem: Problem, given: PolicyLike | str | None) -> PolicyLike | None:
    """The policy that a score is relative to, which may be given by its name.

    Raises:
        OptionsError: no policy of the problem has that name, or it is nothing that answers.
    """
    if isinstance(given, str):
        return problem.policy(given)
    if given is not None and not (isinstance(given, Policy) or callable(given)):
        raise OptionsError(f"baseline: expected a policy, its name or None, found {given!r}")
    return given


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _asked_for(
    options: Mapping[str, Any], known: Sequence[str], packages: Packages
) -> ResetRequest:
    """Read the options of ``reset``."""
    unknown = set(options) - set(known)
    if unknown:
        expected = ", ".join(f"{name!r}" for name in known)
        raise OptionsError(f"reset options: expected only {expected}, found {sorted(unknown)}")
    module, function = options.get("module"), options.get("function")
    if not isinstance(module, str | Module | None):
        raise OptionsError(f"reset options: expected a module or its name, found {module!r}")
    if not isinstance(function, str | None):
        raise OptionsError(f"reset options: expected a function's name, found {function!r}")
    return ResetRequest(packages[module] if isinstance(module, str) else module, function)
