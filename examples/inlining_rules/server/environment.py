"""The environment: tools to look at modules, and one that scores a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State

from mlgo_gym import SAMPLE_CORPUS, Corpus

from . import rules

TRIES = 20
TIMEOUT_S = 600.0


class InliningRules(MCPEnvironment):  # type: ignore[misc]
    """An episode is 20 rules; the reward of each is the mean share of code that it saves."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, corpus: str | Path = SAMPLE_CORPUS) -> None:
        self._corpus = Corpus.load(corpus)
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._tries = 0
        self._reward: float | None = None
        server = FastMCP("inlining-rules")
        for tool in (self.modules, self.features, self.read_ir, self.score):
            server.tool()(tool)
        super().__init__(server)

    def modules(self) -> dict[str, int]:
        """The modules that rules are scored on, and the size of each one's bitcode in bytes."""
        return {name: self._corpus.size_bytes(name) for name in self._corpus}

    def features(self) -> dict[str, str]:
        """What LLVM tells of a call: names that a rule may use, and what they mean."""
        return rules.FEATURES

    def read_ir(self, module: str, first: int = 0, lines: int = 200) -> str:
        """Some lines of a module's LLVM IR, before inlining."""
        return rules.ir(self._corpus, module, first, lines)

    def score(self, rule: str) -> dict[str, Any]:
        """Compile all modules under a rule, such as "cost_estimate < 5 and callee_users < 3".

        The rule is one expression of Python; where it is true, LLVM inlines the call. Returned are
        the mean share of code saved against LLVM's own heuristic at -Oz (the reward), and the bytes
        of each module.
        """
        if self._tries >= TRIES:
            return {"error": f"expected {TRIES} rules in an episode at most; reset"}
        self._tries += 1
        try:
            self._reward, found = rules.score(self._corpus, rule)
        except ValueError as error:
            self._reward = -1.0
            return {"error": f"rule: {error}"}
        return {"saved": self._reward, "modules": found, "tries_left": TRIES - self._tries}

    def reset(
        self,
        seed: int | None = None,  # noqa: ARG002 - nothing is drawn
        episode_id: str | None = None,
        **_: Any,
    ) -> Observation:
        """Start anew with all tries."""
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._tries = 0
        return Observation(done=False, reward=0.0, metadata={"tries": TRIES})

    def step(self, action: Action, timeout_s: float | None = TIMEOUT_S, **more: Any) -> Observation:
        """Call a tool; only `score` has a reward."""
        self._begin_step()
        return self._rewarded(super().step(action, timeout_s=timeout_s or TIMEOUT_S, **more))

    async def step_async(
        self, action: Action, timeout_s: float | None = TIMEOUT_S, **more: Any
    ) -> Observation:
        """As `step`, for servers."""
        self._begin_step()
        observation = await super().step_async(action, timeout_s=timeout_s or TIMEOUT_S, **more)
        return self._rewarded(observation)

    @property
    def state(self) -> State:
        """The episode, and how many steps it has."""
        return self._state

    def _begin_step(self) -> None:
        self._state.step_count += 1
        self._reward = None

    def _rewarded(self, observation: Observation) -> Observation:
        if self._reward is not None:
            observation.reward = self._reward
        observation.done = self._tries >= TRIES
        return observation

    def _step_impl(self, action: Action, **_: Any) -> Observation:
        return Observation(metadata={"error": f"expected a call of a tool, found {action!r}"})
