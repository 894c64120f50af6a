"""What comes out, as hashes: two revisions of this project make the same objects, or do not.

Every module of some corpora is compiled under LLVM's default, always, never and the shipped models,
through the command line alone, which stays what it is when the code behind it moves::

    python -m benchmarks.object_hashes --corpus corpora/lupa --save before.json
    python -m benchmarks.object_hashes --corpus corpora/lupa --against before.json

The sample corpus is always among them. The exit status is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_RUNS: Final = {
    "default": ("--policy", "default"),
    "always": ("--policy", "always"),
    "never": ("--policy", "never"),
    "inliner": ("--model", "inlining-for-size"),
    "eviction beside": ("--policy", "default", "--also", "regalloc-eviction=lowest-density"),
    "eviction": ("--problem", "regalloc-eviction", "--model", "regalloc-eviction"),
    "lowest density": ("--problem", "regalloc-eviction", "--policy", "lowest-density"),
    "by size": ("--problem", "regalloc-priority", "--policy", "by-size"),
}
_HASHES: Final = ("object_sha256", "machine_code_sha256")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="object_hashes", description=__doc__)
    parser.add_argument("--corpus", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--run", choices=_RUNS, action="append", help="default: all; repeat")
    parser.add_argument("--jobs", default="2", metavar="N")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--save", type=Path, metavar="FILE")
    target.add_argument("--against", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    found = dict(_hashes([None, *options.corpus], options.run or list(_RUNS), options.jobs))
    if options.save:
        options.save.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} hashes in {options.save}")
        return 0
    return _compare(json.loads(options.against.read_text()), found)


def _hashes(
    corpora: list[Path | None], runs: list[str], jobs: str
) -> Iterator[tuple[str, str | None]]:
    for corpus in corpora:
        for run in runs:
            place = ["--corpus", str(corpus)] if corpus else []
            for module in _rollout([*place, *_RUNS[run], "--jobs", jobs])["modules"]:
                key = f"{corpus.name if corpus else 'sample'} / {run} / {module['module']}"
                yield f"{key} / LLVM", _hash_of(module.get("baseline"))
                for result in module["policies"].values():
                    yield key, _hash_of(result)


def _rollout(options: list[str]) -> dict[str, Any]:
    """What ``mlgo-gym rollout`` answers; it fails where a module does, which is a result too."""
    program = Path(sys.executable).with_name("mlgo-gym")
    command = [str(program), "rollout", *options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _hash_of(result: dict[str, Any] | None) -> str | None:
    return next((result[each] for each in _HASHES if each in result), None) if result else None


def _compare(before: dict[str, str | None], after: dict[str, str | None]) -> int:
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    for key in differing:
        print(f"{key}: expected {before.get(key)}, found {after.get(key)}")
    print(f"{len(after) - len(differing)} of {len({**before, **after})} equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
