"""``mlgo_gym/TierUp-v0``: an agent decides when a function is compiled, and at which tier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError, UsageError
from mlgo_gym.envs import RENDER_MODES, check_render_mode, rendered
from mlgo_gym.lab.tiers._recording import (
    CACHED,
    DECISIONS,
    ENTER,
    GUARD,
    PRUNE,
    SPECIAL,
    SPECIALISE,
    VERSIONS,
    Recording,
)
from mlgo_gym.lab.tiers._schedules import TierPolicy, oracle_s, played, schedule_named
from mlgo_gym.lab.tiers._tier_replay import Replay

SAMPLE_RECORDING: Final = Path(__file__).with_name("sample") / "json.npz"
"""A recording of the sample corpus's program, which ships."""

FEATURES: Final = (
    "kind",
    "tier",
    "wanted_tier",
    "queue",
    "values",
    "calls",
    "back_edges",
    "failures",
    "size",
    "spent",
    "since_last",
    "cost_O1",
    "cost_O2",
    "cost_O3",
    "cost_enter",
    "cost_specialise",
    "cost_prune",
    "now",
    "compiled",
)
"""The features that `TierUpEnv` observes, in its order.

``kind`` is 0 at calls, 1 at jumps back and 2 where a guard failed; ``tier``, ``wanted_tier`` (4
for specialised code, 5 for pruned), ``queue`` and ``values`` are as `Replay` has them; ``calls``,
``back_edges``, ``failures`` and ``size`` (of LLVM's IR) are log2(1 + count); the others are
seconds of the function (``spent``, ``since_last``, ``cost_...``, 0 where the decision is not
allowed now) and of the whole program (``now``, and what has been ``compiled``), as
log2(1 + microseconds).
"""

_PLAIN: Final = FEATURES.index("calls")
_TIMES: Final = FEATURES.index("spent")
_MICROSECONDS: Final = 1e6
_EXPECTED: Final = f"expected 0 to {len(DECISIONS) - 1}"
_HIGHEST: Final = 64
_COUNTED: Final = ("calls", "jumps back", "wrong guesses")
_SHOWN: Final = (*range(SPECIAL), *[SPECIAL] * len(CACHED), SPECIAL + 1, -1)
"""Versions as an observation has them; the last is of a function before its first call."""
_NOTHING: Final = (0.0,) * len(FEATURES)
_Observation = NDArray[np.float32]


