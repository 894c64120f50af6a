"""Rebuilds the sample corpus from its sources: ``make sample-corpus``. Needs clang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from corpus_tools.build import build_from_sources
from corpus_tools.clang import find_clang
from corpus_tools.compilation import Compilation

_FOLDER = Path(__file__).parents[1] / "mlgo_gym" / "corpus" / "sample"


def main() -> int:
    """Compile every source of ``src`` into ``corpus``."""
    root = _FOLDER / "src"
    sources = sorted(path.name for path in root.iterdir() if path.suffix in {".c", ".cpp"})
    compilation = Compilation(
        clang=find_clang(), root=root, flags=("-std=c++17",), jobs=os.cpu_count() or 1
    )
    info = {"license": "Apache-2.0 WITH LLVM-exception"}
    report = build_from_sources(compilation, sources, _FOLDER / "corpus", info=info)
    sys.stdout.write(f"{len(report.modules)} modules in {report.elapsed_s:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
