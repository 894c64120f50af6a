"""Ends the programs of a process that was killed: run as a script, without any package.

    python -I -S guardian.py

Each line of standard input is the number of a process. At the end of the input, which comes when
the process that writes there is gone, however it went, those that are still there are killed, and
what they have started. Processes are held by descriptors, so that no other can be meant.
"""

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Watch until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for the process that is watched
    source, left = sys.stdin.fileno(), b""
    held: dict[int, int] = {}
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != source:  # it has ended
                poll.unregister(descriptor)
                os.close(descriptor)
                del held[descriptor]
                continue
            data = os.read(source, 1 << 16)
            if not data:
                end(held)
                return
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                with suppress(OSError):  # it has ended already
                    process = os.pidfd_open(int(line))
                    held[process] = int(line)
                    poll.register(process, select.POLLIN)


def end(held: dict[int, int]) -> None:
    """Kill processes, and before them those that they have started."""
    for descriptor, number in held.items():
        for child in reversed(started_by(number)):
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def started_by(number: int) -> list[int]:
    """The processes that one has started, and those that they have started."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{number}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *started_by(child)]
    return found


if __name__ == "__main__":
    main()
