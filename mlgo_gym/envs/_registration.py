"""The ids of the environments: one for each problem, whoever's it is."""

from __future__ import annotations

from importlib import metadata

import gymnasium


def register_envs() -> None:
    """Register an environment for each problem, under the name of its entry point's class.

    Nothing of a problem is loaded before an environment of it is made.
    """
    for point in metadata.entry_points(group="mlgo_gym.problems"):
        gymnasium.register(
            id=f"mlgo_gym/{point.attr}-v0",
            entry_point="mlgo_gym.envs._making:make_env",
            vector_entry_point="mlgo_gym.envs._vector:CompilationVectorEnv",
            kwargs={"problem": point.name},
        )
