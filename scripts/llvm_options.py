"""Tries each of LLVM's own options and lists those that do nothing but change the code.

``python scripts/llvm_options.py`` writes ``corpus_tools/allowed/llvm_options.txt``; needs strace.
An option gets in if it is of a kind that can be checked (a number, a truth value, a listed word),
its name does not speak of what is shown, kept or read, and modules for each of `_TRIPLES`
were compiled with values of it while the system was asked for no file, no program and no socket,
and nothing but a diagnostic was printed. ``--check`` tries again and compares with the list.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.llvm._target import Target
from mlgo_gym.llvm.command._own_options import known_llvm_options
from mlgo_gym.llvm.worker import _binding as binding

_TABLE: Final = Path(__file__).parents[1] / "corpus_tools" / "allowed" / "llvm_options.txt"
_TRIPLES: Final = (
    *("x86_64-pc-linux-gnu", "aarch64-linux-gnu", "armv7-linux-gnueabihf", "riscv64-linux-gnu"),
    *("powerpc64le-linux-gnu", "s390x-linux-gnu", "mips64-linux-gnu", "loongarch64-linux-gnu"),
    *("hexagon-linux-musl", "wasm32-unknown-unknown"),
)
_SMALL: Final = """
declare i32 @g(i32)
define internal i32 @h(i32 %x) {
  %y = mul i32 %x, 3
  ret i32 %y
}
define i32 @f(ptr %p, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %join ]
  %at = getelementptr i32, ptr %p, i32 %i
  %x = load i32, ptr %at
  switch i32 %x, label %other [ i32 1, label %one
    i32 2, label %join
    i32 3, label %other ]
one:
  %a = call i32 @g(i32 %x)
  br label %join
other:
  %b = call i32 @h(i32 %x)
  br label %join
