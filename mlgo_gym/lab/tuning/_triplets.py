"""Triplets: which opcode follows which, has which type and takes what, as LLVM's own tool says it.

``llvm-ir2vec triplets`` (``llvm/tools/llvm-ir2vec`` in LLVM's tree) prints, for a module::

    MAX_RELATION=3
    HEAD TAB TAIL TAB RELATION
    ...

where relation 0 leads from an opcode to its type, 1 to the opcode that comes next, and 2, 3, ... to
the kinds of its first argument, its second, ...; ``llvm-ir2vec entities`` prints which number is
which name of a vocabulary.

Modules may be a stranger's. The tool gets their bytes in a pipe, behind the fence of clang's
driver: it can start nothing and write nothing but its answer. That, its memory and its time are
bounded.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

from corpus_tools.bitcode import is_bitcode
from corpus_tools.children import Guarded, bound, start_alone
from mlgo_gym.base import EnvironmentSetupError, ModuleError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import LLVM_MAJOR, Limits, lack_of_memory, peak_bytes

MAX_OUTPUT_BYTES: Final = 1 << 28
"""The longest answer of the tool; a million instructions are about 40 MiB."""
LAST_RELATION: Final = 33
"""The relation of the 32nd argument and of all behind it: a call may have any number."""
DEADLINE_S: Final = 60.0
"""The time in which the tool has to say what it is."""
CANDIDATES: Final = (f"llvm-ir2vec-{LLVM_MAJOR}", "llvm-ir2vec")

_VERSION: Final = re.compile(r"LLVM version (\d+)(\.[\d.]+)")
_CHUNK_BYTES: Final = 1 << 20
_WORDS: Final = 2000
_SET_VARIABLES: Final = MappingProxyType({"LC_ALL": "C", "LLVM_DISABLE_SYMBOLIZATION": "1"})

Triplet = tuple[int, int, int]
"""Head, tail and relation."""


@dataclass(frozen=True, slots=True)
class TripletTool:
    """LLVM's ``llvm-ir2vec``: where it is, its LLVM's version, and which number is which name."""

    path: Path
    version: str
    names: Mapping[int, str]

    @classmethod
    def find(cls) -> TripletTool:
        """The first of `CANDIDATES` on PATH.

        Raises:
            EnvironmentSetupError: there is none, or it is another LLVM's.
        """
        program = next(filter(None, map(shutil.which, CANDIDATES)), None)
        if program is None:
            raise _missing("none")
        version = _VERSION.search(_said(program, "--version"))
        if version is None or int(version[1]) != LLVM_MAJOR:
            raise _missing(f"{program} of {version[0] if version else 'no known LLVM'}")
        lines = (line.split("\t") for line in _said(program, "entities").splitlines()[1:])
        names = {int(number): name for name, number in lines}
        return cls(Path(program), version[1] + version[2], MappingProxyType(names))


def _missing(found: str) -> EnvironmentSetupError:
    return EnvironmentSetupError(
        f"vocabulary: expected llvm-ir2vec of LLVM {LLVM_MAJOR} on PATH, found {found}; on Debian "
        f"or Ubuntu: apt-get install llvm-{LLVM_MAJOR}"
    )


def _said(program: str, argument: str) -> str:
    try:
        return subprocess.run(
            [program, argument], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise _missing(f"{program}, which does not run: {error}") from error


class TripletRun:
    """Runs the tool on one module after the other: what a worker keeps."""

    def __init__(self, program: Path, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._limits = Limits(peak_bytes(None))
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def interrupt(self) -> None:
        """End what is under way."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Nothing is kept."""

    def count(self, module: Module) -> Counter[Triplet]:
        """The triplets of a module, and how often each is there.

        Raises:
            ModuleError: the tool refuses the module, or needs more than it may take.
        """
        if not is_bitcode(module.data):
            raise ModuleError(module.name, "expected bitcode, found something else")
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as words:
            status = self._run(module, output, words)
            if status:
                words.seek(0)
                text = words.read(_WORDS).decode("utf-8", "replace").strip()
                raise ModuleError(module.name, self._reason(status, text))
            output.seek(0)
            return _counted(output, module.name)

    def _run(self, module: Module, output: IO[bytes], words: IO[bytes]) -> int:
        def start() -> subprocess.Popen[bytes]:
            return Guarded(
                [str(self._program), "triplets", "-"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=words,
                env={**os.environ, **_SET_VARIABLES},
            )

        with start_alone(self._program, start) as process:
            self._process = process
            try:
                bound(process.pid, self._bounds())
                if not self._is_over:
                    process.communicate(module.data, self._timeout_s)
            except subprocess.TimeoutExpired as error:
                reason = f"not done within {self._timeout_s:g} s; --timeout lifts the limit"
                raise ModuleError(module.name, f"llvm-ir2vec: {reason}") from error
            finally:
                process.kill()
                self._process = None
        return process.returncode

    def _bounds(self) -> dict[int, int]:
        """What it may take: it reads what it is not to trust."""
        return {
            resource.RLIMIT_DATA: int(self._limits.peak_bytes),
            resource.RLIMIT_FSIZE: MAX_OUTPUT_BYTES,
            resource.RLIMIT_CORE: 0,
        }

    def _reason(self, status: int, words: str) -> str:
        if status == -signal.SIGXFSZ:
            most = f"{MAX_OUTPUT_BYTES} bytes"
            return f"llvm-ir2vec: expected at most {most} of triplets, found more"
        if lack := lack_of_memory(words, self._limits):
            return f"llvm-ir2vec: {lack}"
        first = words.partition("\n")[0]  # of a crash, what follows has addresses
        return f"llvm-ir2vec ended with status {status}: {first}"


def _counted(file: IO[bytes], module: str) -> Counter[Triplet]:
    counts: Counter[Triplet] = Counter()
    file.readline()  # the number of relations
    while lines := file.readlines(_CHUNK_BYTES):
        for line, count in Counter(lines).items():
            try:
                head, tail, relation = map(int, line.split(b"\t"))
            except ValueError as error:
                raise ModuleError(module, f"llvm-ir2vec: no triplet: {line[:40]!r}") from error
            counts[head, tail, min(relation, LAST_RELATION)] += count
    return counts
