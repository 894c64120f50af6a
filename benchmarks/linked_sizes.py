"""What a linker keeps of packages, and whether `mlgo_gym.rollout.linked_sizes` says what lld does.

Each package is compiled with sections for every function and datum under LLVM's default and the
models that are named, and linked as a shared library by ``ld.lld``, without and with
``--gc-sections`` and ``--icf=safe``::

    python -m benchmarks.linked_sizes --corpus corpora/libsass --corpus corpora/leveldb

A row has the bytes of one way to link: of LLVM's default, each model's change, and the largest
difference between lld's size and ours. The exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lief

from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.llvm import each, options_of
from mlgo_gym.model import find_model
from mlgo_gym.rollout import linked_sizes
from mlgo_gym.runners import model_policies

WAYS: Final = {
    "text": ("--no-gc-sections",),
    "gc": ("--gc-sections",),
    "icf": ("--gc-sections", "--icf=safe"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="linked_sizes", description=__doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--model", action="append", metavar="NAME", help="default: those shipped")
    parser.add_argument("--linker", default="ld.lld-22")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    options = parser.parse_args(arguments)
    models = options.model or ["inlining-for-size", "inlining-for-size-derived"]
    print("package".ljust(22), "linked".ljust(6), "default".rjust(10), *models, "lld less ours")
    worst = 0
    for folder in options.corpus:
        made = {name: _objects(folder, name, options.jobs) for name in ("", *models)}
        start = time.monotonic()
        ours = {name: linked_sizes(objects) for name, objects in made.items()}
        between = time.monotonic()
        lld = {name: _lld(options.linker, objects) for name, objects in made.items()}
        ratio = (between - start) / (time.monotonic() - between)
        for way in WAYS:
            plain = getattr(ours[""], way)
            changes = (f"{100 * (getattr(ours[each], way) / plain - 1):+.2f} %" for each in models)
            apart = max((lld[each][way] - getattr(ours[each], way) for each in made), key=abs)
            worst = max(worst, abs(apart))
            print(folder.name.ljust(22), way.ljust(6), f"{plain:10,}", *changes, apart)
        print(f"{'':22} ours took {ratio:.2f} of lld's time", flush=True)
    return int(worst > 0)


def _objects(folder: Path, model: str, jobs: int) -> list[bytes]:
    """A package's objects under a model, or LLVM's default for ``""``."""
    corpus = Corpus.load(folder)
    derived = model.endswith("derived")
    problem = InliningForSize(derived=True) if derived else InliningForSize()

    paths = [str(find_model(model))] if model else []
    with model_policies(paths, "release", problem) as policies:
        answers: dict[str, Any] = {}
        if model:
            answers = {"problem": problem, "policy": policies[model]}

        def work(compiler: Compiler, name: str) -> bytes:
            options = options_of(corpus[name]).with_sections()
            made = compiler.compile_module(corpus[name], options, keep_object=True, **answers)
            return made.object_bytes or b""

        return [one.value for one in each(corpus, work, Compiler, jobs=jobs, in_order=True)]


def _lld(linker: str, objects: Sequence[bytes]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / f"{number}.o" for number in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        flags = ["-shared", "-z", "undefs", "--allow-multiple-definition", "--threads=1"]
        found = {}
        for way, chosen in WAYS.items():
            output = Path(place) / "linked.so"
            command = [linker, *flags, *chosen, "-o", str(output), *map(str, files)]
            subprocess.run(command, check=True, capture_output=True)
            found[way] = code_bytes(output)
    return found


def code_bytes(linked: Path) -> int:
    """The bytes of code in a linked file, without the stubs that the linker adds."""
    elf = lief.ELF.parse(str(linked))  # its sections do not keep it alive
    sections = elf.sections if isinstance(elf, lief.ELF.Binary) else ()
    return sum(
        section.size
        for section in sections
        if section.has(lief.ELF.Section.FLAGS.EXECINSTR)
        and not str(section.name).startswith((".plt", ".iplt"))
    )


if __name__ == "__main__":
    sys.exit(main())
