"""Linux's own sandbox for one thread and what it starts: no way back, no privileges needed.

`confine` is called by whoever is to be confined, once all that it needs is loaded and before it
sees what it is not to trust. A process of one thread is confined whole; a thread of its own that
starts a program confines that program alone. Two parts of the kernel do it, each of use alone:

- Landlock (Linux 5.13, the rest of it later): only what is named is read, written or executed, no
  TCP; from ABI 6 on (Linux 6.12) no signal and no abstract socket reaches a process outside.
- seccomp, on x86-64 and AArch64: only `_CALLS` are served, which has no way to execute, to open a
  socket, to change a file's name, owner or mode, or to touch another process.

`confinement` is the same for a program that was not written for it, as what a launcher is told that
becomes the program.

What was opened before stays open. No library is behind it: those for Landlock are in their first
versions, and the one for seccomp needs libseccomp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_IOCTL_DEVICE: Final = 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_OF_ABI: Final = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEVICE}
"""Accesses that each ABI of Landlock has added and can refuse (``LANDLOCK_ACCESS_FS_*``)."""
_TCP, _TCP_ABI = 3, 4
_SCOPES, _SCOPES_ABI = 3, 6

_MAKE_AND_REMOVE: Final = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
"""Folders and regular files."""

_END: Final = 0x80000000  # the process, by SIGSYS
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
"""Column of `_CALLS`, ``AUDIT_ARCH_*``, and the number of ``seccomp`` itself."""
_NEWEST_CALL: Final = 470
"""Newer calls are reported as not there, so that C libraries fall back to older ones."""
_ANY: Final = -1
# fmt: off
_CALLS: Final = {
    "read": (0, 63), "readv": (19, 65), "pread64": (17, 67), "write": (1, 64),
    "writev": (20, 66), "close": (3, 57), "lseek": (8, 62), "fcntl": (72, 25),
    "open": (2, _ANY), "openat": (257, 56), "getdents64": (217, 61), "fstat": (5, 80),
    "stat": (4, _ANY), "lstat": (6, _ANY), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, _ANY), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, _ANY), "readlinkat": (267, 78), "getcwd": (79, 17),
    "dup": (32, 23), "dup2": (33, _ANY), "dup3": (292, 24), "poll": (7, _ANY),
    "ppoll": (271, 73), "select": (23, _ANY), "pselect6": (270, 72),
    "sendto": (44, 206), "sendmsg": (46, 211), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "shutdown": (48, 210), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "tgkill": (234, 131), "restart_syscall": (219, 128),
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "uname": (63, 160),
    "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98), "rseq": (334, 293),
    "set_robust_list": (273, 99), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "getcpu": (309, 168), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "times": (100, 153), "getrusage": (98, 165), "sysinfo": (99, 179),
    "getrandom": (318, 278), "getrlimit": (97, 163),
}
# fmt: on
"""Numbers of what a process may ask of the kernel that only computes, on x86-64 and AArch64."""
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), (435, 435), 0x10000
_PRLIMIT: Final = (302, 261)
_COPY: Final = (_CLONE, 0x8011)
"""With ``CLONE_PARENT | SIGCHLD`` alone, as branches are made."""
_CHECKED_CALLS: Final = (
    _COPY,
    (_PRLIMIT, 0),  # of itself, whose hard limits only fall
)
"""Numbers of calls that are served where the first argument is exactly this."""
# fmt: off
_PROGRAM_CALLS: Final = {
    "execve": (59, 221), "arch_prctl": (158, _ANY), "set_tid_address": (218, 96),
    "ioctl": (16, 29), "unlink": (87, _ANY), "unlinkat": (263, 35), "rename": (82, _ANY),
    "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, _ANY), "mkdirat": (258, 34),
    "rmdir": (84, _ANY), "ftruncate": (77, 46), "truncate": (76, 45), "fsync": (74, 82),
    "fdatasync": (75, 83), "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70),
    "getdents": (78, _ANY), "umask": (95, 166), "time": (201, _ANY), "alarm": (37, _ANY),
    "setitimer": (38, 103), "getitimer": (36, 102), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "pause": (34, _ANY),
    "chdir": (80, 49), "fchdir": (81, 50), "pipe": (22, _ANY), "pipe2": (293, 59),
    "eventfd2": (290, 19), "fadvise64": (221, 223), "flock": (73, 32), "getpgrp": (111, _ANY),
    "getpgid": (121, 155), "getsid": (124, 156), "getresuid": (118, 148),
    "getresgid": (120, 150), "getgroups": (115, 158), "membarrier": (324, 283),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "mincore": (27, 232),
    "mlock": (149, 228), "msync": (26, 227), "sendfile": (40, 71),
    "statfs": (137, 43), "fstatfs": (138, 44), "getxattr": (191, 8), "kill": (62, 129),
    "tkill": (200, 130), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, _ANY), "epoll_pwait": (281, 22), "prctl": (157, 167),
}
# fmt: on
"""Calls allowed beside `_CALLS` to programs that have a folder of their own. Landlock refuses their
signals to other processes."""
_FATAL: Final[Mapping[str, tuple[tuple[int, int], ...]]] = MappingProxyType(
    {
        "processes": ((57, _ANY), (58, _ANY)),  # fork and vfork
        "network": ((53, 199), (425, 425)),  # socketpair, io_uring_setup
    }
)
"""Numbers of calls by which a program reaches others; it ends by SIGSYS where they are refused."""
_SOCKET, _AF_UNIX = (41, 198), 1

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Held:
    """The kernel's limits of a process: Landlock's ABI, 0 for none; whether calls are filtered.

    >>> print(Held(7, True))
    Landlock ABI 7, seccomp
    >>> print(Held(0, False))
    no Landlock, no seccomp
    """

    landlock_abi: int
    has_filter: bool

    def __str__(self) -> str:
        landlock = f"Landlock ABI {self.landlock_abi}" if self.landlock_abi else "no Landlock"
        return f"{landlock}, {'seccomp' if self.has_filter else 'no seccomp'}"


def confine(
    *,
    readable: Iterable[Path] = (),
    writable: Iterable[Path] = (),
    executable: Iterable[Path] = (),
    computes_only: bool = True,
) -> Held:
    """Confine this thread, and what it starts, for good, as far as the kernel can.

    A folder stands for all below it.

    Args:
        readable: what may be read, and listed.
        writable: what may be read and written where it is; nothing is made or removed.
        executable: what may be executed and read; of a dynamic program its interpreter, too.
        computes_only: of the system calls only those of `_CALLS` are served, and root is nobody.

    Raises:
        OSError: a path cannot be opened, or Landlock has refused a rule.
    """
    if sys.platform != "linux":
        return Held(0, False)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    rights = [(path, _READ_FILE | _READ_DIR) for path in readable]
    rights += [(path, _READ_FILE | _WRITE_FILE | _TRUNCATE) for path in writable]
    rights += [(path, _READ_FILE | _EXECUTE) for path in executable]
    abi = _restrict_files(rights, _landlock_abi())
    if computes_only:  # root's too: of version 3, all empty
        _LIBC.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))
    return Held(abi, computes_only and _filter_calls())


def confinement(
    *,
    readable: Iterable[Path] = (),
    executable: Iterable[Path] = (),
    owned: Iterable[Path] = (),
    fatal: Collection[str] = ("processes", "network"),
    copies: bool = False,
) -> tuple[int, bytes]:
    """The limits that `corpus_tools.launcher` sets itself before it becomes a program.

    Args:
        readable: what may be read, and listed.
        executable: what may be executed and read.
        owned: folders in which files are read, written, made and removed.
        fatal: names of `_FATAL`: what does so ends by SIGSYS; the rest is refused.
        copies: who traces it can have it make copies of itself.

    Returns:
        The descriptor of Landlock's rules, -1 where the kernel has none, which the caller closes;
        and seccomp's program, empty where there is none for this architecture.

    Raises:
        OSError: a path cannot be opened, or Landlock has refused a rule.
    """
    rights = [(path, _READ_FILE | _READ_DIR) for path in readable]
    rights += [(path, _READ_FILE | _EXECUTE) for path in executable]
    rights += [(Path(os.devnull), _READ_FILE | _WRITE_FILE)]
    own = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _MAKE_AND_REMOVE
    rights += [(path, own) for path in owned]
    if sys.platform != "linux":
        return -1, b""
    column, architecture, _ = _ARCHITECTURES.get(platform.machine(), (-1, 0, 0))
    filtered = _program_filter(column, architecture, fatal, copies=copies)
    calls = b"" if column < 0 else b"".join(filtered)
    return _ruleset(rights, _landlock_abi()), calls


def _call(number: int, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """A system call's result, or minus its error."""
    words = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    _LIBC.syscall.restype = ctypes.c_long
    result: int = _LIBC.syscall(ctypes.c_long(number), *words)
    return -ctypes.get_errno() if result == -1 else result