class TierUpEnv(gymnasium.Env[_Observation, np.int64]):
    """When to compile: a dynamic compiler's decisions over a recorded program.

    An episode is a run of one program. A step is an event of a function: the count of its calls,
    of its jumps back while it runs at O0, or of guard failures in its speculative code, reaches a
    power of two. Actions: 0 goes on, 1 to 3 compile the function at O1 to O3, 4 enters the running
    loop (on-stack replacement), 5 specialises the function on the values that an argument has had,
    6 prunes it to the blocks that it has reached, 7 drops such code for O0's. An action that is not
    allowed (`action_masks`) counts as 0, and is counted in the info. No process runs: the
    program was recorded once, and is replayed exactly.

    The reward of a step is minus the seconds until the next event, divided by the seconds of the
    whole run under the baseline; the last step adds 1. So the sum of an episode is the share of the
    baseline's time that was saved: 0 is as good as the baseline.

    Args:
        recordings: a recording, its file, a folder of them, or several of those; the sample's, if
            ``None``.
        threads: 0 compiles in the program's thread, 1 to 4 in as many of their own.
        baseline: a policy's name, as `schedule_named` takes it.
        render_mode: ``ansi`` makes ``render`` describe the event in a few lines of text,
            ``rgb_array`` as a picture.

    Raises:
        WorkloadError: a recording cannot be used.
        OptionsError: there is none, or a setting has a value that it cannot have.

    >>> env = TierUpEnv()
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, str(info["function"])
    ((19,), 'main')
    >>> env.close()
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium has it
        "render_modes": [*RENDER_MODES],
        "render_fps": 4,
    }

    def __init__(
        self,
        recordings: Recording | Path | str | Sequence[Recording | Path | str] | None = None,
        *,
        threads: int = 0,
        baseline: str = "ski-rental",
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.recordings: Final = load_recordings(
            SAMPLE_RECORDING if recordings is None else recordings
        )
        self._policy: TierPolicy = schedule_named(baseline)
        self._threads = threads
        self._replays = {name: Replay(each, threads) for name, each in self.recordings.items()}
        self._bounds: dict[str, tuple[float, float]] = {}
        self.action_space = spaces.Discrete(len(DECISIONS))
        high = np.full(len(FEATURES), _HIGHEST, np.float32)
        self.observation_space = spaces.Box(np.full(len(FEATURES), -1, np.float32), high)
        self._order: list[str] = []
        self._replay: Replay | None = None
        self._name = ""
        self._refused = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """Begin a program: the next of a shuffled order, or ``options={"recording": NAME}``.

        Raises:
            OptionsError: no recording has the name, or there is another option.
        """
        if unknown := set(options or {}) - {"recording"}:
            raise OptionsError(f"reset options: expected only 'recording', found {sorted(unknown)}")
        super().reset(seed=seed)
        if seed is not None:
            self._order = []
        replay = self.begin((options or {}).get("recording"))
        return seen([observed(replay)])[0], self.info()

    def begin(self, chosen: str | None = None) -> Replay:
        """Begin a recording's run, the next one's if ``None``; for whoever observes it itself.

        Raises:
            OptionsError: no recording has the name.
        """
        if chosen is not None and chosen not in self._replays:
            known = ", ".join(self._replays)
            raise OptionsError(f"recording: expected one of {known}, found {chosen!r}")
        if chosen is None:
            if not self._order:
                self._order = [str(each) for each in self.np_random.permutation([*self._replays])]
            chosen = self._order.pop()
        self._name = chosen
        self._replay = replay = self._replays[chosen]
        self._baseline_s, self._oracle_s = self._compared(chosen)
        replay.reset()
        self._refused = 0
        self._last_s = 0.0
        return replay

    def step(self, action: Any) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        """Answer the event, and go on to the next.

        Raises:
            UsageError: there is no episode.
            OptionsError: the action is none of the space's.
        """
        values = np.asarray(action)
        chosen = values.item() if values.size == 1 and values.dtype.kind in "biuf" else math.nan
        if chosen % 1 != 0:
            raise OptionsError(f"action: {_EXPECTED}, found {action!r}")
        reward = self.answer(int(chosen))
        replay = self.replay
        return seen([observed(replay)])[0], reward, replay.is_over, False, self.info()

    def answer(self, decision: int) -> float:
        """Answer the event, and return the reward; for whoever observes it itself.

        Raises:
            UsageError: there is no episode.
            OptionsError: the action is none of the space's.
        """
        replay = self._replay
        if replay is None or replay.is_over:
            raise UsageError("step: expected an episode, found none; call reset")
        if not 0 <= decision < len(DECISIONS):
            raise OptionsError(f"action: {_EXPECTED}, found {decision!r}")
        if decision and not replay.is_allowed(decision):
            self._refused += 1
            decision = 0
        replay.decide(decision)
        now_s = replay.total_s
        elapsed, self._last_s = now_s - self._last_s, now_s
        return -elapsed / self._baseline_s + replay.is_over

    def render(self) -> Any:
        """Describe the event in a few lines of text, or in a picture of them.

        Raises:
            EnvironmentSetupError: a picture is asked for, and Pillow is not installed.
        """
        return rendered(self.render_mode, self._shown)

    def _shown(self) -> str:
        replay = self._replay
        if replay is None:
            return "no episode\n"
        lines = [f"{self._name}, event {replay.event}, {replay.now_s:.3f} s"]
        if replay.is_over:
            return f"{lines[0]}\n  the program has ended after {replay.total_s:.3f} s\n"
        function, what = replay.function, _COUNTED[min(replay.kind, GUARD)]
        tier = (*VERSIONS, "no code yet")[replay.tier[function]]
        allowed = [
            name for name, is_it in zip(DECISIONS, self.action_masks(), strict=True) if is_it
        ]
        lines += (
            f"  {replay.recording.functions[function]}: {1 << replay.power:,} {what}",
            f"  its code: {tier}; it has taken {replay.spent_s[function]:.3f} s",
            f"  allowed: {', '.join(allowed)}",
        )
        return "\n".join(lines) + "\n"

    def twin(self) -> TierUpEnv:
        """Another environment of the same recordings, which shares what does not change."""
        made = copy(self)
        replays = {name: copy(each) for name, each in self._replays.items()}
        vars(made).update(_replays=replays, _order=[], _replay=None, _np_random=None)
        return made

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are allowed now, as sb3-contrib's MaskablePPO asks for it; shape ``(8,)``.

        Raises:
            UsageError: there is no episode.
        """
        if self._replay is None:
            raise UsageError("action_masks: expected an episode, found none; call reset")
        return np.array([self._replay.is_allowed(each) for each in range(len(DECISIONS))])

    @property
    def replay(self) -> Replay:
        """The run that is played, for policies that look at it.

        Raises:
            UsageError: there is no episode.
        """
        if self._replay is None:
            raise UsageError("replay: expected an episode, found none; call reset")
        return self._replay

    def _compared(self, name: str) -> tuple[float, float]:
        if name not in self._bounds:
            replay = self._replays[name]
            baseline = played(replay.recording, self._policy, replay=replay).total_s
            best = oracle_s(replay.recording, waits=not self._threads)
            self._bounds[name] = baseline, best
        return self._bounds[name]

    def info(self) -> dict[str, Any]:
        """The info of the present step."""
        replay = self.replay
        return {
            "recording": self._name,
            "function": "" if replay.is_over else replay.recording.functions[replay.function],
            "event": np.int64(replay.event),
            "seconds": np.float64(replay.total_s if replay.is_over else replay.now_s),
            "compile_seconds": np.float64(replay.compiled_s),
            "instructions": np.int64(replay.instructions if replay.is_over else 0),
            "baseline_seconds": np.float64(self._baseline_s),
            "oracle_seconds": np.float64(self._oracle_s),
            "illegal_actions": np.int64(self._refused),
        }


