"""What a linker keeps of packages in C++ whose modules a stock clang compiled by a project file.

::

    python -m benchmarks.project_file --corpus corpora/jsonnet --corpus corpora/leveldb

Each module is compiled at -Oz by ``mlgo-cc``: plainly, by the package's project file, by a model,
and by both. ``ld.lld`` links each package as a shared library from which everything is exported:
plainly, with ``--gc-sections``, and with ``--icf=safe`` besides.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.linked_sizes import code_bytes
from mlgo_gym import Corpus

FLAGS = ("-Oz", "-fPIC", "-ffunction-sections", "-fdata-sections", "-faddrsig")
LINKS: Mapping[str, tuple[str, ...]] = {
    "text": (),
    "gc": ("--gc-sections",),
    "icf": ("--gc-sections", "--icf=safe"),
}


def compile_module(corpus: Corpus, folder: Path, settings: Mapping[str, str], name: str) -> Path:
    path = folder / name  # the object that the project file names
    path.parent.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        "mlgo-cc",
        *FLAGS,
        "-w",
        "-c",
        corpus.folder / f"{name}.bc",
        "-o",
        path,
    ]
    subprocess.run(command, check=True, env={**os.environ, "MLGO_STRICT": "1", **settings})
    return path


def link(objects: list[Path], options: tuple[str, ...], lld: str) -> int:
    """Return the bytes of code left; modules of several programs may define a name twice."""
    output = objects[0].with_name("linked.so")
    command: list[str | Path] = [
        lld,
        "-shared",
        "--allow-multiple-definition",
        *options,
        *objects,
        "-o",
        output,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return code_bytes(output)


def measure(folder: Path, model: str, jobs: int, lld: str) -> None:
    corpus = Corpus.load(folder)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        project = Path(scratch) / "project.txt"
        made: list[str | Path] = ["mlgo-gym", "project", "--corpus", folder, "--output", project]
        subprocess.run([*made, "--jobs", str(jobs)], check=True, capture_output=True)
        local, advised = {"MLGO_PROJECT": str(project)}, {"MLGO_INLINING_MODEL": model}
        ways = {"plain": {}, "project file": local, "model": advised, "both": local | advised}
        sizes = {}
        for way, settings in ways.items():
            work = partial(compile_module, corpus, Path(scratch) / way, settings)
            objects = list(pool.map(work, corpus))
            sizes[way] = [link(objects, options, lld) for options in LINKS.values()]
    for (name, _), plain, *others in zip(LINKS.items(), *sizes.values(), strict=True):
        changes = (f"{100 * (size / plain - 1):+.2f} %" for size in others)
        print(
            folder.name.ljust(22),
            name.ljust(6),
            f"{plain:10,}",
            *(f"{each:>13}" for each in changes),
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="project_file", description=__doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--model", default="inlining-for-size", metavar="DIR")
    parser.add_argument("--linker", default="ld.lld-22")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    options = parser.parse_args(arguments)
    ways = (each.rjust(13) for each in ("project file", "model", "both"))
    print("package".ljust(22), "linked", "plain".rjust(10), *ways)
    for folder in options.corpus:
        measure(folder, options.model, options.jobs, options.linker)


if __name__ == "__main__":
    main()