def _landlock_abi() -> int:
    """The kernel's, or 0 where it has none or whatever runs this process refuses to tell."""
    return max(0, _call(_CREATE_RULESET, None, 0, 1))  # LANDLOCK_CREATE_RULESET_VERSION


def _restrict_files(rights: list[tuple[Path, int]], abi: int) -> int:
    """The ABI if all that it can refuse is refused from now on, but for these; or 0."""
    ruleset = _ruleset(rights, abi)
    if ruleset < 0:
        return 0
    try:
        return abi if _call(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _ruleset(rights: list[tuple[Path, int]], abi: int) -> int:
    """The descriptor of rules by which all is refused that can be, but for these; or -1."""
    if not abi:
        return -1
    handled = sum(added for since, added in _OF_ABI.items() if since <= abi)
    words = [handled, *[_TCP] * (abi >= _TCP_ABI), *[_SCOPES] * (abi >= _SCOPES_ABI)]
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(words)}Q", *words), 8 * len(words))
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return -1
    try:
        for path, allowed in rights:
            _allow(ruleset, path, allowed & handled)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def _allow(ruleset: int, path: Path, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            allowed &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, descriptor), 12)
        if error := _call(_ADD_RULE, ruleset, 1, rule, 0):  # LANDLOCK_RULE_PATH_BENEATH
            raise OSError(-error, os.strerror(-error), str(path))
    finally:
        os.close(descriptor)


