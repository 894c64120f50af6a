"""``mlgo_gym/InliningForSize-v0``: LLVM's inlining decisions as a Gymnasium environment."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, Unpack

import numpy as np
from gymnasium import spaces

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.envs._compilation_env import Asked, CompilationEnv, CompilationSettings
from mlgo_gym.envs._observation_space import ObservationDict, feature_space
from mlgo_gym.errors import CompilationError, CorpusError, ModuleError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import options_of
from mlgo_gym.llvm._waiting import Steps
from mlgo_gym.problems._inlining_for_size import (
    DEFAULT_ADVICE,
    DEFAULT_SIZE_INCREASE_THRESHOLD,
    InliningForSize,
)
from mlgo_gym.problems._policy import Action, PolicyLike
from mlgo_gym.scoring._baseline import BaselineCache
from mlgo_gym.scoring._measures import reward_of
from mlgo_gym.stream._events import Observation

_VERBS: Final[Mapping[Action | None, str]] = MappingProxyType(
    {0: "leave", 1: "inline", None: "none"}
)


class InliningForSizeEnv(CompilationEnv[np.int64, InliningForSize]):
    """One module an episode, one call site a step: inline it (1) or leave it (0)?

    Observation: a ``Dict`` of LLVM's 38 features under LLVM's names, each ``int64 (1,)``; their
    meanings and units stand in `problems._inlining_for_size`. After the last decision no
    question is pending, and the observation is all zeros.

    Reward: 0 until the last decision, then ``1 - text / baseline_text``: the share of the bytes in
    the object's ``.text*`` sections that was saved against LLVM's own heuristic in the same
    pipeline. Positive is better than LLVM.

    Info, always: ``module``; ``decision``, the number of answers so far. While a decision is
    pending: ``context``, LLVM's name for it; ``default_advice``, what LLVM would answer. From
    ``reset``: ``skipped``, modules that were drawn but not used, with the reason;
    ``baseline_text_size_bytes``; ``settings``. At the end: ``text_size_bytes``,
    ``baseline_text_size_bytes``, ``object_sha256``, ``settings``. A module that crashes LLVM or
    outruns its deadline ends its episode with ``truncated``, reward 0 and ``info["error"]``.

    Options of ``reset``: ``{"module": NAME}`` takes that module of the corpus, a
    `mlgo_gym.corpus.Module` takes that one. Otherwise modules are drawn with the environment's
    random generator; one that asks for no decision, or that LLVM cannot compile, is skipped.

    Args:
        corpus: a corpus, its folder, or ``None`` for the sample corpus in this package. Where the
            environment's spec is to be saved as JSON, give the folder as a string.
        opt_level: clang's level to compile at (``O1`` to ``O3``, ``Os``, ``Oz``); ``None`` takes
            the one of each module's command line.
        size_increase_threshold: LLVM's growth limit, see `InliningForSize`.
        baseline: what the score is relative to: a runner, such as
            ``functools.partial(ReleaseModeModelRunner, "model")``; ``None`` is LLVM's heuristic.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        memory_limit_bytes: a worker that has grown above it is replaced between episodes.
        render_mode: ``ansi`` makes ``render`` describe the state in a few lines of text.

    Raises:
        CorpusError: the corpus cannot be used.
        OptionsError: a setting has a value that it cannot have.
    """

    def __init__(
        self,
        corpus: Corpus | str | Path | None = None,
        *,
        size_increase_threshold: float = DEFAULT_SIZE_INCREASE_THRESHOLD,
        baseline: PolicyLike | None = None,
        **settings: Unpack[CompilationSettings],
    ) -> None:
        super().__init__(corpus, InliningForSize(size_increase_threshold), **settings)
        self.observation_space = feature_space(InliningForSize.features)
        self.action_space = spaces.Discrete(2)
        self._baselines = BaselineCache(self.compiler, self.problem, baseline)
        self._baseline_size_bytes = 0

    def fork(self) -> Self:
        """Branch off in the middle of the episode: an environment that has come the same way.

        Both go on by themselves, as `Compilation.fork` describes; the branch starts a worker of
        its own when it is reset, and is closed like any environment. Its random generator is a
        copy.

        Raises:
            UsageError: no decision is pending, or there are too many branches.
            CompilationError: the worker died or did not answer.
        """
        if self._compilation is None or self._pending is None:
            raise UsageError("fork: expected a pending decision, found none; call reset first")
        branch = self._compilation.fork()
        twin = copy.copy(self)
        compiler = copy.copy(self.compiler)
        vars(twin).update(
            compiler=compiler,
            action_space=copy.deepcopy(self.action_space),
            observation_space=copy.deepcopy(self.observation_space),
            _np_random=copy.deepcopy(self._np_random),
            _baselines=self._baselines.copy_for(compiler),
            _unusable=dict(self._unusable),
            _compilation=branch,
        )
        return twin

    def _begin(
        self,
        asked: Asked,
        *,
        is_seeded: bool,  # noqa: ARG002
    ) -> Steps[tuple[Compilation, dict[str, Any]]]:
        skipped: dict[str, str] = {}
        if asked.module is None:
            compilation = yield from self._start_drawn(skipped)
        else:
            compilation = yield from self._start(asked.module)
        return compilation, {
            "skipped": skipped,
            "baseline_text_size_bytes": self._baseline_size_bytes,
            "settings": compilation.settings,
        }

    def _start_drawn(self, skipped: dict[str, str]) -> Steps[Compilation]:
        names = list(self.corpus)
        while names:
            name = names.pop(int(self.np_random.integers(len(names))))
            if name not in self._unusable:
                try:
                    start = partial(self._start, self.corpus[name])
                    return (yield from self._twice(start))
                except (CompilationError, ModuleError) as error:
                    self._unusable[name] = str(error)
            skipped[name] = self._unusable[name]
        raise CorpusError(
            f"corpus {str(self.corpus.folder)!r}: expected a module that asks for a decision, "
            f"found none among {len(self.corpus)}; the last: {skipped.popitem()[1]}"
        )

    def _start(self, module: Module) -> Steps[Compilation]:
        self._pending = None
        options = options_of(module, self._opt_level)
        baseline = yield from self._baselines.compiling(module, options)
        self._baseline_size_bytes = baseline.text_size_bytes
        if self._baseline_size_bytes == 0:
            raise ModuleError(module.name, "has no code to measure: its .text* sections are empty")
        compilation = self.compiler.start(module, self.problem, options)
        yield compilation
        self._pending = compilation.next_observation()
        if self._pending is None:
            raise ModuleError(module.name, "asks for no inlining decision")
        return compilation

    def _choose(
        self, action: np.int64 | Action, observation: Observation
    ) -> tuple[Action, dict[str, Any]]:
        chosen = int(action) if isinstance(action, np.integer) else action
        self.problem.encode_advice(chosen, observation)
        return operator.index(chosen), {}  # type: ignore[arg-type]

    def _finish(self, compilation: Compilation) -> tuple[float, dict[str, Any]]:
        result = compilation.result
        outcome = {
            "text_size_bytes": result.text_size_bytes,
            "baseline_text_size_bytes": self._baseline_size_bytes,
            "object_sha256": result.object_sha256,
            "settings": dict(result.settings),
        }
        return reward_of(result.text_size_bytes, self._baseline_size_bytes), outcome

    def _observation(self) -> ObservationDict:
        if self._pending is None:
            return {each.spec.name: np.zeros(1, np.int64) for each in self.problem.features}
        arrays = self._pending.arrays()
        del arrays[DEFAULT_ADVICE]
        return arrays

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        info = super()._info(compilation)
        if self._pending is not None:
            info["default_advice"] = int(self._pending[DEFAULT_ADVICE][0])
        return info

    def _describe(self, compilation: Compilation, pending: Observation | None) -> list[str]:
        lines = [
            f"module {compilation.module.name}, decision {compilation.decisions}",
            f"  last action: {_VERBS[self._last_action]}",
        ]
        if pending is None:
            return [*lines, "  no decision is pending"]
        lines.append(f"  LLVM's default: {_VERBS[int(pending[DEFAULT_ADVICE][0])]}")
        shown = ("cost_estimate", "callee_basic_block_count", "callee_users", "caller_users")
        return lines + [f"  {name}: {int(pending[name][0])}" for name in shown]
