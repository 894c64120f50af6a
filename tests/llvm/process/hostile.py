"""What a worker's process may do once it serves: a stranger's code, in its place, tries more."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm._target import Target
from mlgo_gym.llvm.worker import _binding as binding


def main(folder: str) -> None:
    """Begin as a worker begins, then try each; a JSON object of what became of it."""
    session = binding.Session()
    Limits(peak_bytes=1 << 29, cpu_s=60).hold()
    sys.stdout.write(json.dumps(outcomes(session, folder)))


def outcomes(session: binding.Session, folder: str) -> dict[str, str]:
    """What becomes of each attempt."""
    own = Path(folder) / "file"
    attempts: dict[str, Callable[[], object]] = {
        "read a file": Path("/etc/passwd").read_bytes,
        "read its environment": Path("/proc/self/environ").read_bytes,
        "list a folder": lambda: list(Path("/").iterdir()),
        "write a file": lambda: own.write_text("changed"),
        "make a file": lambda: own.with_name("new").write_text(""),
        "remove a file": own.unlink,
        "execute": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606
        "fork": os.fork,
        "open a socket": socket.socket,
        "signal its parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
        "have more memory": lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 40)),
        "take more memory": lambda: bytes(1 << 29),
        "have LLVM execute": lambda: _compiled(session, f"-exec-on-ir-change=/bin/rm {own}"),
    }
    return {name: outcome(attempt) for name, attempt in attempts.items()}


def outcome(attempt: Callable[[], object]) -> str:
    """What becomes of an attempt: done, or an error."""
    try:
        attempt()
    except (OSError, ValueError, MemoryError) as error:
        return str(error.strerror or error) if isinstance(error, OSError) else repr(error)
    return "done"


def _compiled(session: binding.Session, *options: str) -> None:
    session.set_options(options)  # the filter of options is elsewhere
    with binding.parse(b"define i32 @f() { ret i32 1 }", is_text=True, verify=True) as module:
        binding.optimize(module, Target("O2", "pic", "default", None, None, None))
