"""Running clang: finding one, and compiling one source to bitcode and to its ``-cc1`` command.

Sources are named relative to the root of their package and clang runs there, so that neither the
bitcode nor the command depends on where the package was unpacked. What else could leak into them
from the machine (configuration files, ``CPATH``, the time of day) is switched off.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from corpus_tools.allowed.driver import allowed_of_driver
from corpus_tools.cc1 import embedded_command, parse_driver_output, portable_command
from corpus_tools.children import run, run_tool, start_alone
from corpus_tools.errors import CompileError, ToolchainError
from corpus_tools.scratch import scratch_folder

MINIMUM_VERSION = 19
CANDIDATES = ("clang", "clang-22", "clang-21", "clang-20", "clang-19")
OPT_LEVELS = ("O2", "O3", "Os", "Oz")
DEADLINE_S = 300.0

_VERSION = re.compile(r"clang version (\d+)\.(\d+)\.(\d+)")
# Variables by which clang takes include folders or arguments from whoever calls it.
_DROPPED_VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("OBJC_INCLUDE_PATH", "COMPILER_PATH", "CLANG_CONFIG_FILE_SYSTEM_DIR"),
    *("CLANG_CONFIG_FILE_USER_DIR", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"),
)
_SET_VARIABLES = {
    "LC_ALL": "C",
    # 1980-01-01, the oldest date that every archive format can hold: what __DATE__ says.
    "SOURCE_DATE_EPOCH": "315532800",
    # A clang that crashes runs no llvm-symbolizer.
    "LLVM_DISABLE_SYMBOLIZATION": "1",
}
# In one process, so that killing it at its deadline kills all of it; no files left by a crash.
_PROCESS_FLAGS = ("--no-default-config", "-fintegrated-cc1", "-fno-crash-diagnostics")
_BITCODE_FLAGS = ("-Xclang", "-disable-llvm-optzns", "-emit-llvm")


@dataclass(frozen=True, slots=True)
class Clang:
    """A clang that will do.

    Attributes:
        path: the program.
        version: major, minor and patch level.
        banner: the first line of ``--version``, which also names the vendor.

    Raises:
        ToolchainError: the version is below MINIMUM_VERSION.
    """

    path: Path
    version: tuple[int, int, int]
    banner: str

    def __post_init__(self) -> None:
        if self.version[0] < MINIMUM_VERSION:
            found = ".".join(map(str, self.version))
            raise ToolchainError(f"{self.path}: expected clang >= {MINIMUM_VERSION}, found {found}")


def find_clang(path: Path | str | None = None) -> Clang:
    """Find a clang of at least MINIMUM_VERSION.

    Args:
        path: the program to take; by default the first of CANDIDATES on PATH that will do.

    Raises:
        ToolchainError: there is none, or what ``path`` names is not a clang or too old.
    """
    if path is None:
        return _first_candidate()
    if found := shutil.which(str(path)):
        return _ask(found)
    raise _no_clang([str(path)])


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source, and how clang's driver compiles it.

    Attributes:
        clang: the compiler.
        name: the file, relative to ``root``.
        root: the folder that clang runs in.
        flags: further flags of the driver; relative paths in them start at ``root``.
        opt_level: one of OPT_LEVELS: the attributes that clang gives functions depend on it.
    """

    clang: Clang
    name: str
    root: Path
    flags: Sequence[str] = ()
    opt_level: str = "Oz"

    def compile(self, output: Path, deadline_s: float = DEADLINE_S) -> None:
        """Compile it to bitcode as it is before LLVM's optimisations.

        Args:
            output: the bitcode file to write; its folder must exist.
            deadline_s: seconds after which clang is killed.

        Raises:
            CompileError: clang failed or ran past the deadline.
        """
        self._run([*_BITCODE_FLAGS, "-o", str(output.absolute())], deadline_s)

    def driver_command(self) -> tuple[str, ...]:
        """Return the ``-cc1`` command by which clang would compile it to object code.

        The result is what clang's ``-fembed-bitcode`` writes to ``.llvmcmd``.

        Raises:
            CompileError: clang failed, ran past the deadline, or would not run exactly one
                ``-cc1``.
        """
        commands = parse_driver_output(self._run(["-###", "-o", "output.o"], DEADLINE_S))
        if len(commands) != 1:
            raise CompileError(self.name, f"expected one -cc1 command, found {len(commands)}")
        return embedded_command(commands[0], self.name)

    def corpus_command(self) -> tuple[str, ...]:
        """Return the ``-cc1`` command that a corpus keeps: it holds no path.

        Raises:
            CompileError: as `driver_command`, or an argument that must be kept names a path.
        """
        command = portable_command(self.driver_command())
        for argument in command:
            if "/" in argument:
                problem = f"expected a command without paths, found {argument!r}"
                raise CompileError(self.name, problem)
        return command

    def _run(self, arguments: Sequence[str], deadline_s: float) -> str:
        own = [*_PROCESS_FLAGS, "-c", "-w", f"-{self.opt_level}", "-fPIC"]
        own += ["-ffile-compilation-dir=.", *self.flags, "--", self.name]
        return run_clang(
            self.clang, [*arguments, *own], source=self.name, root=self.root, deadline_s=deadline_s
        )


