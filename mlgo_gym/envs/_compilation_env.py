"""What the environments share: a corpus, a compiler, and steps that answer LLVM's questions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypedDict, TypeVar

import gymnasium

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus, Module
from mlgo_gym.envs._observation_space import ObservationDict
from mlgo_gym.errors import CompilationError, ModuleError, OptionsError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import DEFAULT_MEMORY_LIMIT_BYTES, DEFAULT_TIMEOUT_S, Compiler
from mlgo_gym.llvm._waiting import Steps, run_to_end
from mlgo_gym.llvm.command._options import OPT_LEVELS
from mlgo_gym.problems._policy import Action
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream._events import Observation

ActionT = TypeVar("ActionT")
ProblemT = TypeVar("ProblemT", bound=Problem)


class CompilationSettings(TypedDict, total=False):
    """What every environment takes by keyword."""

    opt_level: str | None
    timeout_s: float
    memory_limit_bytes: int
    render_mode: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What ``reset`` is asked for; where it is ``None``, what comes next.

    Attributes:
        module: a module, of the corpus or any other.
        function: the name of a function.
    """

    module: Module | None = None
    function: str | None = None


class CompilationEnv(gymnasium.Env[ObservationDict, ActionT], Generic[ActionT, ProblemT]):
    """An environment whose steps are the decisions of one compilation.

    A subclass says how an episode starts (`_begin`), what an observation and its information look
    like, which action LLVM gets, and what the end is worth.

    Attributes:
        corpus: where the modules are.
        problem: what LLVM asks for.
        compiler: what compiles.
    """

    _reset_options: ClassVar[tuple[str, ...]] = ("module",)

    metadata = {  # noqa: RUF012 - Gymnasium declares it on instances
        "render_modes": ["ansi"],
        "render_fps": 4,
    }

    def __init__(
        self,
        corpus: Corpus | str | Path | None,
        problem: ProblemT,
        *,
        opt_level: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in {None, *self.metadata["render_modes"]}:
            raise OptionsError(f"render_mode: expected None or 'ansi', found {render_mode!r}")
        if opt_level not in {None, *OPT_LEVELS[1:]}:  # at O0 nobody is asked
            raise OptionsError(
                f"opt_level: expected one of {', '.join(OPT_LEVELS[1:])}, found {opt_level!r}"
            )
        self.corpus: Final = (
            corpus if isinstance(corpus, Corpus) else Corpus.load(corpus or SAMPLE_CORPUS)
        )
        self.problem: Final = problem
        self.compiler: Final = Compiler(timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes)
        self.render_mode = render_mode
        self._opt_level = opt_level
        self._unusable: dict[str, str] = {}
        self._compilation: Compilation | None = None
        self._pending: Observation | None = None
        self._last_action: Action | None = None

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
        """
        return run_to_end(self.resetting(seed=seed, options=options))

    def resetting(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Steps[tuple[ObservationDict, dict[str, Any]]]:
        """`reset`, for several environments at once (`llvm._waiting`).

        What cannot be asked for is an error at once, before anything has changed.
        """
        return self._resetting(seed, self._asked(options or {}))

    def _resetting(
        self, seed: int | None, asked: Asked
    ) -> Steps[tuple[ObservationDict, dict[str, Any]]]:
        super().reset(seed=seed)
        if self._compilation is not None:
            self._compilation.close()
        self._compilation = self._pending = None
        self._compilation, record = yield from self._begin(asked, is_seeded=seed is not None)
        self._last_action = None
        return self._observation(), self._info(self._compilation) | record

    def step(
        self, action: ActionT | Action
    ) -> tuple[ObservationDict, float, bool, bool, dict[str, Any]]:
        """Answer the pending decision and go on to the next.

        Raises:
            UsageError: no decision is pending, or LLVM does not take this action.
        """
        return run_to_end(self.stepping(action))

    def stepping(
        self, action: ActionT | Action
    ) -> Steps[tuple[ObservationDict, float, bool, bool, dict[str, Any]]]:
        """`step`, for several environments at once (`llvm._waiting`).

        An action that LLVM does not take is an error at once, before anything has changed.
        """
        if self._compilation is None or self._pending is None:
            raise UsageError("step: expected a pending decision, found none; call reset first")
        return self._stepping(self._compilation, *self._choose(action, self._pending))

    def _stepping(
        self, compilation: Compilation, chosen: Action, remark: dict[str, Any]
    ) -> Steps[tuple[ObservationDict, float, bool, bool, dict[str, Any]]]:
        try:
            compilation.answer(chosen)
            self._last_action = chosen
            yield compilation
            self._pending = compilation.next_observation()
            self._check_limits(compilation)
        except (CompilationError, ModuleError) as error:
            self._pending = None
            info = self._info(compilation) | remark | {"error": str(error)}
            return self._observation(), 0.0, False, True, info
        if self._pending is not None:
            return self._observation(), 0.0, False, False, self._info(compilation) | remark
        reward, outcome = self._finish(compilation)
        info = self._info(compilation) | remark | outcome
        return self._observation(), reward, True, False, info

    def render(self) -> str | None:
        """With ``render_mode="ansi"``, the state in a few lines of text."""
        if self.render_mode is None:
            return None
        if self._compilation is None:
            return "no episode\n"
        return "\n".join(self._describe(self._compilation, self._pending)) + "\n"

    def close(self) -> None:
        """End the worker process."""
        if self._compilation is not None:
            self._compilation.close()
        self.compiler.close()
        self._compilation = self._pending = None

    @abstractmethod
    def _begin(self, asked: Asked, *, is_seeded: bool) -> Steps[tuple[Compilation, dict[str, Any]]]:
        """Start an episode's compilation; with it comes what only ``reset`` puts into the info."""

    @abstractmethod
    def _choose(
        self, action: ActionT | Action, observation: Observation
    ) -> tuple[Action, dict[str, Any]]:
        """What LLVM is answered, and what the info says of the choice.

        Raises:
            UsageError: LLVM does not take this action.
        """

    @abstractmethod
    def _finish(self, compilation: Compilation) -> tuple[float, dict[str, Any]]:
        """The reward at the end of an episode, and what the info says then."""

    @abstractmethod
    def _observation(self) -> ObservationDict:
        """The pending observation, or what stands for none."""

    @abstractmethod
    def _describe(self, compilation: Compilation, pending: Observation | None) -> list[str]:
        """The state in lines of text."""

    def _check_limits(self, compilation: Compilation) -> None:
        """Raise a `CompilationError` where the episode must not go on."""

    def _info(self, compilation: Compilation) -> dict[str, Any]:
        info: dict[str, Any] = {
            "module": compilation.module.name,
            "decision": compilation.decisions,
        }
        if self._pending is not None:
            info["context"] = self._pending.context
        return info

    @staticmethod
    def _twice(start: Callable[[], Steps[Compilation]]) -> Steps[Compilation]:
        """Start, twice if need be: what kills a worker once may not be the module's fault."""
        try:
            return (yield from start())
        except CompilationError:
            return (yield from start())

    def _asked(self, options: dict[str, Any]) -> Asked:
        """What the options of ``reset`` ask for.

        Raises:
            OptionsError: an option is unknown, or is not what it should be.
            CorpusError: the corpus has no such module.
            ModuleError: its files cannot be read.
        """
        unknown = set(options) - set(self._reset_options)
        if unknown:
            expected = ", ".join(f"{name!r}" for name in self._reset_options)
            raise OptionsError(f"reset options: expected only {expected}, found {sorted(unknown)}")
        module, function = options.get("module"), options.get("function")
        if not isinstance(module, str | Module | None):
            raise OptionsError(f"reset options: expected a module or its name, found {module!r}")
        if not isinstance(function, str | None):
            raise OptionsError(f"reset options: expected a function's name, found {function!r}")
        return Asked(self.corpus[module] if isinstance(module, str) else module, function)
