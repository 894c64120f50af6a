"""Running a program once: in a sandbox, with limits, and with what it did looked at.

It reads what its workload names, and writes in its own folder, which is made for the run and goes
with it; it starts no other and reaches no network (`corpus_tools.sandbox`, as far as the kernel
can). Its environment, its name and its folder are alike wherever it runs, so that it does the same
each time.

The kernel limits each file and the memory that is mapped (`corpus_tools.launcher`). What only the
sum shows, bytes of files, names in the folder and threads, is looked at while the program runs and
once more at its end; it is killed when it has taken too much.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from threading import Timer
from types import MappingProxyType
from typing import Final

from corpus_tools import sandbox
from corpus_tools.children import Guarded
from corpus_tools.sandbox import confinement
from corpus_tools.scratch import scratch_folder
from corpus_tools.workloads import Workload
from mlgo_gym.base import OptionsError, WorkloadError

MOST_BYTES: Final = 64 << 20
MOST_NAMES, MOST_LEVELS, MOST_THREADS = 16_384, 64, 256

_INTERVAL_S, _SHARE = 0.05, 20
"""Between two looks; longer where one takes more than a twentieth of that."""

_MIB: Final = 1 << 20
_GRACE_S: Final = 5
_TAIL_BYTES: Final = 400
_WITHOUT: Final = (
    *("AVX512F", "AVX512BW", "AVX512VL", "AVX2", "AVX2_Usable", "AVX", "FMA", "FMA4", "ERMS"),
    *("FSRM", "BMI2"),
)
TUNABLES: Final = ":".join(
    (
        f"glibc.cpu.hwcaps={''.join(f'-{each},' for each in _WITHOUT)}",
        "glibc.cpu.x86_data_cache_size=32768",
        "glibc.cpu.x86_shared_cache_size=1048576",
        "glibc.cpu.x86_non_temporal_threshold=786432",
    )
)
"""What of the processor the C library may not choose functions by: they differ in the last bit.

Glibc looks for the comma behind each name, also behind the last, and reads on where there is none.
"""
_ENVIRONMENT: Final = MappingProxyType({"LC_ALL": "C", "TMPDIR": ".", "GLIBC_TUNABLES": TUNABLES})
_PATH_LENGTH, _LONGEST_NAME = 240, 200
_LAUNCHER: Final = (
    sys.executable,
    "-I",
    "-S",
    str(Path(sandbox.__file__).with_name("launcher.py")),
)
_REFUSED: Final = ("processes", "network")
_UNDER_WAY: Final[set[subprocess.Popen[bytes]]] = set()


class TooMuchError(Exception):
    """A program has taken too much; the text is what was expected and found."""


class Sums:
    """Watches one process of a program until `end`.

    Args:
        pid: the process, which has not been waited for.
        folder: where it may write.
        given_bytes: what was there before it began (`size_of`), which is not counted.
        ignored: descriptors of ours that it has, and that are not counted.

    Attributes:
        problem: what it has taken too much of, as expected and found; empty where nothing.
    """

    def __init__(self, pid: int, folder: Path, given_bytes: int, ignored: Iterable[int]) -> None:
        self.problem = ""
        self._ignored: Final = {_identity(os.fstat(each)) for each in ignored}
        self._pid, self._folder = pid, folder
        self._handle: Final = os.pidfd_open(pid)
        self._given_bytes: Final = given_bytes
        self._ended: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> str:
        """Stop, look once more at what is in the folder, and return the problem."""
        self._ended.set()
        self._thread.join()
        os.close(self._handle)
        if not self.problem:
            with suppress(OSError):
                self._look(at_process=False)  # its number may be another's by now
        return self.problem

    def _watch(self) -> None:
        interval_s = _INTERVAL_S
        while not self._ended.wait(interval_s):
            began = time.monotonic()
            with suppress(OSError):  # it ends or removes something meanwhile
                self._look(at_process=True)
            if self.problem:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                return
            interval_s = max(_INTERVAL_S, _SHARE * (time.monotonic() - began))

    def _look(self, *, at_process: bool) -> None:
        try:
            sizes = dict(_files(self._folder))
        except TooMuchError as found:
            self.problem = str(found)
            return
        threads = 0
        if at_process:
            with suppress(OSError):
                sizes |= dict(_nameless(self._pid, self._ignored))
                threads = sum(1 for _ in Path(f"/proc/{self._pid}/task").iterdir())
        if sum(sizes.values()) - self._given_bytes > MOST_BYTES:
            self.problem = f"expected files and output of at most {MOST_BYTES} bytes, found more"
        elif threads > MOST_THREADS:
            self.problem = f"expected at most {MOST_THREADS} threads at once, found more"


def size_of(folder: Path) -> int:
    """The bytes on disk of what a folder holds."""
    return sum(size for _, size in _files(folder))


def _files(folder: Path) -> Iterator[tuple[tuple[int, int], int]]:
    """Device, number and bytes on disk of what a folder holds."""
    left, names = [(folder, 0)], 0
    while left:
        place, level = left.pop()
        # What nobody may look into, nobody may write into either.
        with suppress(FileNotFoundError, PermissionError), os.scandir(place) as entries:
            for entry in entries:
                names += 1
                if names > MOST_NAMES:
                    raise TooMuchError(
                        f"expected at most {MOST_NAMES} files and folders, found more"
                    )
                found = entry.stat(follow_symlinks=False)
                yield _identity(found), found.st_blocks * 512
                if stat.S_ISDIR(found.st_mode):
                    if level == MOST_LEVELS:
                        expected = f"expected at most {MOST_LEVELS} levels of folders"
                        raise TooMuchError(f"{expected}, found more")
                    left.append((Path(entry.path), level + 1))


def _nameless(
    pid: int, ignored: Container[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], int]]:
    """Identity and bytes on disk of files that a process has open and no folder holds any more."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found = path.stat()
            is_counted = stat.S_ISREG(found.st_mode) and not found.st_nlink
            if is_counted and _identity(found) not in ignored:
                yield _identity(found), found.st_blocks * 512


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@dataclass(frozen=True, slots=True)
class Way:
    """How a program is run: by itself, or by a tool that looks at each of its instructions.

    Attributes:
        prefix: the tool and its arguments.
        executable: the files that are executed beside the program.
        readable: the folders that they read.
        environment: the variables that they need; ``{log}`` in them, and in the prefix, is the
            descriptor of what they write besides.
        slowdown: how much longer the program may take.
        more_bytes: how much more memory it may take.
        copies: who traces it can have it make copies of itself.
    """

    prefix: tuple[str, ...] = ()
    executable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    slowdown: int = 1
    more_bytes: int = 0
    copies: bool = False


