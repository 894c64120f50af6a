"""Names of system calls of x86-64 (``arch/x86/entry/syscalls/syscall_64.tbl``)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_NAMES: Final = MappingProxyType(
    {
        **dict(
            enumerate(
                [
                    "read",
                    "write",
                    "open",
                    "close",
                    "stat",
                    "fstat",
                    "lstat",
                    "poll",
                    "lseek",
                    "mmap",
                    "mprotect",
                ]
            )
        ),
        11: "munmap",
        12: "brk",
        13: "rt_sigaction",
        14: "rt_sigprocmask",
        16: "ioctl",
        17: "pread64",
        18: "pwrite64",
        19: "readv",
        20: "writev",
        25: "mremap",
        28: "madvise",
        35: "nanosleep",
        39: "getpid",
        56: "clone",
        57: "fork",
        60: "exit",
        62: "kill",
        72: "fcntl",
        77: "ftruncate",
        79: "getcwd",
        82: "rename",
        83: "mkdir",
        87: "unlink",
        96: "gettimeofday",
        186: "gettid",
        201: "time",
        202: "futex",
        228: "clock_gettime",
        230: "clock_nanosleep",
        231: "exit_group",
        234: "tgkill",
        257: "openat",
        262: "newfstatat",
        318: "getrandom",
        435: "clone3",
    }
)


def name_of(number: int) -> str:
    """The name of a system call, or its number.

    >>> name_of(1), name_of(400)
    ('write', 'number 400')
    """
    return _NAMES.get(number, f"number {number}")
