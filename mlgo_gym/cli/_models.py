"""``mlgo-gym models``: the trained models that ship with the package."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from mlgo_gym.cli.show._output import Output

DESCRIPTION = (
    "List the trained models that ship with the package. Commands and mlgo-cc take them by name."
)
EXAMPLE = "mlgo-gym models"


def run(_options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.model import shipped_models

    models = [_described(name, folder) for name, folder in shipped_models().items()]
    for model in models:
        output.print(
            f"{model['name']}: {model['problem']}, {len(model['features'])} features, "
            f"LLVM {model['llvm_version']}"
        )
        output.print(textwrap.indent(textwrap.fill(model["summary"], 76), "    "))
    output.json(models)
    return 0


def _described(name: str, folder: Path) -> dict[str, Any]:
    from mlgo_gym.model import CARD_FILE, read_model_json

    card = read_model_json(folder / CARD_FILE, name)
    keys = ("problem", "llvm_version", "features", "summary")
    return {"name": name, "folder": str(folder), **{key: card[key] for key in keys}}