NATIVE: Final = Way()


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of a program's run.

    Attributes:
        status: its exit status; negative is the signal that ended it.
        stdout: what it wrote to standard output.
        stderr: the end of what it, or the tool that ran it, wrote to standard error.
        log: other output, by the tool that ran it or by linked libraries.
        cpu_s: the seconds of the CPU that it took.

    >>> ProgramRun(0, b"4", "", b"", 0.1).stdout_sha256[:8]
    '4b227777'
    """

    status: int
    stdout: bytes
    stderr: str
    log: bytes
    cpu_s: float

    @property
    def stdout_sha256(self) -> str:
        """The hash of what it wrote, in hexadecimal digits."""
        return hashlib.sha256(self.stdout).hexdigest()


def wrong(workload: Workload, problem: str) -> WorkloadError:
    """Return the error that names the workload, the expected and the found."""
    return WorkloadError(str(workload.error(problem)))


def run_program(
    workload: Workload,
    program: Path,
    way: Way = NATIVE,
    *,
    cpu: int | None = None,
    check_output: bool = True,
) -> ProgramRun:
    """Run a workload's program once, and check its output.

    Args:
        workload: what it is given, and what it must do.
        program: its file.
        way: how it is run.
        cpu: the processor that it runs on; any, if ``None``.
        check_output: off, it may write anything to standard output.

    Raises:
        WorkloadError: it did something else: ended otherwise, not in time, wrote something else,
            tried to start a process or to use the network.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> from mlgo_gym.lab.programs import Programs
    >>> with Programs(Corpus.load(SAMPLE_CORPUS), ["json"]) as programs:
    ...     workload = programs.workloads["json"]
    ...     with programs.linked(workload) as program:
    ...         run_program(workload, program.path).status
    0
    """
    run = _run(workload, program, way, cpu)
    check_end(workload, run)
    if check_output:
        compare_output(workload, run)
    return run


def compare_output(workload: Workload, run: ProgramRun) -> None:
    """See that a program wrote what it must.

    Raises:
        WorkloadError: it wrote something else.
    """
    if run.stdout_sha256 != workload.stdout_sha256:
        raise wrong(
            workload,
            f"expected standard output of SHA-256 {workload.stdout_sha256}, found "
            f"{run.stdout_sha256}",
        )


def check_end(workload: Workload, run: ProgramRun) -> None:
    """See that a program ended as it must.

    Raises:
        WorkloadError: it ended otherwise.
    """
    if run.status == -signal.SIGILL:
        raise wrong(
            workload,
            "expected instructions that the processor knows, or valgrind where it runs the "
            f"program, found another; compile for -target-cpu x86-64{_said(run)}",
        )
    if run.status == -signal.SIGSYS:
        raise wrong(workload, "expected to start no process and to use no network, found it does")
    if run.status == -signal.SIGXFSZ:
        expected = f"files and output of at most {MOST_BYTES} bytes"
        raise wrong(workload, f"expected {expected}, found more")
    if run.status != workload.exit_status:
        number = -run.status
        found = f"signal {number} ({signal.strsignal(number)})" if number > 0 else str(run.status)
        expected = f"exit status {workload.exit_status}"
        raise wrong(workload, f"expected {expected}, found {found}{_said(run)}")


def _said(run: ProgramRun) -> str:
    words = " ".join(run.stderr.split())
    hint = ""
    if "ermission denied" in words:
        hint = "; it reads what its workload names, and writes in its own folder, alone"
    return f"; it said: {words}{hint}" if words else ""


def end_programs() -> None:
    """End all programs that run in threads of this process."""
    for process in list(_UNDER_WAY):
        process.kill()


def _run(workload: Workload, program: Path, way: Way, cpu: int | None) -> ProgramRun:
    with started_program(workload, program, way) as started:
        status, cpu_s = _wait(started.process, started.most_s, cpu)
        if status is None:
            raise too_long(workload, started.most_s)
        return started.run(status, cpu_s)


def check_machine(what: str) -> None:
    """See that programs of this machine are what parts of this package know the code of.

    Args:
        what: needs it.

    Raises:
        OptionsError: it is another machine.
    """
    if platform.machine() != "x86_64" or sys.platform != "linux":
        found = f"{platform.machine()} and {sys.platform}"
        raise OptionsError(f"{what}: expected x86-64 and Linux to run programs, found {found}")


def too_long(workload: Workload, most_s: int) -> WorkloadError:
    """Return the error of a program that does not end."""
    return wrong(workload, f"expected to end within {most_s} s, found it still running")


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A program that was started, whose folder is there as long as it runs.

    Attributes:
        process: of the launcher, which becomes the program.
        most_s: the seconds that it may take.
    """

    process: subprocess.Popen[bytes]
    most_s: int
    _own: Path
    _files: tuple[FileIO, ...]

    def has_begun(self) -> bool:
        """Whether the launcher has become the program."""
        return self._own.samefile(f"/proc/{self.process.pid}/exe")

    def run(self, status: int, cpu_s: float) -> ProgramRun:
        """The run, once it has ended."""
        output, said, counted, launched = (_content(each) for each in self._files)
        tail = said[-_TAIL_BYTES:].decode(errors="replace")
        return ProgramRun(status, output, tail, counted, cpu_s - float(launched or 0))


