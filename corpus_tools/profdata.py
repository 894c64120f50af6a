"""Counts of executed code by LLVM's own tools: instrumenting bitcode, merging and using profiles.

Bitcode is instrumented and given its counts before any optimisation, at -O0, so that both see the
same control flow. The tools are those beside clang, as Debian's llvm-22 installs them; each starts
no other program and writes nothing but its output.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from corpus_tools.children import run, run_tool, start_alone
from corpus_tools.clang import DEADLINE_S, Clang, find_clang
from corpus_tools.errors import ToolchainError

LINK_FLAGS: Final = ("-fprofile-generate",)
"""Arguments of the linker's driver for programs with instrumented code."""

MEMORY_BYTES: Final = 4 << 30
LARGEST_OUTPUT_BYTES: Final = 1 << 30

_LIMITS: Final = MappingProxyType(
    {
        resource.RLIMIT_DATA: MEMORY_BYTES,
        resource.RLIMIT_FSIZE: LARGEST_OUTPUT_BYTES,
        resource.RLIMIT_CORE: 0,
    }
)
_MISMATCH: Final = re.compile(r"^warning: .*\(hash mismatch\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Annotated:
    """A module with counts.

    Attributes:
        bitcode: its bytes.
        mismatches: how many functions the profile knows with another control flow.
    """

    bitcode: bytes
    mismatches: int


@dataclass(frozen=True, slots=True)
class ProfileTools:
    """The tools of one LLVM.

    Attributes:
        clang: instruments and links.
        profdata: merges, prints and compares profiles.
        opt: puts counts into bitcode.
    """

    clang: Clang
    profdata: Path
    opt: Path

    @classmethod
    def find(cls, clang: Clang | None = None) -> Self:
        """The tools beside a clang, or those of its version on PATH.

        Raises:
            ToolchainError: one is not there.
        """
        clang = clang or find_clang()
        return cls(clang, _beside(clang, "llvm-profdata"), _beside(clang, "opt"))

    def check_runtime(self) -> Path:
        """The library of clang's that instrumented programs are linked with.

        Raises:
            ToolchainError: it is not there.
        """
        folder, _ = _run(self.clang.path, ["-print-resource-dir"], "clang")
        resources = Path(os.fsdecode(bytes(folder).strip()))
        if found := sorted(resources.rglob(f"libclang_rt.profile*{platform.machine()}*.a")):
            return found[0]
        if found := sorted(resources.rglob("libclang_rt.profile.a")):
            return found[0]
        raise ToolchainError(
            f"libclang_rt.profile: expected that of clang below {resources}, found none; on Debian "
            f"or Ubuntu: apt-get install libclang-rt-{self.clang.version[0]}-dev"
        )

    def instrument(self, bitcode: Path, module: str, *, atomic: bool = False) -> bytes:
        """The object of a module, unoptimised, with a counter on enough edges to know them all.

        Args:
            bitcode: the module's file.
            module: what it is called in errors.
            atomic: threads count exactly, and take longer.

        Raises:
            CompileError: clang failed or ran past its deadline.
        """
        flags = ["-fprofile-generate", *["-fprofile-update=atomic"][: int(atomic)]]
        arguments = ["--no-default-config", "-fintegrated-cc1", "-fno-crash-diagnostics", "-w"]
        arguments += ["-O0", "-fPIC", *flags, "-c", "-o", "-", "-x", "ir", str(bitcode.absolute())]
        return _run(self.clang.path, arguments, module)[0]

    def merge(self, profiles: Sequence[Path]) -> bytes:
        """One profile of several, raw ones or merged ones: the sum of their counts.

        Raises:
            CompileError: llvm-profdata failed.
        """
        arguments = ["merge", "-o", "-", *(str(each.absolute()) for each in profiles)]
        return _run(self.profdata, arguments, "profile")[0]

    def annotate(self, bitcode: Path, profile: Path, module: str) -> Annotated:
        """A module with a profile's counts, and nothing else changed.

        Raises:
            CompileError: opt failed.
        """
        made, said = _run(
            self.opt,
            [
                "-passes=pgo-instr-use",
                f"-pgo-test-profile-file={profile.absolute()}",
                "-no-pgo-warn-mismatch-comdat-weak=false",
                "-preserve-bc-uselistorder",
                *("-o", "-", str(bitcode.absolute())),
            ],
            module,
        )
        return Annotated(made, len(_MISMATCH.findall(said)))

    def show(self, profile: Path, *options: str) -> str:
        """The text that ``llvm-profdata show`` prints.

        Raises:
            CompileError: llvm-profdata failed.
        """
        arguments = ["show", *options, str(profile.absolute())]
        return _run(self.profdata, arguments, "profile")[0].decode("utf-8", "replace")


def _beside(clang: Clang, name: str) -> Path:
    major = clang.version[0]
    beside = clang.path.resolve().with_name(name)
    if beside.is_file():
        return beside
    if found := shutil.which(f"{name}-{major}"):
        return Path(found).absolute()
    raise ToolchainError(
        f"{name}: expected that of clang {major} beside it or as {name}-{major}, found none; on "
        f"Debian or Ubuntu: apt-get install llvm-{major}"
    )


def _run(program: Path, arguments: Sequence[str], subject: str) -> tuple[bytes, str]:
    """A tool's standard output, and standard error."""
    # A file: of a pipe, llvm-profdata cannot go back to fill in what stands at the start.
    with tempfile.TemporaryFile() as output:
        start = partial(
            run,
            [str(program), *arguments],
            timeout=DEADLINE_S,
            limits=_LIMITS,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
            stdout=output,
            encoding="utf-8",
            errors="replace",
        )
        done = run_tool(partial(start_alone, program, start), program, subject)
        output.seek(0)
        return output.read(), done.stderr
