"""``mlgo-gym distill``: from a model to a rule of a few lines that people can read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_gym.base import TrainingError
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared
from mlgo_gym.model import CARD_FILE

if TYPE_CHECKING:
    from mlgo_gym.cli import Grid
    from mlgo_gym.training import Validation

DESCRIPTION = (
    "Distil an inlining model into a rule of a few lines, and write it as a model directory, with "
    "the rule as Python (rule.py) and as a C++ expression over LLVM's features (rule.h). It is "
    "chosen by the linked text of held-out modules."
)
EXAMPLE = "mlgo-gym distill --model run/model --lines 40 --output rule"


def add_options(add: shared.Options) -> None:
    add.model("the model to distil", modes=(), required=True)
    add.corpus()
    what = "a package to choose the rule on, not to fit it to; repeat for more (default: every "
    add("--hold-out", "NAME", what + "fourth module)", many=True)
    what = "labels of 'train advantage' to use as well; repeat for more (default: those beside "
    add("--labels", "DIR", what + "the model in its run)", many=True)
    add("--lines", "N", "the most lines of rule.py", 40)
    add("--rounds", "N", "record calls N times: first under the model, then under rules", 2)
    add.output("folder for the rule, a model directory", replaced_kind=CARD_FILE)
    add.seed("everything random")
    add.settings()
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.problems import InliningForSize
    from mlgo_gym.runners import problem_of_models
    from mlgo_gym.training import Data, imported, provenance

    model = Path(options.model)
    kind = problem_of_models([options.model])
    if not issubclass(kind, InliningForSize):
        raise TrainingError(
            f"distill: expected a model for {InliningForSize.name}, whose decisions are about the "
            f"numbers of one call, found one for {kind.name}"
        )
    problem = shared.make_problem(kind, options)
    distillation = imported("rule_distillation", "mlgo_gym.lab.tuning")
    labels = options.labels or _labels_beside(model)
    config = distillation.RuleConfig(
        options.lines, tuple(map(str, labels)), options.rounds, options.seed
    )
    kept, held_out = shared.packages_of(options).hold_out(options.hold_out)
    how = shared.workers_of(options)
    data = Data(kept, held_out, warn=lambda failure: output.warn(str(failure)), **how)
    card = provenance(kept, held_out)
    found = distillation.distill(model, problem, config, data, output=options.output, card=card)
    text = shared.small_file(options.output / "rule.py").decode()
    output.verbatim(text)
    output.print(_grid(found.network, found.found))
    output.json(
        {
            "output": str(options.output),
            "rule": text,
            "lines": text.count("\n"),
            "decisions": found.decisions,
            "labelled_decisions": found.labelled,
            "network": found.network.to_json(),
            "validation": found.found.to_json(),
        }
    )
    return 0


def _labels_beside(model: Path) -> list[Path]:
    """Return the labels that a run of ``train advantage`` has learned its model from."""
    folder = model.resolve().parent / "labels"
    return [folder] if folder.is_dir() else []


def _grid(network: Validation, rule: Validation) -> Grid:
    from mlgo_gym.cli import Grid

    rows = [[name, *_cells(found)] for name, found in (("network", network), ("rule", rule))]
    title = f"{rule.modules} held-out modules, against LLVM's own heuristic"
    return Grid((title, "text", "linked text", "modules worse by more than 1 %"), rows)


def _cells(found: Validation) -> list[Any]:
    changes = [f"{found.changes.get(key, 0.0):+.2%}" for key in ("text", "linked_text")]
    return [*changes, str(found.worse)]
