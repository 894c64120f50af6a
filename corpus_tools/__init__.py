"""Corpora of LLVM bitcode, in mlgo-utils' layout, made from the sources of PyPI packages.

A *recipe* names a source distribution, its SHA-256, the files to compile and the flags;
`build_corpus` fetches, checks, unpacks and compiles it::

    from pathlib import Path
    from corpus_tools import build_corpus, load_recipe

    report = build_corpus(load_recipe("lupa"), Path("corpora/lupa"), jobs=4)

Errors are in `corpus_tools.errors`, all under `CorpusToolsError`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