def _filter_calls() -> bool:
    """Whether seccomp holds from now on."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    column, architecture, seccomp = _ARCHITECTURES[platform.machine()]
    program = b"".join(_program(column, architecture))
    instructions = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it older kernels slow it down
    filtered = ctypes.create_string_buffer(description, len(description))
    return _call(seccomp, 1, 4, filtered) == 0


def _program(column: int, architecture: int) -> Iterator[bytes]:
    """The filter of who only computes."""
    yield from _beginning(architecture)
    yield from _answered(column, _CALLS.values(), _ALLOW)
    for numbers, argument in _CHECKED_CALLS:
        yield from _checked(column, numbers, (_EQUAL, argument), _ALLOW, _REFUSE | errno.EPERM)
    yield from _ending()


def _program_filter(
    column: int, architecture: int, fatal: Collection[str], *, copies: bool
) -> Iterator[bytes]:
    """The filter of a program that is not written for it."""
    yield from _beginning(architecture)
    yield from _answered(column, (*_CALLS.values(), *_PROGRAM_CALLS.values()), _ALLOW)
    yield from _answered(column, [each for name in fatal for each in _FATAL[name]], _END)
    # Its flags are in memory, where nobody can look at them: C libraries fall back to clone.
    yield from _answered(column, [_CLONE3], _REFUSE | errno.ENOSYS)
    other = _END if "processes" in fatal else _REFUSE | errno.EPERM
    if copies:
        numbers, argument = _COPY
        yield from _checked(column, numbers, (_EQUAL, argument), _ALLOW)
    yield from _checked(column, _CLONE, (_ANY_BIT, _CLONE_THREAD), _ALLOW, other)
    # C libraries ask this machine's own services, if there are any.
    other = _END if "network" in fatal else _REFUSE | errno.EPERM
    yield from _checked(column, _SOCKET, (_EQUAL, _AF_UNIX), _REFUSE | errno.EACCES, other)
    yield from _checked(column, _PRLIMIT, (_EQUAL, 0), _ALLOW, _REFUSE | errno.EPERM)
    yield from _ending()


def call_name(number: int) -> str:
    """The name of a system call of x86-64 that this file knows, or its number.

    >>> call_name(1), call_name(400)
    ('write', 'number 400')
    """
    known = {numbers[0]: name for name, numbers in {**_CALLS, **_PROGRAM_CALLS}.items()}
    known |= {_CLONE[0]: "clone", _CLONE3[0]: "clone3", _FATAL["processes"][0][0]: "fork"}
    return known.get(number, f"number {number}")


def _beginning(architecture: int) -> Iterator[bytes]:
    """Load the call's number: ``struct seccomp_data`` has it, architecture, and arguments."""
    yield _instruction(_LOAD, 4)
    yield _instruction(_EQUAL, architecture, 1, 0)
    yield _instruction(_RETURN, _REFUSE | errno.EPERM)
    yield _instruction(_LOAD, 0)


def _answered(column: int, calls: Iterable[tuple[int, int]], answer: int) -> Iterator[bytes]:
    for numbers in calls:
        if numbers[column] != _ANY:
            yield _instruction(_EQUAL, numbers[column], 0, 1)
            yield _instruction(_RETURN, answer)


def _checked(
    column: int,
    numbers: tuple[int, int],
    test: tuple[int, int],
    answer: int,
    other: int | None = None,
) -> Iterator[bytes]:
    """One answer where the first argument is as it must be, and another, or none, where not."""
    yield _instruction(_EQUAL, numbers[column], 0, 4)
    yield _instruction(_LOAD, 16 if sys.byteorder == "little" else 20)
    yield _instruction(*test, 0, 1)
    yield _instruction(_RETURN, answer)
    yield _instruction(_LOAD, 0) if other is None else _instruction(_RETURN, other)


def _ending() -> Iterator[bytes]:
    yield _instruction(_GREATER, _NEWEST_CALL, 0, 1)
    yield _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    yield _instruction(_RETURN, _REFUSE | errno.EPERM)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
