"""Several environments as one: their workers compile at once and are served from one loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from mlgo_gym.base import OptionsError, UsageError
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._making import make_env
from mlgo_gym.envs._observation_space import ObservationDict
from mlgo_gym.llvm import Steps, run_together
from mlgo_gym.problems import Problem

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
Step = tuple[ObservationDict, float, bool, bool, dict[str, Any]]


class CompilationVectorEnv(SyncVectorEnv):  # not generic in Gymnasium 1.1
    """N environments of one kind, each with a worker of its own, in one loop and one thread.

    ``gymnasium.make_vec("mlgo_gym/InliningForSize-v0", num_envs=N, corpus=...)`` makes one. A step
    answers all pending decisions and then takes what comes, in whatever order it comes; results,
    ``call``, ``get_attr`` and ``set_attr`` are those of Gymnasium's ``SyncVectorEnv`` over the same
    environments. What happens in one row does not depend on the others, nor on timing: each has its
    own random generator, and a worker that crashes or outruns its deadline truncates the episode of
    its own row. An action that LLVM does not take moves no row.

    Observations: a ``Dict`` of LLVM's features, each of its shape with N in front. Rewards
    ``float64 [N]``, terminations and truncations ``bool [N]``. Infos, masks among them: as of the
    single environment, batched as Gymnasium does.

    Args:
        problem: what LLVM asks for, or its name.
        num_envs: how many.
        autoreset_mode: one of Gymnasium's ``AutoresetMode``, or its value: ``NextStep`` resets a
            row in the step after its episode's last, and ignores its action; ``SameStep`` resets
            it at once and puts the last observation and information into ``infos["final_obs"]``
            and ``infos["final_info"]``; with ``Disabled`` call ``reset`` with
            ``options={"reset_mask": MASK}``, ``bool [N]``.
        settings: of each environment, by name, as `make_env` takes them.

    Raises:
        OptionsError: a setting has a value that it cannot have.
        CorpusError: the corpus cannot be used.
    """

    envs: list[DecisionEnv]  # type: ignore[assignment]

    def __init__(
        self,
        problem: str | Problem,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise OptionsError(f"num_envs: expected a whole number above 0, found {num_envs!r}")
        try:
            mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            expected = ", ".join(each.value for each in AutoresetMode)
            raise OptionsError(
                f"autoreset_mode: expected one of {expected}, found {autoreset_mode!r}"
            ) from error
        first = make_env(problem, **settings)
        settings["corpus"] = first.corpus
        if settings.get("reward") is not None:
            settings["reward"] = first.measure
        others = [partial(make_env, problem, **settings)] * (num_envs - 1)
        super().__init__([lambda: first, *others], autoreset_mode=mode)
        self._rows: list[ObservationDict] = []
        self._has_ended = np.ones(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObservationDict, dict[str, Any]]:
        """Start the next episode in every row, or in those of ``options["reset_mask"]``.

        Args:
            seed: one for each row, or one for the first, from which the others count up.
            options: ``reset_mask``, and what the single environment's ``reset`` takes, for all
                rows, or as a list with a value for each row, where ``None`` asks for nothing.

        Raises:
            OptionsError: the seeds or the mask do not fit the number of environments.
            MlgoGymError: what the single environment's ``reset`` raises: at once where an option
                cannot be, otherwise once all rows are done, and all have to be reset then.
        """
        options = dict(options or {})
        seeds = self._seeds(seed)
        mask = self._mask(options.pop("reset_mask", None))
        rows = [index for index in range(self.num_envs) if mask[index]]
        work = [
            self.envs[row].resetting(seed=seeds[row], options=self._of_row(options, row))
            for row in rows
        ]
        started = self._together(work)
        infos: dict[str, Any] = {}
        self._rows = self._rows or [{} for _ in self.envs]
        for row, (observation, info) in zip(rows, started, strict=True):
            self._rows[row] = observation
            self._has_ended[row] = False
            infos = self._add_info(infos, info, row)
        return self._batched(), infos

    def step(self, actions: Array) -> tuple[ObservationDict, Array, Array, Array, dict[str, Any]]:
        """Answer the pending decision of every row.

        Args:
            actions: one for each row, as the action space has them.

        Raises:
            UsageError: there is not one action for each row, LLVM does not take an action, or a
                row has to be reset first; no row has moved.
            CorpusError: a row's next episode cannot be started; all have to be reset.
        """
        if len(actions) != self.num_envs:
            raise UsageError(f"step: expected {self.num_envs} actions, found {len(actions)}")
        if not self._rows:
            raise UsageError("step: expected a pending decision, found none; call reset first")
        rows = self._together([self._row(row, action) for row, action in enumerate(actions)])
        infos: dict[str, Any] = {}
        for row, ((*_, info), final) in enumerate(rows):
            if final is not None:
                infos = self._add_info(infos, final, row)
            infos = self._add_info(infos, info, row)
        steps = [step for step, _ in rows]
        self._rows = [step[0] for step in steps]
        rewards = np.array([step[1] for step in steps], np.float64)
        terminations = np.array([step[2] for step in steps], bool)
        truncations = np.array([step[3] for step in steps], bool)
        self._has_ended = terminations | truncations
        return self._batched(), rewards, terminations, truncations, infos

    def _row(self, row: int, action: Any) -> Steps[tuple[Step, dict[str, Any] | None]]:
        """One row's step; an action that LLVM does not take is an error before any row moves."""
        env = self.envs[row]
        if self._has_ended[row] and self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return self._restarting(env)
        return self._continuing(env, env.stepping(action))

    def _restarting(self, env: DecisionEnv) -> Steps[tuple[Step, None]]:
        observation, info = yield from env.resetting()
        return (observation, 0.0, False, False, info), None

    def _continuing(
        self, env: DecisionEnv, steps: Steps[Step]
    ) -> Steps[tuple[Step, dict[str, Any] | None]]:
        """A step, and with ``SameStep`` the end of the last episode."""
        observation, reward, terminated, truncated, info = step = yield from steps
        if self.autoreset_mode is AutoresetMode.SAME_STEP and (terminated or truncated):
            final = {"final_obs": observation, "final_info": info}
            observation, info = yield from env.resetting()
            return (observation, reward, terminated, truncated, info), final
        return step, None

    def _together(self, work: Sequence[Steps[Result]]) -> list[Result]:
        """The rows' work at once; where it fails in one, all have to be reset."""
        rows, self._rows = self._rows, []
        results = run_together(work)
        self._rows = rows
        return results

    def _batched(self) -> ObservationDict:
        space = self.single_observation_space
        batch = cast("ObservationDict", create_empty_array(space, self.num_envs, fn=np.zeros))
        return cast("ObservationDict", concatenate(space, self._rows, batch))

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return [seed + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise OptionsError(f"seed: expected one or {self.num_envs} seeds, found {len(seed)}")
        return list(seed)

    def _of_row(self, options: Mapping[str, Any], row: int) -> dict[str, Any]:
        """The options of one row, where lists have a value for each."""
        found = dict(options)
        for name, values in options.items():
            if isinstance(values, list | tuple):
                if len(values) != self.num_envs:
                    expected = f"expected one value or {self.num_envs}, found {len(values)}"
                    raise OptionsError(f"reset options: {name}: {expected}")
                found[name] = values[row]
        return {name: value for name, value in found.items() if value is not None}

    def _mask(self, mask: object) -> Array:
        if mask is None:
            return np.ones(self.num_envs, bool)
        if (
            not isinstance(mask, np.ndarray)
            or mask.dtype != np.bool_
            or mask.shape != (self.num_envs,)
            or not mask.any()
            or (not self._rows and not mask.all())
        ):
            raise OptionsError(
                f"reset_mask: expected bool ({self.num_envs},) with some true, all at first; "
                f"found {mask!r}"
            )
        return mask
