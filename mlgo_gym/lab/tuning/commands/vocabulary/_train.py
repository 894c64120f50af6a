"""``mlgo-gym vocabulary train``: from corpora to a vocabulary of IR2Vec."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mlgo_gym.cli import Output, make_folder, writing
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Train one vector for each opcode, type and kind of argument by TransE, from the instructions "
    "of corpora: which follows which, their types, and their arguments. Write the JSON that "
    "--ir2vec takes, and a card beside it. llvm-ir2vec of LLVM 22 reads the modules, in a sandbox."
)
EXAMPLE = "mlgo-gym vocabulary train --corpus corpora --output vocabulary.json"


def add_options(add: shared.Options) -> None:
    add.corpus()
    what = "the vocabulary; its card is NAME.card.json beside it"
    add.file("--output", what, required=True, may_lack_folder=True, files=_files)
    add("--dimension", "N", "numbers in each vector", 75)
    add("--epochs", "N", "how often each different triplet is taken", 300)
    add.seed("everything random")
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.tuning._seed_vocabulary import SeedConfig, train_vocabulary

    config = SeedConfig(options.dimension, options.epochs, options.seed)
    packages = shared.packages_of(options, allow_thinlto=True)
    _, card_path = _files(options.output, options)
    with output.line() as show:
        how = shared.workers_of(options)
        left_out: list[str] = []
        made = train_vocabulary(packages, config, **how, warn=left_out.append, doing=show)
    status = output.warn_of(left_out)
    make_folder(options.output.parent, to_write=options.output)
    with writing(options.output) as file:
        file.write(made.data)
    with writing(card_path) as file:
        file.write(f"{json.dumps(made.card, indent=2)}\n".encode())
    output.print(
        f"{options.output}: {config.dimension} numbers a name, of {made.card['triplets']:,} "
        f"triplets, {made.card['different_triplets']:,} different ones; {card_path} says more"
    )
    output.json({"vocabulary": str(options.output), "card": str(card_path), **made.card})
    return status


def _files(vocabulary: Path, options: argparse.Namespace) -> list[Path]:
    del options
    return [vocabulary, vocabulary.with_suffix(".card.json")]
