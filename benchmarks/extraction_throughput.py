"""How fast objects become a corpus: mlgo-extract-corpus beside mlgo-utils with llvm-objcopy.

The objects are those of Lua and libsass at -Oz with their bitcode embedded, copied until there are
enough; both tools run as processes with the same number of workers, in turns, into fresh folders.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measuring import timed
from benchmarks.recipes import built
from corpus_tools import find_clang, read_command

RECIPES = ("lupa", "libsass")


def run(count: int, rounds: int, workers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mlgo_gym-") as name:
        folder = Path(name)
        size = make_objects(folder / "objects", count)
        common = ["--input", str(folder / "objects"), "--input_type", "directory"]
        common += ["--num_workers", str(workers)]
        objcopy = shutil.which("llvm-objcopy-22") or sys.exit("needs llvm-objcopy-22")
        tools = {
            "mlgo-utils": ["mlgo.corpus.extract_ir", "--llvm_objcopy_path", objcopy],
            "mlgo-extract-corpus": ["corpus_tools.extraction.command"],
        }
        times: dict[str, list[float]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool, command in tools.items():
                with tempfile.TemporaryDirectory(dir=folder) as output:
                    run_tool = partial(
                        subprocess.run,
                        [sys.executable, "-m", *command, *common, "--output_dir", output],
                        capture_output=True,
                        check=True,
                    )
                    times[tool].append(timed(run_tool)[0])
    print(f"{count} objects, {size / 1e6:.0f} MB, {workers} workers, {rounds} rounds")
    for tool, seconds in times.items():
        print(f"{tool:20} {median(seconds):7.2f} s   {count / median(seconds):7.0f} objects/s")
    ratio = median(times["mlgo-utils"]) / median(times["mlgo-extract-corpus"])
    print(f"ratio {ratio:.1f}")


def make_objects(folder: Path, count: int) -> int:
    """Write this many objects; return their size in bytes."""
    clang = find_clang()
    originals = folder.with_name("originals")
    originals.mkdir()
    for corpus in map(built, RECIPES):
        for module in corpus:
            command = read_command(corpus.folder / f"{module}.cmd")
            output = originals / f"{module.replace('/', '_')}.o"
            source = (corpus.folder / f"{module}.bc").absolute()
            arguments = [
                *command,
                "-fembed-bitcode=all",
                "-x",
                "ir",
                str(source),
                "-o",
                str(output),
            ]
            subprocess.run([str(clang.path), *arguments], check=True)
    objects = sorted(originals.iterdir())
    size = 0
    for number in range(count):
        source = objects[number % len(objects)]
        target = folder / str(number // len(objects)) / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        size += target.stat().st_size
    return size
