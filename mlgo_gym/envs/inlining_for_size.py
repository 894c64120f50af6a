"""``mlgo_gym/InliningForSize-v0``: LLVM's inlining decisions as a Gymnasium environment."""

from __future__ import annotations

import copy
import operator
from pathlib import Path
from typing import Any, Final, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from mlgo_gym.baseline import BaselineCache, relative_reduction
from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus, Module
from mlgo_gym.envs.observation_space import ObservationDict, dict_space
from mlgo_gym.errors import (
    CompilationError,
    CorpusError,
    ModuleError,
    OptionsError,
    UsageError,
)
from mlgo_gym.llvm.compilation import Compilation, CompilationResult
from mlgo_gym.llvm.compiler import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    DEFAULT_TIMEOUT_S,
    Compiler,
    options_of,
)
from mlgo_gym.llvm.options import OPT_LEVELS
from mlgo_gym.llvm.waiting import Steps, run_to_end
from mlgo_gym.problems.inlining_for_size import (
    DEFAULT_ADVICE,
    DEFAULT_SIZE_INCREASE_THRESHOLD,
    InliningForSize,
)
from mlgo_gym.runners.base import RunnerFactory
from mlgo_gym.training_log import Observation

__all__ = ["InliningForSizeEnv"]


class InliningForSizeEnv(gymnasium.Env[ObservationDict, np.int64]):
    """One module an episode, one call site a step: inline it (1) or leave it (0)?

    Observation: a ``Dict`` of LLVM's 38 features under LLVM's names, each ``int64 (1,)``; their
    meanings and units stand in `mlgo_gym.problems.inlining_for_size`. After the last decision no
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

    metadata = {  # noqa: RUF012 - Gymnasium declares it on instances
        "render_modes": ["ansi"],
        "render_fps": 4,
    }

    def __init__(
        self,
        corpus: Corpus | str | Path | None = None,
        *,
        opt_level: str | None = None,
        size_increase_threshold: float = DEFAULT_SIZE_INCREASE_THRESHOLD,
        baseline: RunnerFactory | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in {None, *self.metadata["render_modes"]}:
            raise OptionsError(f"render_mode: expected None or 'ansi', found {render_mode!r}")
        if opt_level not in {None, *OPT_LEVELS[1:]}:  # at O0 nothing is inlined
            raise OptionsError(
                f"opt_level: expected one of {', '.join(OPT_LEVELS[1:])}, found {opt_level!r}"
            )
        self.corpus: Final = (
            corpus if isinstance(corpus, Corpus) else Corpus.load(corpus or SAMPLE_CORPUS)
        )
        self.problem: Final = InliningForSize(size_increase_threshold)
        self.render_mode = render_mode
        self.observation_space = _observation_space()
        self.action_space = spaces.Discrete(2)
        self._opt_level = opt_level
        self.compiler: Final = Compiler(timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes)
        self._baselines = BaselineCache(self.compiler, self.problem, baseline)
        self._unusable: dict[str, str] = {}
        self._compilation: Compilation | None = None
        self._baseline_size_bytes = 0
        self._pending: Observation | None = None
        self._last_action: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Start the next episode; one that is under way is abandoned.

        Raises:
            OptionsError: an option is unknown.
            CorpusError: the corpus has no such module, or none that asks for a decision.
            ModuleError: the module that was asked for asks for no decision, has no code to
                measure, or LLVM refused it.
            CompilationError: LLVM crashed or hung on the module that was asked for.
        """
        return run_to_end(self.resetting(seed=seed, options=options))

    def resetting(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Steps[tuple[ObservationDict, dict[str, Any]]]:
        """`reset`, for several environments at once (`mlgo_gym.llvm.waiting`)."""
        super().reset(seed=seed)
        if self._compilation is not None:
            self._compilation.close()
        asked = _asked_module(options)
        if asked is None:
            compilation, skipped = yield from self._start_drawn()
        else:
            module = asked if isinstance(asked, Module) else self.corpus[asked]
            compilation, skipped = (yield from self._start(module)), {}
        self._compilation = compilation
        self._last_action = None
        record = {
            "skipped": skipped,
            "baseline_text_size_bytes": self._baseline_size_bytes,
            "settings": compilation.settings,
        }
        return self._observation(), self._info(compilation) | record

    def step(
        self, action: np.int64 | int
    ) -> tuple[ObservationDict, float, bool, bool, dict[str, Any]]:
        """Answer the pending decision and go on to the next.

        Raises:
            UsageError: no decision is pending, or the action is neither 0 nor 1.
        """
        return run_to_end(self.stepping(action))

    def stepping(
        self, action: np.int64 | int
    ) -> Steps[tuple[ObservationDict, float, bool, bool, dict[str, Any]]]:
        """`step`, for several environments at once (`mlgo_gym.llvm.waiting`)."""
        compilation = self._compilation
        if compilation is None or self._pending is None:
            raise UsageError("step: expected a pending decision, found none; call reset first")
        try:
            compilation.answer(int(action) if isinstance(action, np.integer) else action)
            self._last_action = operator.index(action)
            yield compilation
            self._pending = compilation.next_observation()
        except (CompilationError, ModuleError) as error:
            self._pending = None
            info = self._info(compilation) | {"error": str(error)}
            return self._observation(), 0.0, False, True, info
        if self._pending is not None:
            return self._observation(), 0.0, False, False, self._info(compilation)
        reward, outcome = self._score(compilation.result)
        return self._observation(), reward, True, False, self._info(compilation) | outcome

    def render(self) -> str | None:
        """With ``render_mode="ansi"``, the state in a few lines of text."""
        if self.render_mode is None:
            return None
        if self._compilation is None:
            return "no episode\n"
        return _describe(self._compilation, self._pending, self._last_action)

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

    def close(self) -> None:
        """End the worker process."""
        if self._compilation is not None:
            self._compilation.close()
        self.compiler.close()
        self._compilation = self._pending = None

    def _start_drawn(self) -> Steps[tuple[Compilation, dict[str, str]]]:
        names, skipped = list(self.corpus), dict[str, str]()
        while names:
            name = names.pop(int(self.np_random.integers(len(names))))
            if name not in self._unusable:
                try:
                    return (yield from self._start_again(self.corpus[name])), skipped
                except (CompilationError, ModuleError) as error:
                    self._unusable[name] = str(error)
            skipped[name] = self._unusable[name]
        raise CorpusError(
            f"corpus {str(self.corpus.folder)!r}: expected a module that asks for a decision, "
            f"found none among {len(self.corpus)}; the last: {skipped.popitem()[1]}"
        )

    def _start_again(self, module: Module) -> Steps[Compilation]:
        """Start, twice if need be: what kills a worker once may not be the module's fault."""
        try:
            return (yield from self._start(module))
        except CompilationError:
            return (yield from self._start(module))

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

    def _score(self, result: CompilationResult) -> tuple[float, dict[str, Any]]:
        outcome = {
            "text_size_bytes": result.text_size_bytes,
            "baseline_text_size_bytes": self._baseline_size_bytes,
            "object_sha256": result.object_sha256,
            "settings": dict(result.settings),
        }
        return relative_reduction(result.text_size_bytes, self._baseline_size_bytes), outcome

    def _observation(self) -> ObservationDict:
        if self._pending is None:
            return {each.spec.name: np.zeros(1, np.int64) for each in self.problem.features}
        arrays = self._pending.arrays()
        del arrays[DEFAULT_ADVICE]
        return arrays

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        info: dict[str, Any] = {
            "module": compilation.module.name,
            "decision": compilation.decisions,
        }
        if self._pending is not None:
            info["context"] = self._pending.context
            info["default_advice"] = int(self._pending[DEFAULT_ADVICE][0])
        return info


def _observation_space() -> spaces.Space[ObservationDict]:
    return dict_space(
        {
            each.spec.name: spaces.Box(each.low, each.high, each.spec.shape, each.spec.dtype.type)
            for each in InliningForSize.features
        }
    )


def _asked_module(options: dict[str, Any] | None) -> str | Module | None:
    unknown = set(options or {}) - {"module"}
    if unknown:
        raise OptionsError(f"reset options: expected only 'module', found {sorted(unknown)}")
    module = (options or {}).get("module")
    if not isinstance(module, str | Module | None):
        raise OptionsError(f"reset options: expected a module or its name, found {module!r}")
    return module


def _describe(
    compilation: Compilation, pending: Observation | None, last_action: int | None
) -> str:
    verbs = {0: "leave", 1: "inline", None: "none"}
    lines = [
        f"module {compilation.module.name}, decision {compilation.decisions}",
        f"  last action: {verbs[last_action]}",
    ]
    if pending is None:
        lines.append("  no decision is pending")
    else:
        lines.append(f"  LLVM's default: {verbs[int(pending[DEFAULT_ADVICE][0])]}")
        shown = ("cost_estimate", "callee_basic_block_count", "callee_users", "caller_users")
        lines += [f"  {name}: {int(pending[name][0])}" for name in shown]
    return "\n".join(lines) + "\n"
