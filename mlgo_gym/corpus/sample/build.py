"""Rebuilds the sample corpus from its sources: ``make sample-corpus``. Needs clang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from corpus_tools.build import build_from_sources

_FOLDER = Path(__file__).parent


def main() -> int:
    """Compile every source of ``src`` into ``corpus``."""
    root = _FOLDER / "src"
    sources = sorted(path.name for path in root.iterdir() if path.suffix in {".c", ".cpp"})
    report = build_from_sources(
        root,
        sources,
        _FOLDER / "corpus",
        flags=["-std=c++17"],
        jobs=os.cpu_count() or 1,
        info={"license": "Apache-2.0 WITH LLVM-exception"},
    )
    sys.stdout.write(f"{len(report.modules)} modules in {report.elapsed_s:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
