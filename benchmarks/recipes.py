"""Corpora that the measurements use: built once from their recipes, into ``build/corpora``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from corpus_tools import build_corpus, load_recipe
from mlgo_gym import Corpus

FOLDER = Path("build/corpora")


def built(name: str, opt_level: str = "Oz", *, whole_program: bool = False) -> Corpus:
    """The corpus of a recipe; ``whole_program`` takes Lua as its one large file instead."""
    recipe = load_recipe(name)
    if whole_program:
        recipe = replace(recipe, globs=("third-party/lua54/onelua.c",), exclude=(), modules=1)
    output = FOLDER / f"{name}-{opt_level}{'-whole' if whole_program else ''}"
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        build_corpus(recipe, output, opt_level=opt_level, jobs=os.cpu_count() or 1)
    return Corpus.load(output)
