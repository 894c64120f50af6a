"""Becomes a program that is held to limits, and confined: run as a script, without any package.

    python -I -S launcher.py RULES CALLS MEMORY FILES SECONDS NOTE GATE PROGRAM ARGUMENT...

``RULES`` is the descriptor of Landlock's rules, or -1; ``CALLS`` seccomp's program in hexadecimal
digits (`corpus_tools.sandbox.confinement`). Memory and files are in bytes, time is of the CPU. What
this has taken of the CPU itself goes to the descriptor ``NOTE``, in seconds, so that it can be
taken off. ``GATE`` is the descriptor of a pipe, or -1: it waits until nobody can write there.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECUREBITS, _NOROOT = 28, 1 << 0 | 1 << 1
_SAME_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE: what looks at addresses does the same each time
_LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 445, 446
_READ = 1 << 2 | 1 << 3  # files and folders
_MOST_DESCRIPTORS = 64  # what is open may have no name any more, so that its size counts nowhere
_SECCOMP = {"x86_64": 317, "aarch64": 277}


def main() -> None:
    """Hold this process to all that the arguments say, and become the program."""
    rules, calls, memory, files, seconds, note, gate, program, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.personality(_SAME_ADDRESSES)
    if int(rules) >= 0:
        own = os.open("/proc/self", os.O_PATH)  # whose number is known here alone
        rule = ctypes.create_string_buffer(struct.pack("=Qi", _READ, own), 12)
        libc.syscall(
            ctypes.c_long(_LANDLOCK_ADD_RULE), ctypes.c_long(int(rules)), ctypes.c_long(1), rule, 0
        )
        os.close(own)
        libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_long(int(rules)), 0)
        os.close(int(rules))
    if sys.platform == "linux":
        # Root gains nothing by becoming a program: where it would, addresses are random again.
        libc.prctl(_PR_SET_SECUREBITS, _NOROOT, 0, 0, 0)
        libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, files),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS),
    ):
        most = min(int(value), *(each for each in resource.getrlimit(limit) if each >= 0), 1 << 62)
        resource.setrlimit(limit, (most, most))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    os.write(int(note), f"{usage.ru_utime + usage.ru_stime}\n".encode())
    os.close(int(note))
    data = bytes.fromhex(calls)
    if data and platform.machine() in _SECCOMP:
        held = ctypes.create_string_buffer(data, len(data))
        described = struct.pack("@HP", len(data) // 8, ctypes.addressof(held))
        described_at = ctypes.create_string_buffer(described, len(described))
        # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, as in corpus_tools.sandbox
        number = ctypes.c_long(_SECCOMP[platform.machine()])
        libc.syscall(number, ctypes.c_long(1), ctypes.c_long(4), described_at)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
        signal.signal(ignored, signal.SIG_DFL)
    if int(gate) >= 0:
        os.read(int(gate), 1)
        os.close(int(gate))
    os.execv(program, [program, *arguments])  # noqa: S606 (it is what is asked for)


if __name__ == "__main__":
    main()
