"""The ids of the environments: one for each problem, whoever's it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def register_envs() -> None:
    """Register an environment for each problem once Gymnasium is imported, so that nobody waits.

    Its id has the name of the entry point's class; nothing is loaded before one is made.
    """
    if "gymnasium" in sys.modules:
        _register(sys.modules["gymnasium"])
    else:
        sys.meta_path.insert(0, _Gymnasium())


def _register(gymnasium: Any) -> None:
    from importlib import metadata  # noqa: PLC0415 (slow to import)

    for point in metadata.entry_points(group="mlgo_gym.problems"):
        gymnasium.register(
            id=f"mlgo_gym/{point.attr}-v0",
            entry_point="mlgo_gym.envs._making:make_env",
            vector_entry_point="mlgo_gym.envs._vector:CompilationVectorEnv",
            kwargs={"problem": point.name},
        )


class _Gymnasium:
    """Finds Gymnasium where the others do, and registers when it has been loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        others = [each for each in sys.meta_path if each is not self]
        found = (each.find_spec(name, path, target) for each in others)
        spec = next(filter(None, found), None)
        if spec is not None and (loader := spec.loader) is not None:
            load = loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _register(module)

            loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
