"""The ids of the environments."""

from __future__ import annotations

import gymnasium

__all__ = ["register_envs"]


def register_envs() -> None:
    """Register every environment with Gymnasium; importing `mlgo_gym` does it."""
    gymnasium.register(
        id="mlgo_gym/InliningForSize-v0",
        entry_point="mlgo_gym.envs.inlining_for_size:InliningForSizeEnv",
        vector_entry_point="mlgo_gym.envs.vector:InliningForSizeVectorEnv",
    )
    gymnasium.register(
        id="mlgo_gym/RegallocEviction-v0",
        entry_point="mlgo_gym.envs.regalloc_eviction:RegallocEvictionEnv",
        vector_entry_point="mlgo_gym.envs.vector:RegallocEvictionVectorEnv",
    )
    gymnasium.register(
        id="mlgo_gym/RegallocPriority-v0",
        entry_point="mlgo_gym.envs.regalloc_priority:RegallocPriorityEnv",
        vector_entry_point="mlgo_gym.envs.vector:RegallocPriorityVectorEnv",
    )
