"""A process in which one call fails after another; `tests.faults` starts it with the interposer.

It loads what the scenario needs, then does the scenario's work in a fork of itself for each fault,
so that a fault costs what the work costs and nothing more. A fault is a call that fails, or a
signal at a moment that its number decides. For each, a line is read and a line of JSON printed.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from mlgo_gym.problems._registry import problems
from tests.faults.results import Files, state_of
from tests.faults.scenarios import SCENARIOS, Outcome, Scenario

_SUBREAPER: Final = 36
_DEADLINE_S: Final = 180.0
_LEAVING_S: Final = 30.0
_SAYING_S: Final = 0.5
_OF_TENSORFLOW: Final = "__autograph_generated_file"
"""What it removes when a process ends by itself, as forks here do not."""
_SAYS: Final = ("mlgo-", "error: ")
"""How a command's own messages begin."""
_INTERRUPTED: Final = 130
_KILLED: Final = "killed"


def main() -> None:
    """Arguments: the interposer, a scenario, ``host`` or ``children``; then lines: kind, number."""
    library, name, place = sys.argv[1:]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    folder = Path.cwd()
    scenario = SCENARIOS[name]
    scenario.prepare(folder)
    shutil.copytree(folder / "out", folder / "before")
    bench = _Bench(scenario, folder, ctypes.CDLL(library))
    bench.load()
    for line in sys.stdin:
        kind, number = line.split()
        print(json.dumps(bench.fault(place, kind, int(number))), flush=True)


def _wait(_: int) -> None:
    """Nothing is done to the process."""


