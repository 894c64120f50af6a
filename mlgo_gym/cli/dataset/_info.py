"""``mlgo-gym dataset info``: what is in datasets."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from corpus_tools.printable import printable
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._values import place
from mlgo_gym.cli.show._grid import Grid, amount
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.datasets import Dataset

DESCRIPTION = (
    "Read the metadata of datasets. The exit status is 1 where they were made with different "
    "versions of LLVM or different options."
)
EXAMPLE = "mlgo-gym dataset info sets/default sets/random"


def add_options(add: shared.Options) -> None:
    add("datasets", "DIR", "a dataset, also as s3://BUCKET/KEY", nargs="+", type=place)


def run(options: argparse.Namespace, output: Output) -> int:
    from rich.table import Table

    from mlgo_gym.datasets import Dataset

    dataset = Dataset.open(*options.datasets, allow_mixed=True)
    record = _as_record(dataset)
    table = Table("what", "found")
    for key, value in record.items():
        if key not in {"packages", "differences"}:
            table.add_row(key.replace("_", " "), printable(_shown(value)))
    rows = [[name, *map(amount, counts.values())] for name, counts in record["packages"].items()]
    output.print(table, Grid(("package", "modules", "decisions"), rows, folds=True))
    output.json(record)
    return output.warn_of(f"mixed: {difference}" for difference in dataset.differences)


def _as_record(dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    from mlgo_gym.datasets import LABELS

    header = dataset.header
    modules = [each for each in dataset.modules if each.module or each.decisions]
    packages: dict[str, dict[str, int]] = {}
    for entry in modules:
        counts = packages.setdefault(entry.package, {"modules": 0, "decisions": 0})
        counts["modules"] += 1
        counts["decisions"] += entry.decisions
    labelled: Counter[str] = Counter()
    for batch in dataset.batches(columns=LABELS):
        labelled.update({name: int(np.isfinite(batch[name]).sum()) for name in LABELS})
    return {
        "problem": header.layout.name,
        "settings": header.settings and dict(header.settings),
        "llvm_version": header.llvm_version,
        "llvmlite_version": header.llvmlite_version,
        "forced_level": header.opt_level or "none",
        "levels": sorted({entry.opt_level or "unknown" for entry in modules}),
        "policies": sorted({entry.policy for entry in modules}),
        "modules": len(modules),
        "decisions": dataset.row_count,
        "labelled": dict(labelled),
        "parts": len(dataset.parts),
        "size_bytes": sum(part.size_bytes for part in dataset.parts),
        "packages": packages,
        "differences": list(dataset.differences),
    }


def _shown(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key}: {_shown(each)}" for key, each in value.items())
        case list():
            return ", ".join(map(_shown, value))
        case int() | float():
            return f"{value:,}"
        case _:
            return "unknown" if value is None else str(value)