def dry_run(clang: Clang, arguments: Sequence[str], directory: Path) -> str:
    """Return what clang's driver prints of the commands that it would run (``-###``).

    Args:
        clang: the compiler.
        arguments: of the driver, from anywhere: it is given what `corpus_tools.allowed` lists.
        directory: where it runs.

    Raises:
        ExtractionError: the arguments have an option that it is not given.
        CompileError: the driver failed, or ran past the deadline.
    """
    source = " ".join(arguments)
    asked = ["-###", *allowed_of_driver(arguments)]
    return run_clang(clang, asked, source=source, root=directory, starts_others=False)


def link_program(clang: Clang, objects: Sequence[Path], output: Path, flags: Sequence[str]) -> None:
    """Link a static program.

    Args:
        clang: its driver, which calls the linker.
        objects: in the linker's order.
        output: the program to write.
        flags: further arguments, such as ``-lm``.

    Raises:
        CompileError: it cannot be linked.
    """
    arguments = [_PROCESS_FLAGS[0], "-static", "-o", str(output.absolute())]
    arguments += [*(str(each.absolute()) for each in objects), *flags]
    run_clang(clang, arguments, source=output.name, root=output.parent)


def link_image(
    clang: Clang,
    made: Path,
    output: Path,
    *,
    entry: str,
    address: int,
    symbols: Mapping[str, int],
) -> None:
    """Link an object that is loaded into a program that runs: its code begins at an address.

    Args:
        clang: whose linker is taken.
        made: the object.
        output: the ELF file to write; its entry point is the address of ``entry``.
        entry: a function of the object.
        address: where its code begins.
        symbols: the addresses of what it needs of the program.

    Raises:
        CompileError: it cannot be linked.
    """
    script = output.with_suffix(".ld")
    lines = (f'"{name}" = {place:#x};\n' for name, place in symbols.items())
    script.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    own = ("-static", "-N", f"-Ttext={address:#x}", f"--entry={entry}", "--build-id=none")
    files = (str(output.absolute()), str(made.absolute()), str(script.absolute()))
    command = [_linker(clang), *own, "-znorelro", "-o", *files]
    start = partial(_start, command, output.parent, DEADLINE_S)
    run_tool(start, Path(command[0]), output.name)


@lru_cache
def _linker(clang: Clang) -> str:
    """The linker that clang calls, which takes a tenth of its time alone."""
    process = _start([str(clang.path), "-print-prog-name=ld"], None, DEADLINE_S)
    return process.stdout.strip()


def run_clang(
    clang: Clang,
    arguments: Sequence[str],
    *,
    source: str,
    root: Path,
    deadline_s: float = DEADLINE_S,
    starts_others: bool = True,
) -> str:
    """Run clang, and return what it writes to standard error.

    Args:
        clang: the compiler.
        arguments: of its driver.
        source: what it compiles, for errors.
        root: the folder that it runs in.
        deadline_s: seconds after which it is killed.
        starts_others: whether it may start other programs and write files.

    Raises:
        CompileError: it failed or ran past the deadline.
    """
    command = [str(clang.path), *arguments]
    start = partial(_start, command, root, deadline_s, starts_others=starts_others)
    stderr: str = run_tool(start, clang.path, source, "clang").stderr
    return stderr


def _start(
    command: Sequence[str], root: Path | None, deadline_s: float, *, starts_others: bool = True
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in _DROPPED_VARIABLES}
    with scratch_folder() as scratch:
        start = partial(
            run,
            command,
            cwd=root,
            env=kept | _SET_VARIABLES | {"TMPDIR": str(scratch)},
            encoding="utf-8",
            errors="surrogateescape",
            timeout=deadline_s,
        )
        return start() if starts_others else start_alone(Path(command[0]), start)


def _first_candidate() -> Clang:
    notes = []
    for name in CANDIDATES:
        if found := shutil.which(name):
            try:
                return _ask(found)
            except ToolchainError as error:
                notes.append(str(error))
    raise _no_clang(CANDIDATES, *notes)


def _ask(program: str) -> Clang:
    try:
        process = _start([program, "--version"], None, DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_clang([program], f"{program} does not run: {error}") from error
    banner = process.stdout.partition("\n")[0]
    if match := _VERSION.search(banner):
        major, minor, patch = map(int, match.groups())
        # Absolute, because clang runs in the folder of the sources.
        return Clang(Path(program).absolute(), (major, minor, patch), banner)
    raise _no_clang([program], f"--version says {banner!r}")


def _no_clang(looked_for: Sequence[str], *notes: str) -> ToolchainError:
    found = f"; found {', '.join(notes)}" if notes else ""
    return ToolchainError(
        f"no clang >= {MINIMUM_VERSION} found (looked for {', '.join(looked_for)}{found}); "
        "on Debian or Ubuntu: apt-get install clang-22"
    )