join:
  %r = phi i32 [ %a, %one ], [ %b, %other ], [ 5, %loop ]
  store i32 %r, ptr %at
  %next = add nsw i32 %i, 1
  %done = icmp sge i32 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret i32 %r
}
"""
# Words of a name that speak of something else than code: such options are not even tried.
_OTHER: Final = re.compile(
    r"(^|[-_.])(advisor|bisect|color|debug|debugify|dir|display|dot|dump|export|file|graphs?|help"
    r"|interactive|log|ml|mlregalloc|print|printer|printing|progress|record|remarks?|replay|report"
    r"|reproducers?|save|show|statistics|stats|time|timers|trace|track|training|verbose|version"
    r"|view|warn|warning|write|yaml)([-_.]|$)"
)
_VALUES: Final = {"flag": ("true", "false"), "int": ("0", "1024"), "number": ("0.5", "2")}
_SECONDS: Final = 20
_DIAGNOSTICS: Final = re.compile("^(remark|warning): .*", re.MULTILINE)
_REFUSED: Final = "mlgo_gym: for the --"
_TRACED: Final = "trace=%file,socket,connect"
_MARK: Final = "/no/such/folder/"
_CALL: Final = re.compile(r'(\d+) +(\w+)\([^"]*(?:"([^"]*)")?')


def kind_of(pattern: str) -> str:
    """How the table spells a pattern of values."""
    for kind, one in (("flag", "true"), ("number", "0.5"), ("int", "7")):
        if re.fullmatch(pattern, one):
            return kind
    return pattern.replace("\\", "")


def trials(known: Mapping[str, str]) -> Iterator[str]:
    """Each option with some values, but those of `_OTHER`."""
    for name, pattern in sorted(known.items()):
        if _OTHER.search(name):
            continue
        kind = kind_of(pattern)
        for value in _VALUES.get(kind, kind.split("|")):
            yield f"{name}={value}"


def _texts() -> list[str]:
    with binding.parse(
        Corpus.load(SAMPLE_CORPUS)["frame_stream.c"].data, is_text=False, verify=True
    ) as module:
        ours = str(module)
    return [ours, *(f'target triple = "{each}"\n{_SMALL}' for each in _TRIPLES)]


def _compile(session: binding.Session, option: str, texts: list[str]) -> None:
    target = Target("O2", "pic", "default", None, None, None)
    session.set_options([f"-{option}"] if option else [])
    for text in texts:
        with binding.parse(text.encode(), is_text=True, verify=True) as module:
            binding.emit_object(module, target, binding.optimize(module, target))


def _try(session: binding.Session, option: str, texts: list[str]) -> str:
    """What became of a trial: ``ok``, ``shown`` or ``failed``."""
    with tempfile.TemporaryFile() as said:
        if (pid := os.fork()) == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(3 * _SECONDS)
            status = 1
            try:
                os.access(_MARK + option, 0)
                _compile(session, option, texts)
                os.access(_MARK, 0)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        shown = _DIAGNOSTICS.sub("", said.read().decode("utf-8", "replace")).strip()
    return "failed" if status or _REFUSED in shown else "shown" if shown else "ok"


def _try_all(results: Path, share: int, part: int) -> None:
    """Try them, each in a fork of this process."""
    chosen = list(trials(known_llvm_options()))[part::share]
    session = binding.Session()
    texts = _texts()
    _compile(session, "", texts)  # what LLVM prepares once, the forks have
    with results.open("w", encoding="ascii") as file:
        for option in chosen:
            file.write(f"{option} {_try(session, option, texts)}\n")
            file.flush()


def _asked_for(log: Path) -> dict[str, set[str]]:
    """The paths, programs and sockets that each trial asked the system for."""
    trial: dict[str, str] = {}
    found = defaultdict(set)
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not (match := _CALL.match(line)):
                continue
            pid, call, path = match.groups()
            if path is not None and path.startswith(_MARK):
                trial[pid] = path.removeprefix(_MARK)
            elif trial.get(pid):
                found[trial[pid]].add(f"{call} {path}")
    return found


def _outcomes(folder: Path, arguments: Sequence[str]) -> dict[str, set[str]]:
    """What became of each option's trials, in a process that strace looks at."""
    log, results = folder / "log", folder / "results"
    trace = ["strace", "-f", "-qq", "--seccomp-bpf", "-s", "200", "-e", _TRACED, "-o", str(log)]
    own = [sys.executable, __file__, "--results", str(results), *arguments]
    subprocess.run([*trace, *own], check=True)
    asked = _asked_for(log)
    found: dict[str, set[str]] = defaultdict(set)
    for line in results.read_text(encoding="ascii").splitlines():
        option, outcome = line.rsplit(" ", 1)
        found[option.partition("=")[0]].add("asked" if asked.get(option) else outcome)
    return found


def _is_pure(outcomes: set[str]) -> bool:
    return outcomes <= {"ok", "failed"}


def _check(found: Mapping[str, set[str]]) -> int:
    listed = {line.partition(" ")[0] for line in _TABLE.read_text(encoding="ascii").splitlines()}
    wrong = sorted(name for name in listed & found.keys() if not _is_pure(found[name]))
    sys.stdout.write(
        f"{len(listed & found.keys())} listed options tried; more than code: {wrong}\n"
    )
    return 1 if wrong else 0


def _write(found: Mapping[str, set[str]]) -> int:
    known = known_llvm_options()
    pure = sorted(name for name, each in found.items() if "ok" in each and _is_pure(each))
    _TABLE.write_text("".join(f"{name} {kind_of(known[name])}\n" for name in pure))
    sys.stdout.write(f"{len(pure)} of {len(known)} options\n")
    return 0


def main() -> int:
    """Try, and write the table or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--share", type=int, default=1, help="try one trial in so many")
    parser.add_argument("--part", type=int, default=0, help="the first of these")
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.results:
        _try_all(options.results, options.share, options.part)
        return 0
    chosen = [f"--share={options.share}", f"--part={options.part}"]
    with tempfile.TemporaryDirectory(prefix="llvm_options.") as folder:
        found = _outcomes(Path(folder), chosen)
    return _check(found) if options.check else _write(found)


if __name__ == "__main__":
    sys.exit(main())
