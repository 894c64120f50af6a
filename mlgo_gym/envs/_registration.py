"""The ids of the environments: one for each problem, and those that entry points name."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

import gymnasium

_VECTORS: Final = "mlgo_gym.vector_environments"


def register_envs() -> None:
    """Register an environment for each problem, under the name of its entry point's class.

    Entry points of ``mlgo_gym.environments`` add others under their own names. Nothing of either
    is loaded before an environment of it is made. What is registered already is left alone.
    """
    for point in metadata.entry_points(group="mlgo_gym.problems"):
        _register(
            id=f"mlgo_gym/{point.attr}-v0",
            entry_point="mlgo_gym.envs._making:make_env",
            vector_entry_point="mlgo_gym.envs._vector:CompilationVectorEnv",
            kwargs={"problem": point.name},
        )
    vectors = {each.name: each.value for each in metadata.entry_points(group=_VECTORS)}
    for point in metadata.entry_points(group="mlgo_gym.environments"):
        _register(
            id=f"mlgo_gym/{point.name}",
            entry_point=point.value,
            vector_entry_point=vectors.get(point.name),
        )


def _register(**spec: Any) -> None:
    if spec["id"] not in gymnasium.registry:
        gymnasium.register(**spec)