def observed(replay: Replay) -> tuple[float, ...]:
    """Read the raw values of `FEATURES`, and note when the function was looked at; seconds."""
    if replay.is_over:
        return _NOTHING
    function, now = replay.function, replay.now_s
    last, replay.last_s[function] = replay.last_s[function], now
    costs = replay.costs[function]
    return (
        min(replay.kind, GUARD),
        _SHOWN[replay.tier[function]],
        _SHOWN[replay.wanted[function]],
        replay.queue,
        replay.values[function],
        replay.calls[function],
        replay.backs[function],
        replay.failures[function],
        replay.sizes[function],
        replay.spent_s[function],
        now - last,
        costs[1],
        costs[2],
        costs[3],
        replay.cost_s(ENTER),
        replay.cost_s(SPECIALISE),
        replay.cost_s(PRUNE),
        now,
        replay.compiled_s,
    )


def seen(rows: Sequence[tuple[float, ...]]) -> _Observation:
    """Make observations of raw values; shape ``(rows, 19)``."""
    made = np.array(rows)
    made[:, _TIMES:] *= _MICROSECONDS
    made[:, _PLAIN:] = np.log2(1 + made[:, _PLAIN:])
    found: _Observation = np.minimum(made, _HIGHEST).astype(np.float32)
    return found


def load_recordings(given: Any) -> Mapping[str, Recording]:
    """Recordings by name, of what an environment is given."""
    items = [given] if isinstance(given, Recording | Path | str) else list(given)
    found: dict[str, Recording] = {}
    for item in items:
        for each in _each(item):
            name = each.name
            if name in found:
                raise OptionsError(f"recordings: expected each program once, found {name} twice")
            found[name] = each
    if not found:
        raise OptionsError("recordings: expected a recording, found none")
    return found


