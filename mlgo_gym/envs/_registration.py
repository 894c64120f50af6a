"""The ids of the environments."""

from __future__ import annotations

import gymnasium


def register_envs() -> None:
    """Register every environment with Gymnasium; importing `mlgo_gym` does it."""
    gymnasium.register(
        id="mlgo_gym/InliningForSize-v0",
        entry_point="mlgo_gym.envs._inlining_for_size:InliningForSizeEnv",
        vector_entry_point="mlgo_gym.envs._vector:InliningForSizeVectorEnv",
    )
    gymnasium.register(
        id="mlgo_gym/RegallocEviction-v0",
        entry_point="mlgo_gym.envs._regalloc_eviction:RegallocEvictionEnv",
        vector_entry_point="mlgo_gym.envs._vector:RegallocEvictionVectorEnv",
    )
    gymnasium.register(
        id="mlgo_gym/RegallocPriority-v0",
        entry_point="mlgo_gym.envs._regalloc_priority:RegallocPriorityEnv",
        vector_entry_point="mlgo_gym.envs._vector:RegallocPriorityVectorEnv",
    )