@contextmanager
def started_program(
    workload: Workload,
    program: Path,
    way: Way = NATIVE,
    *,
    gate: int = -1,
) -> Iterator[StartedProgram]:
    """Start a workload's program in the sandbox; the caller waits for its end.

    Args:
        workload: what it is given.
        program: its file.
        way: how it is run.
        gate: the descriptor of a pipe: it begins when nobody can write there any more.
    """
    with scratch_folder() as scratch, ExitStack() as stack:
        own, here = _places(scratch)
        _link(program, own)
        _put_files(workload, here)
        given_bytes = size_of(here)
        given = workload.folder / workload.stdin if workload.stdin else Path(os.devnull)
        stdin = stack.enter_context(given.open("rb"))
        files = tuple(stack.enter_context(_memory_file()) for _ in range(4))
        stdout, stderr, log, note = files
        rules, calls = confinement(
            readable=way.readable,
            executable=[own, *way.executable],
            owned=[here],
            fatal=_REFUSED,
            copies=way.copies,
        )
        if rules >= 0:
            stack.callback(os.close, rules)
        most_s = workload.timeout_s * way.slowdown
        limits = (workload.memory_mib * _MIB + way.more_bytes, MOST_BYTES)
        words = [rules, calls.hex(), *limits, most_s + _GRACE_S, note.fileno(), gate]
        prefix = [each.format(log=log.fileno()) for each in way.prefix]
        own_variables = {k: v.format(log=log.fileno()) for k, v in way.environment.items()}
        kept = (rules, note.fileno(), log.fileno(), gate)
        process = Guarded(
            [*_LAUNCHER, *map(str, words), *prefix, "../program", *workload.arguments],
            cwd=here,
            env={**_ENVIRONMENT, **own_variables},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[each for each in kept if each >= 0],
            start_new_session=True,
        )
        sums = Sums(process.pid, here, given_bytes, [log.fileno(), note.fileno()])
        try:
            yield StartedProgram(process, most_s, own, files)
        finally:
            if problem := sums.end():
                raise wrong(workload, problem)


def _places(scratch: Path) -> tuple[Path, Path]:
    """Return the program's path and its folder: C libraries look at a path's length."""
    lacking = _PATH_LENGTH - len(str(scratch)) - len("//program")
    folder = scratch / ("_" * max(1, min(lacking, _LONGEST_NAME)))
    folder.mkdir()
    return folder / "program", folder / "run"


def _link(program: Path, name: Path) -> None:
    try:
        name.hardlink_to(program)
    except OSError:  # on another file system
        shutil.copy(program, name)


def _put_files(workload: Workload, folder: Path) -> None:
    folder.mkdir()
    for name in workload.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(workload.folder / name, folder / name)


def _wait(
    process: subprocess.Popen[bytes], most_s: int, cpu: int | None
) -> tuple[int | None, float]:
    """Exit status, or ``None`` where the time was over, and seconds of the CPU."""
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        process.kill()

    timer = Timer(most_s, end)
    _UNDER_WAY.add(process)
    try:
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()
        _UNDER_WAY.discard(process)
    return None if is_over else process.returncode, usage.ru_utime + usage.ru_stime


def _memory_file() -> FileIO:
    return FileIO(os.memfd_create("output"), "r+b")


def _content(file: FileIO) -> bytes:
    file.seek(0)
    return file.read()
