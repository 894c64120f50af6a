"""``make hardships``: every command, on input that is well, on a machine that is not.

- **killed**: SIGKILL at 20 moments of its time. Two seconds later no process is left that it has
  started; the next run ends well, writes what a run writes that nobody disturbed, as far as two of
  these agree, and leaves nothing in the temporary folder.
- **descriptors**: at most 32 are open. **memory**: 300 MB of address space. **2040**: the clock is
  there. **jumps**: it jumps an hour ahead and back, all the time. The command ends well or says in
  a line why not; nothing is a traceback or a signal.
- **full**: the disk has no room for another byte. **filling**: it has some for 64 kB. The same; and
  a command that ends well has written every file that it writes elsewhere. The disk is a tmpfs in a
  mount namespace of its own.

``python -m tests.faults.hardships WORD...`` tries the commands of these names alone.
``build/hardships.json`` keeps what came of each; the same command goes on where it stopped.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mlgo_gym.base import _files as files
from mlgo_gym.training._train import TENSORFLOW_SETTINGS
from tests.cli.command import PROGRAM
from tests.faults.__main__ import build_library
from tests.faults.inputs import LONGEST_LINE, commands, small_corpus

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build" / "hardships.json"
KILLS: Final = 20
GRACE_S: Final = 2.0
DEADLINE_S: Final = 300.0
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PR_SET_CHILD_SUBREAPER: Final = 36

CORPUS: Final = ("--corpus", "in/corpus")
WORKLOAD: Final = (*CORPUS, "--workload", "json")
MODEL: Final = ("--model", "inlining-for-size")
TIERS: Final = "in/tiers/own.json"
HASHES: Final = ("--hashes", "in/tiers/own.sha256")
QUICK: Final = tuple(
    word
    for each in (
        *("rounds=1", "batches=1", "hidden=[8]"),
        *("fit.epochs=2", "teacher.bags=1", "teacher.iterations=10"),
    )
    for word in ("--set", each)
)
ENDLESS: Final = {"serve": 4.0}
"""Commands that end when they are told to, and the seconds in which they are killed."""
TIMED: Final = {"demo", "search"}
"""Commands that do as much as they can in their time, so that no two runs need be equal."""
ONCE: Final = {"bench submit", "workload new"}
"""Commands that refuse to do again what is done, as it may be before the last of the kills."""
LINES: Final[Mapping[str, tuple[str, ...]]] = {
    "demo": (*CORPUS, "--budget", "10s", "--plot", "out/demo.png"),
    "doctor": (),
    "models": (),
    "corpus build": ("xxhash", "--output", "out/corpus"),
    "corpus recipes": (),
    "corpus split": ("--corpus", "in/corpora", "--output", "out/parts"),
    "corpus split-functions": (*CORPUS, "--output", "out/parts"),
    "corpus stats": CORPUS,
    "corpus verify": CORPUS,
    "dataset record": (*CORPUS, "--output", "out/set"),
    "dataset info": ("in/set",),
    "dataset import": ("in/never.log", "--output", "out/set"),
    "dataset export": ("in/set", "--log", "out/set.log"),
    "train": ("advantage", *CORPUS, *QUICK, "--output", "out/run"),
    "search": (*CORPUS, "--budget", "2s", "--output", "out/traces"),
    "evaluate": (*CORPUS, *MODEL, "--html", "out/page.html"),
    "rollout": (*CORPUS, "--policy", "never", "--log", "out/never.log"),
    "replay": ("in/traces/digest.c.trace", *CORPUS),
    "freeze": (*MODEL, "--output", "out/frozen"),
    "compile": ("in/corpus/digest.c.bc", *MODEL, "-o", "out/digest.o"),
    "serve": (*MODEL, "--address", "unix:out/socket"),
    "bench suites": (),
    "bench fetch": (TIERS, "--archive", "in/own.tar.xz", "--output", "out/suite"),
    "bench pack": (TIERS, "--from", "in/tiers", *HASHES, "--output", "out/own.tar.xz"),
    "bench run": ("--suite", "in/suite", *MODEL, "--output", "out/a.run"),
    "bench submit": ("in/a.run", "--name", "a", "--authors", "b", "--into", "out/submissions"),
    "bench verify": ("in/submissions/a.zip", "--suite", "in/suite"),
    "bench table": ("in/verified", "--suite", "in/suite", "--output", "out/table"),
    "box calls": WORKLOAD,
    "box record": (*WORKLOAD, "--function", "parse_number", "--call", "5", "--output", "out/box"),
    "box try": ("in/box", "--policy", "never"),
    "project": ("--build", "in/build", "--output", "out/project.txt"),
    "size-report": ("in/build", "in/build", "--html", "out/page.html"),
    "explain": (*CORPUS, *MODEL, "--html", "out/page.html"),
    "explain-features": (*CORPUS, *MODEL, "--plots", "out/plots"),
    "measure": (*WORKLOAD, "--policy", "always", "--plot", "out/measured.svg"),
    "workload list": CORPUS,
    "workload new": ("two", "--corpus", "in/own", "--source", "in/main.c", "--module", "digest.c"),
    "workload run": (*WORKLOAD, "--program", "out/program"),
    "workload check": CORPUS,
    "profile collect": (*CORPUS, "--output", "out/json.profdata"),
    "profile attach": (*CORPUS, "--profile", "in/json.profdata", "--output", "out/counted"),
    "profile show": ("in/json.profdata",),
    "profile check": ("--corpus", "in/counted"),
    "tiers record": (*WORKLOAD, "--output", "out/json.npz"),
    "tiers play": ("in/json.npz",),
    "tiers check": ("in/json.npz", *WORKLOAD),
    "tune": (*CORPUS, *QUICK, "--budget", "20m", "--output", "out/tuned"),
    "vocabulary train": (*CORPUS, "--dimension", "2", "--epochs", "1", "--output", "out/v.json"),
    "distill": (*CORPUS, *MODEL, "--rounds", "1", "--lines", "20", "--output", "out/rule"),
}
"""Of each command a line on input that is well."""

SOURCES: Final = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(p C)\n"
    "add_executable(p main.c other.c)\n",
    "main.c": "int twice(int);\nint main(void) { return twice(21) - 42; }\n",
    "other.c": "static int same(int x) { return x; }\nint twice(int x) { return 2 * same(x); }\n",
}


def prepare(folder: Path) -> None:
    """Make ``in``, of which commands read."""
    from mlgo_gym import SAMPLE_CORPUS  # noqa: PLC0415 - when there is something to do
    from mlgo_gym.lab.bench import sample_suite  # noqa: PLC0415
    from mlgo_gym.lab.bench._archive import pack, unpack  # noqa: PLC0415
    from mlgo_gym.lab.tiers import SAMPLE_RECORDING  # noqa: PLC0415
    from mlgo_gym.llvm import embedded_version  # noqa: PLC0415

    made = folder / "in"
    (folder / "out").mkdir()
    (made / "source").mkdir(parents=True)
    names = ["digest.c", "json_read.c", "json_write.c", "lru_cache.cpp", "scene.cpp"]
    for corpus in ("corpus", "own"):
        small_corpus(made / corpus, names)
        shutil.copytree(Path(SAMPLE_CORPUS) / "workloads", made / corpus / "workloads")
    (made / "corpora").mkdir()
    small_corpus(made / "corpora" / "a", ["digest.c"])
    small_corpus(made / "corpora" / "b", ["scene.cpp"])
    for name, text in SOURCES.items():
        (made / "source" / name).write_text(text)
    (made / "tiers").mkdir()
    shutil.copy(SAMPLE_RECORDING, made / "tiers" / "json.npz")
    described: dict[str, object] = dict.fromkeys(("problem", "opt_level", "split"), "")
    described |= {"version": 1, "name": "own", "kind": "tiers", "about": "One.", "tracks": []}
    described |= {"llvm_version": embedded_version(), "packages": ["json"]}
    (made / "tiers" / "own.json").write_text(json.dumps(described))
    (made / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("2"); return 0; }\n')
    build = f"cmake -S {made}/source -B {made}/build -DCMAKE_C_COMPILER=clang-22"
    how = "-DCMAKE_C_FLAGS=-Oz -DCMAKE_BUILD_TYPE=None -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
    for line in (f"{build} {how}", f"cmake --build {made}/build"):
        subprocess.run(line.split(), check=True, capture_output=True)
    with sample_suite(["digest.c", "scene.cpp"]) as suite:
        pack(suite, made / "suite.tar.xz")
    unpack(made / "suite.tar.xz", made / "suite")
    for words in (
        ("bench", "pack", *LINES["bench pack"][:-1], "in/own.tar.xz"),
        ("rollout", *CORPUS, "--policy", "never", "--log", "in/never.log"),
        ("dataset", "record", *CORPUS, "--output", "in/set"),
        ("search", *CORPUS, "--budget", "1s", "--output", "in/traces"),
        ("bench", "run", "--suite", "in/suite", *MODEL, "--output", "in/a.run"),
        ("bench", "submit", *LINES["bench submit"][:-1], "in/submissions"),
        ("bench", "submit", *LINES["bench submit"][:-1], "in/verified"),
        ("bench", "verify", "in/verified/a.zip", "--suite", "in/suite"),
        ("box", "record", *LINES["box record"][:-1], "in/box"),
        ("profile", "collect", *LINES["profile collect"][:-1], "in/json.profdata"),
        ("profile", "attach", *LINES["profile attach"][:-1], "in/counted"),
        ("tiers", "record", *LINES["tiers record"][:-1], "in/json.npz"),
    ):
        command: list[str] = [*PROGRAM, *words]
        subprocess.run(command, check=True, cwd=folder, env=_environment(folder))


def _environment(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, **TENSORFLOW_SETTINGS, **own}


@dataclass(frozen=True)
class Ended:
    """How a command has ended, and what it said."""

    status: int
    said: str

    def fault(self) -> str:
        """What is wrong with it, if something is."""
        lines = self.said.splitlines()
        if "Traceback" in self.said or self.status not in {0, 1}:
            return f"status {self.status}: {self.said[-300:]}"
        if any(len(each) > LONGEST_LINE for each in lines):
            return f"a line of {max(map(len, lines))} characters"
        return "" if self.said or not self.status else f"status {self.status}, and not a word"

    def failure(self) -> str:
        """The same of what must end well."""
        return self.fault() or (f"status {self.status}: {self.said[-300:]}" if self.status else "")


class Bench:
    """A folder in which one command is tried, again and again from the same state."""

    def __init__(self, prepared: Path, folder: Path, name: str) -> None:
        self._prepared, self._folder = prepared, folder
        self._command = [*PROGRAM, *name.split(), *LINES[name]]
        self._endless_s = ENDLESS.get(name)
        self._is_timed = name in TIMED
        self.is_once: Final = name in ONCE
        self._processes: list[subprocess.Popen[bytes]] = []

    def fresh(self) -> None:
        """Everything as it was before."""
        self.clear("in", "out", "tmp")
        shutil.copytree(self._prepared / "in", self._folder / "in", symlinks=True)

    def clear(self, *names: str) -> None:
        """Empty folders."""
        for each in names:
            shutil.rmtree(self._folder / each, ignore_errors=True)
        (self._folder / "out").mkdir(exist_ok=True)

    def named(self) -> list[str]:
        """The paths of the files with something in them."""
        found = (each for top in ("in", "out") for each in (self._folder / top).rglob("*"))
        full = (each for each in found if each.is_file() and each.stat().st_size)
        return sorted(str(each.relative_to(self._folder)) for each in full)

    def start_on_disk(self, free_kb: int) -> subprocess.Popen[bytes]:
        """Start it on a disk with so much room; `named_on_disk` says what it has left there."""
        (self._folder / "disk").mkdir(exist_ok=True)
        environment = {"TMPDIR": str(self._folder / "disk" / "tmp"), "FREE": str(free_kb)}
        return self.start(environment, below=("unshare", "-rm", "sh", "-c", _ON_DISK, "sh"))

    def named_on_disk(self) -> list[str]:
        """`named`, of the disk that is gone."""
        return sorted((self._folder / "named").read_text().splitlines())

    def start(
        self, environment: Mapping[str, str] = NOTHING, *, below: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        with (self._folder / "said").open("wb") as said:
            return subprocess.Popen(
                [*below, *self._command],
                cwd=self._folder,
                env=_environment(self._folder) | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait for its end; what never ends is interrupted."""
        try:
            status = process.wait(self._endless_s or DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                status = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return Ended(-9, "it does not end when it is interrupted")
            if self._endless_s:
                status = 0
        return Ended(status, (self._folder / "said").read_text("utf-8", "replace"))

    def digests(self) -> dict[str, str]:
        """The hashes of what was written, by path."""
        return {
            str(path.relative_to(self._folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for top in ("in", "out")
            for path in sorted((self._folder / top).rglob("*"))
            if path.is_file() and not self._is_timed
            if path.name != "saved_model.pb"  # with numbers of all that its process did
            if ".tfevents." not in path.name  # of each run one
            if path.name != "report.html"  # says how long it took
        }

    def left(self) -> list[str]:
        """What is in the temporary folder, but for what TensorFlow leaves there."""
        found = (self._folder / "tmp").rglob("*")
        own = (each for each in found if not each.name.startswith("__autograph_generated_file"))
        return [str(each) for each in own if each.is_file()]


def killed(bench: Bench) -> str:
    """Kill it at moments of its time; what is wrong, if something is."""
    runs = []
    for _ in range(2):
        bench.fresh()
        began = time.monotonic()
        if fault := bench.ended(bench.start()).failure():
            return f"undisturbed: {fault}"
        took_s = time.monotonic() - began
        runs.append(bench.digests())
    bench.fresh()
    for number in range(KILLS):
        process = bench.start()
        time.sleep(took_s * (number + 0.5) / KILLS)
        process.kill()
        process.wait()
        if left := orphans():
            return f"kill {number}: left after {GRACE_S} s: {left}"
    if bench.is_once:
        bench.fresh()
    if fault := bench.ended(bench.start()).failure():
        return f"the next run: {fault}"
    return _other(bench, *runs)


def _other(bench: Bench, first: dict[str, str], second: dict[str, str]) -> str:
    """How what a run has left differs from what two others have left that agree."""
    found = bench.digests()
    equal = (name for name in first if first[name] == second.get(name))
    if other := [name for name in equal if found.get(name) != first[name]]:
        return f"the next run wrote something else: {other}"
    if more := sorted(found.keys() - first.keys() - second.keys()):
        return f"the next run left {more}"
    left = bench.left()
    return f"in the temporary folder: {left[:5]}" if left else ""


def orphans() -> list[str]:
    """What is still there of a command that was killed, some time after; it is killed, too."""
    ends = time.monotonic() + GRACE_S
    while (found := _children()) and time.monotonic() < ends:
        time.sleep(0.05)
        for number in found:
            with suppress(ChildProcessError):
                os.waitpid(number, os.WNOHANG)
    names = []
    for number in found:
        line = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ")
        names.append(line.decode(errors="replace")[:200])
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
    return names


def _children() -> list[int]:
    """The children of this process, which inherits those whose parents are gone."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(each) for each in found.split()]


def _limited(limit: str) -> Callable[[Bench], str]:
    def tried(bench: Bench) -> str:
        bench.fresh()
        return bench.ended(bench.start(below=("prlimit", limit))).fault()

    return tried


def _day(name: str) -> Callable[[Bench], str]:
    """The time of day is another; how long things take is true."""

    def tried(bench: Bench) -> str:
        bench.fresh()
        with tempfile.TemporaryDirectory() as folder:
            library = build_library(Path(folder), "clock")
            return bench.ended(
                bench.start({"LD_PRELOAD": str(library), "MLGO_DAY": name})
            ).failure()

    return tried


_ON_DISK: Final = """
trap : INT
mount -t tmpfs tmpfs disk && cp -a in out tmp disk && cd disk || exit 99
mount -o remount,size=$(($(du -sk . | cut -f1) + FREE))k . || exit 99
"$@"
status=$?
find -L in out -type f -size +0 > ../named
exit $status
"""


def _with_free(free_kb: int) -> Callable[[Bench], str]:
    """The disk has so much room."""

    def tried(bench: Bench) -> str:
        bench.fresh()
        if fault := bench.ended(bench.start()).failure():
            return f"undisturbed: {fault}"
        expected = bench.named()
        bench.fresh()
        ended = bench.ended(bench.start_on_disk(free_kb))
        if not ended.status and (lost := sorted(set(expected) - set(bench.named_on_disk()))):
            return f"it ended well without writing {lost}"
        return ended.fault()

    return tried


NOT_OURS: Final = {
    ("corpus build", "2040"): "certificates of servers have expired by then",
    ("dataset import", "memory"): "pyarrow aborts",
    ("distill", "memory"): "OpenBLAS interrupts a process that has no room for its threads",
}
"""What fails otherwise than it should, and why that stays."""

KINDS: Final[Mapping[str, Callable[[Bench], str]]] = {
    "killed": killed,
    "descriptors": _limited("--nofile=32"),
    "memory": _limited("--as=300000000"),
    "2040": _day("2040"),
    "jumps": _day("jumps"),
    "full": _with_free(0),
    "filling": _with_free(64),
}


def names() -> Iterator[str]:
    """Every command, as it is called."""
    return (" ".join(words) for words, _ in commands())


def main() -> int:
    """Try them all; the status is 1 if something is wrong."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children would ignore it, too
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wanted = re.compile("|".join(sys.argv[1:]))
    known = files.read_json(KEPT, 1 << 24) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as prepared, tempfile.TemporaryDirectory() as folder:
        ready = False
        for name in filter(wanted.search, names()):
            for kind, work in KINDS.items():
                if known.get(name, {}).get(kind) == "" or (name, kind) in NOT_OURS:
                    continue
                if not ready:  # by a process of its own, whose workers are not ours
                    code = "from tests.faults.hardships import Path, prepare"
                    command = [sys.executable, "-c", f"{code}; prepare(Path({prepared!r}))"]
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                    ready = True
                fault = work(Bench(Path(prepared), Path(folder), name))
                known.setdefault(name, {})[kind] = fault
                print(f"{name}, {kind}: {fault or 'well'}", flush=True)
                KEPT.parent.mkdir(exist_ok=True)
                files.write_json(KEPT, known)
    wrong = sum(bool(fault) for each in known.values() for fault in each.values())
    print(f"{len(known)} commands, {sum(map(len, known.values()))} trials, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