def _each(item: Recording | Path | str) -> list[Recording]:
    if isinstance(item, Recording):
        return [item]
    path = Path(item)
    paths = sorted(path.glob("**/*.npz")) if path.is_dir() else [path]
    if not paths:
        raise OptionsError(f"recordings: expected files .npz in {path}, found none")
    return [Recording.load(each) for each in paths]


_Observations = NDArray[np.float32]
_Answers = NDArray[np.int64]


class TierUpVectorEnv(VectorEnv[_Observations, _Answers, NDArray[Any]]):
    """`TierUpEnv` several times: ``gymnasium.make_vec("mlgo_gym/TierUp-v0", num_envs=64)``.

    A row that has ended begins anew in the next step, whatever its action there
    (`AutoresetMode.NEXT_STEP`). Its info stands in the infos of the step in which it ends, and all
    rows' in those of `reset`: other steps have none.

    Args:
        num_envs: how many.
        recordings: as `TierUpEnv` takes them.
        threads: likewise.
        baseline: likewise.

    Raises:
        WorkloadError: a recording cannot be used.
        OptionsError: there is none, or a setting has a value that it cannot have.

    >>> envs = TierUpVectorEnv(2)
    >>> observations, infos = envs.reset(seed=1)
    >>> observations.shape, infos["function"].tolist()
    ((2, 19), ['main', 'main'])
    >>> envs.close()
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium has it
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        recordings: Recording | Path | str | Sequence[Recording | Path | str] | None = None,
        *,
        threads: int = 0,
        baseline: str = "ski-rental",
    ) -> None:
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise OptionsError(f"num_envs: expected at least 1, found {num_envs!r}")
        first = TierUpEnv(recordings, threads=threads, baseline=baseline)
        self._envs = [first, *(first.twin() for _ in range(num_envs - 1))]
        self.num_envs = num_envs
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observations, dict[str, Any]]:
        """Begin all rows: with seeds from ``seed`` on, or each with its own of a list.

        Raises:
            OptionsError: no recording has the name in ``options``.
        """
        seeds: list[int | None]
        if isinstance(seed, list):
            seeds = seed
        else:
            seeds = [None if seed is None else seed + row for row in range(self.num_envs)]
        infos: dict[str, Any] = {}
        observations = []
        for row, (env, own) in enumerate(zip(self._envs, seeds, strict=True)):
            observation, info = env.reset(seed=own, options=options)
            observations.append(observation)
            infos = self._add_info(infos, info, row)
        self._over[:] = False
        return np.stack(observations), infos

    def step(
        self, actions: Any
    ) -> tuple[_Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Answer all rows' events; those that have ended begin anew instead.

        Raises:
            OptionsError: an action is none of the space's; no row has moved.
        """
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "biu":
            raise OptionsError(f"actions: expected {self.num_envs} numbers, found {actions!r}")
        if (wrong := given[~self._over & ((given < 0) | (given >= len(DECISIONS)))]).size:
            raise OptionsError(f"action: {_EXPECTED}, found {wrong[0]}")
        infos: dict[str, Any] = {}
        rewards = np.zeros(self.num_envs)
        rows = []
        answers = given.tolist()
        was_over = self._over.tolist()
        for row, env in enumerate(self._envs):
            if was_over[row]:
                replay = env.begin()
            else:
                rewards[row] = env.answer(answers[row])
                replay = env.replay
            is_over = replay.is_over
            if is_over:
                infos = self._add_info(infos, env.info(), row)
            self._over[row] = is_over
            rows.append(observed(replay))
        return seen(rows), rewards, self._over.copy(), np.zeros(self.num_envs, bool), infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are allowed now; shape ``(num_envs, 8)``."""
        return np.stack([env.action_masks() for env in self._envs])
