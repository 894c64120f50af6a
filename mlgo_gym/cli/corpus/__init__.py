"""``mlgo-gym corpus``: build corpora from recipes, look into corpora, verify them."""

from __future__ import annotations

import argparse

from mlgo_gym.cli.corpus import _build as build
from mlgo_gym.cli.corpus import _recipes as recipes
from mlgo_gym.cli.corpus import _split as split
from mlgo_gym.cli.corpus import _split_functions as split_functions
from mlgo_gym.cli.corpus import _stats as stats
from mlgo_gym.cli.corpus import _verify as verify

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own subcommands."""
    parser = commands.add_parser(
        "corpus",
        help="build corpora and look into them",
        description="Corpora are folders of bitcode in the layout of LLVM's mlgo-utils.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for action in (build, recipes, split, split_functions, stats, verify):
        action.add_parser(actions)
