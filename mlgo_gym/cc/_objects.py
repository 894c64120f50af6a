"""Objects of a build, as ``mlgo-cc`` makes them with given settings."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from corpus_tools.errors import CompileError
from corpus_tools.object_file import read_bounded
from corpus_tools.scratch import scratch_folder
from mlgo_gym.cc._traces import Build

UNADVISED: Final = (
    "--mlgo-keep-smaller=", "--mlgo-inlining-model=", "--mlgo-regalloc-model=", "--mlgo-project=",
    "--mlgo-traces=",
)  # fmt: skip
"""The settings by which a compilation is clang's own, whatever the environment says."""


def compile_objects(
    build: Build, settings: Sequence[str], *, jobs: int, timeout_s: float
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Compile a build's sources once more, and leave its own objects as they are.

    Args:
        build: the modules and their commands.
        settings: options of ``mlgo-cc``, in place of what the environment says.
        jobs: how many compilers run at once.
        timeout_s: how long one may take, in seconds.

    Returns:
        The objects by their modules' names, and why others are missing.
    """
    names = [name for name in build.corpus if name in build.commands]
    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(partial(_compiled, build, settings, timeout_s), names))
    pairs = list(zip(names, made, strict=True))
    objects = {name: each for name, each in pairs if isinstance(each, bytes)}
    return objects, {name: each for name, each in pairs if isinstance(each, str)}


def _compiled(build: Build, settings: Sequence[str], timeout_s: float, name: str) -> bytes | str:
    """The object, or why there is none."""
    with scratch_folder() as folder:
        # Project files know objects by the ends of their paths.
        target = folder / "made" / build.objects.get(name, "output.o")
        target.parent.mkdir(parents=True, exist_ok=True)
        options = [*UNADVISED, *settings, "-w", "-o", str(target)]
        try:
            build.commands[name].run(build.programs, options, timeout_s)
            return read_bounded(target)
        except CompileError as error:
            return str(error)
