"""What a scenario has written, as it is compared with what is written where nothing fails."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import pyarrow.parquet

Files = dict[str, bytes]

_NUMBER: Final = re.compile(r'_\d+|"\d+"')
"""TensorFlow numbers functions and resources through all that a process does."""


def every_file(folder: Path) -> Files:
    """The bytes of all files in ``out``, by name."""
    out = folder / "out"
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }


def state_of(*folders: Path) -> str:
    """What stands for all that a command finds: names, kinds, permissions, links, bytes.

    Of times only whether a file has the oldest there is, which programs of a cache have.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            about = path.lstat()
            facts = (about.st_mode, about.st_nlink, about.st_mtime_ns == 0)
            holds = path.read_bytes() if path.is_file() else b""
            target = path.readlink() if path.is_symlink() else ""
            digest.update(repr((str(path), facts, str(target), holds)).encode())
    return digest.hexdigest()


def training_run(folder: Path) -> Files:
    """The same of a run that may have gone on: its decisions as rows, in any number of parts.

    The graph is without TensorFlow's numbers, and in any order, which comes of them.
    """
    from tensorflow.core.protobuf import saved_model_pb2  # noqa: PLC0415 - one scenario's alone

    parts = folder / "out" / "run" / "decisions"
    found = every_file(folder)
    rows = pyarrow.parquet.read_table(parts).to_pylist()
    graph = str(saved_model_pb2.SavedModel.FromString(found.pop("run/model/saved_model.pb")))
    lines = (_NUMBER.sub("", line) for line in graph.splitlines())
    kept = {name: data for name, data in found.items() if "decisions/part-" not in name}
    return kept | {
        "graph": "\n".join(sorted(lines)).encode(),
        "decisions": repr(sorted(rows, key=lambda row: str(row["module"]))).encode(),
    }
