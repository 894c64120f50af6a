"""A contract for import-linter: packages import each other through their doors.

A package of `mlgo_gym`, or a wing such as `mlgo_gym.lab.tuning`, may import another one's
``__init__`` alone, never a module whose name begins with an underscore.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class DoorsContract(Contract):
    """No import reaches a private module of another package."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the imports of other packages' private modules."""
        del verbose
        found = sorted(
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if _is_private(imported) and _package(importer) != _package(imported)
        )
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import, and the one that is allowed."""
        for importer, imported in check.metadata["found"]:
            allowed = _package(imported)
            output.print_error(f"{importer} imports {imported}: expected {allowed} alone")


def _package(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["lab"] else 2])


def _is_private(module: str) -> bool:
    is_ours = module.startswith("mlgo_gym.")
    return is_ours and any(part.startswith("_") for part in module.split(".")[2:])
