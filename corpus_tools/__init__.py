"""Corpora of LLVM bitcode, in mlgo-utils' layout, made from the sources of PyPI packages.

A *recipe* names a source distribution, its SHA-256, the files to compile and the flags;
`build_corpus` fetches, checks, unpacks and compiles it::

    from pathlib import Path
    from corpus_tools import build_corpus, load_recipe

    report = build_corpus(load_recipe("lupa"), Path("corpora/lupa"), jobs=4)

Errors are in `corpus_tools.errors`, all under `CorpusToolsError`.
"""

from corpus_tools.build import BuildReport, build_corpus, build_from_sources
from corpus_tools.clang import Clang, find_clang
from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import Manifest, encode_command, read_command
from corpus_tools.recipes import Recipe, available_recipes, load_recipe

__all__ = [
    "BuildReport",
    "Clang",
    "CorpusToolsError",
    "Manifest",
    "Recipe",
    "available_recipes",
    "build_corpus",
    "build_from_sources",
    "encode_command",
    "find_clang",
    "load_recipe",
    "read_command",
]