class _Bench:
    def __init__(self, scenario: Scenario, folder: Path, shim: ctypes.CDLL) -> None:
        self._scenario = scenario
        self._folder = folder
        self._shim = shim
        self._seen = folder / "seen"
        self._last_words = folder / "stderr"
        self._whole: Files = {}
        self._duration_s = 0.0
        self._of_the_killed: set[str] = set()
        self._goes_on_from: set[str] = set()

    def load(self) -> None:
        """Import what the work imports; it runs in a fork, since what it starts does not fork."""
        report = self._forked(lambda: {"modules": list(self._ran()["modules"])})
        for name in report.get("modules", ()):
            with suppress(ImportError):  # TensorFlow makes modules of what it compiles
                importlib.import_module(name)
        problems()  # reads what every package has registered, once
        first, second = self._whole_run(), self._whole_run()
        self._whole = {name: data for name, data in first.items() if second.get(name) == data}

    def _whole_run(self) -> Files:
        """What the work writes where nothing fails, and how long it takes."""
        self._restore()
        start = time.monotonic()
        found = self._forked(self._ran)
        self._duration_s = time.monotonic() - start
        if found["status"]:
            raise RuntimeError(f"without a fault: {found}")
        return self._scenario.results(self._folder)

    def fault(self, place: str, kind: str, number: int) -> dict[str, Any]:
        """Have a call fail, or a signal come; what it came to, with ``bad``: what should not be."""
        self._restore()
        found = (self._signalled if kind.startswith("SIG") else self._failed)(place, kind, number)
        killed = found["said"] == _KILLED
        left = self._leftovers(killed=killed)
        found["left"] = sorted(self._of_the_killed)
        found["bad"] = found.get("bad") or left or self._broken(found) or self._again(found)
        return found

    def _failed(self, place: str, kind: str, number: int) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            if place == "children":
                os.environ.update(FAULT=f"{kind}:{number}", FAULT_SEEN=str(self._seen))
            else:
                self._shim.fault_arm(kind.encode(), number)
            done = self._ran()
            fired = self._shim.fault_fired()
            self._shim.fault_arm(b"", 0)
            return {"status": done["status"], "said": done["said"], "fired": bool(fired)}

        found = self._forked(work)
        if self._seen.exists():
            found["fired"] = bool(self._seen.stat().st_size)
        found.setdefault("fired", True)
        return found

    def _signalled(self, place: str, kind: str, number: int) -> dict[str, Any]:
        """A terminal interrupts the whole group; what kills takes the host or one child."""
        random = np.random.default_rng([zlib.crc32(f"{place} {kind}".encode()), number])
        moment_s = random.uniform(0, self._duration_s)
        fired = False

        def send(host: int) -> None:
            nonlocal fired
            time.sleep(moment_s)
            victim = psutil.Process(host)
            if place == "children":
                children = victim.children(recursive=True)
                if not children:
                    return
                victim = children[int(random.integers(len(children)))]
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if kind == "SIGINT":
                    os.killpg(host, signal.SIGINT)
                else:
                    victim.kill()
                fired = True

        found = self._forked(self._interruptible, send)
        found.pop("modules", None)
        if fired and kind == "SIGKILL" and place == "host":
            found = {"status": 1, "said": _KILLED}
        return found | {"fired": fired}

    def _interruptible(self) -> dict[str, Any]:
        os.setpgrp()
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            done = self._ran()
        except KeyboardInterrupt:  # what is no command has no status of its own
            done = {"status": _INTERRUPTED, "said": ""}
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return done

    def _ran(self) -> dict[str, Any]:
        outcome: Outcome = self._scenario.run(self._folder)
        return {"status": outcome.status, "said": outcome.said, "modules": sorted(sys.modules)}

    def _restore(self) -> None:
        for name in ("out", "tmp"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        shutil.copytree(self._folder / "before", self._folder / "out")
        (self._folder / "tmp").mkdir()
        self._seen.unlink(missing_ok=True)
        self._of_the_killed = set()

    def _broken(self, found: dict[str, Any]) -> str:
        """What is wrong with what a run said and wrote."""
        spoke = found["said"].startswith(_SAYS) or found["said"] == _KILLED
        if found["status"] not in (0, _INTERRUPTED) and not spoke:
            return f"ended with {found['status']} and said {found['said']!r}"
        try:
            self._scenario.check(self._folder)
        except Exception:
            return f"not whole: {traceback.format_exc()}"
        if found["status"]:
            return ""
        there = self._scenario.results(self._folder)
        others = sorted(name for name, data in self._whole.items() if there.get(name) != data)
        return f"done, but other than without a fault: {others}" if others else ""

    def _again(self, found: dict[str, Any]) -> str:
        """The same command once more; from equal files it need not go on twice."""
        if not (found["status"] and self._scenario.goes_on):
            return ""
        state = state_of(self._folder / "out", self._folder / "tmp")
        if state in self._goes_on_from:
            return ""
        again = self._forked(self._ran)
        if again.get("bad") or again["status"]:
            return f"a second run, without a fault: {again.get('bad') or again['said']}"
        bad = self._leftovers() or self._broken(again)
        if not bad:
            self._goes_on_from.add(state)
        return bad

    def _leftovers(self, *, killed: bool = False) -> str:
        """Processes and temporary files of a run that has ended."""
        end = time.monotonic() + _LEAVING_S
        while children := psutil.Process().children(recursive=True):
            _reap()
            if time.monotonic() > end:
                with suppress(psutil.NoSuchProcess):  # the last of them has ended after all
                    commands = [" ".join(each.cmdline()[:4]) for each in children]
                    for each in children:
                        each.kill()
                    return f"processes left: {commands}"
            time.sleep(0.005)
        out = (*(self._folder / "out").rglob("*.partial"), *(self._folder / "tmp").rglob("*"))
        kept = {each.name for each in out if not each.name.startswith(_OF_TENSORFLOW)}
        if killed:  # it could not take away what it was writing
            self._of_the_killed = {each for each in kept if each.endswith(".partial")}
            return ""
        kept -= self._of_the_killed
        return f"files left: {sorted(kept)}" if kept else ""

    def _forked(
        self, work: Callable[[], dict[str, Any]], meanwhile: Callable[[int], None] = _wait
    ) -> dict[str, Any]:
        """What the work answers, done in a fork; ``bad``, where it does not."""
        inward, outward = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(inward)
            os.dup2(os.open(self._last_words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            faulthandler.register(signal.SIGUSR1)
            try:
                answer = work()
            except BaseException:
                self._shim.fault_arm(b"", 0)
                answer = {"status": 1, "said": "", "bad": traceback.format_exc()}
            rest = json.dumps(answer).encode()
            while rest:
                rest = rest[os.write(outward, rest) :]
            os._exit(0)
        os.close(outward)
        meanwhile(pid)
        data = _read_until(inward, time.monotonic() + _DEADLINE_S)
        os.close(inward)
        if data is None:
            os.kill(pid, signal.SIGUSR1)  # where it is goes to standard error
            time.sleep(_SAYING_S)
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not data:
            why = f"more than {_DEADLINE_S:g} s" if data is None else f"died with {status}"
            return {"status": 1, "said": "", "bad": f"{why}: {self._last_words.read_text()}"}
        answer = json.loads(data)
        return dict(answer)


def _read_until(descriptor: int, end: float) -> bytes | None:
    """All that comes until the pipe's other end is closed; None where that takes too long."""
    data = b""
    while select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(descriptor, 1 << 16)
        data += piece
        if not piece:
            return data
    return None


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
