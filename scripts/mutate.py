"""Plants random mutations, one at a time, and prints the share that the tests catch.

``make mutate SEED=7 COUNT=60`` draws 60 places of ``mlgo_gym`` and ``corpus_tools`` where one of
cosmic-ray's operators changes something, each with one of the changes that are possible there. A
copy of the checkout gets the change on disk, where workers and the compiler driver, which are
processes of their own, see it too. There run the tests of the module, then the others of its room,
then all others, until one fails that, alone, fails again, and passes without the
change.

What came of it is kept in ``build/mutations-SEED.json``: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ("mlgo_gym", "corpus_tools")
_ALL_TESTS: Final = ("tests", "README.md", "docs", *_PACKAGES)
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
    *("--timeout=120", "--timeout-method=thread"),
    *("-m", "not (network or stress)"),
)
_OUTCOME: Final = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)

_SUMMARY: Final = re.compile(r"^=* *((?:\d+ \w+(?:, )?)+ in [\d.]+s)", re.MULTILINE)

_NODES: Final = {
    "ReplaceBinaryOperator": {"operator"},
    "ReplaceComparisonOperator": {"comparison"},
    "ReplaceUnaryOperator": {"factor", "not_test"},
}
"""What an operator can change, of those of which there are many; asking all for all takes long."""


def _is_plain(name: str) -> bool:
    """False for `is` in place of `==` and the like: they differ by what Python happens to share."""
    kind, *operators = name.split("_")
    return kind != "ReplaceComparisonOperator" or len({"Is" in each for each in operators}) == 1


_FOUND: Final = {name.partition("/")[2]: get_operator(name) for name in operator_names()}
_OPERATORS: Final[dict[str, Any]] = {
    name: operator()
    for name, operator in _FOUND.items()
    if not operator.arguments() and _is_plain(name)
}


@dataclass(frozen=True)
class Mutation:
    """An operator, where it can be applied to a file for the n-th time."""

    path: str
    line: int
    operator: str
    occurrence: int

    def apply(self, source: str) -> str:
        """The file's text with the change."""
        changed: str = mutate_code(source, _OPERATORS[self.operator], self.occurrence)
        return changed


class _Meaning(ast.NodeTransformer):
    """Leaves out of a syntax tree what types, the words of errors, and memory depend on alone."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        node.exc = None
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "slots" else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)


def _meaning(source: str) -> str | None:
    try:
        return ast.dump(_Meaning().visit(ast.parse(source)))
    except SyntaxError:
        return None


def places(path: str, source: str) -> list[list[Mutation]]:
    """What can be done to a file, for each place in it."""
    found = defaultdict(list)
    occurrences: Counter[str] = Counter()
    operators = [(name, each, _NODES.get(name.split("_")[0])) for name, each in _OPERATORS.items()]
    for node in ast_nodes(get_ast(source)):
        for name, operator, kinds in operators:
            if kinds is not None and node.type not in kinds:
                continue
            for start, _ in operator.mutation_positions(node):
                mutation = Mutation(path, start[0], name, occurrences[name])
                occurrences[name] += 1
                if node.parent is None or node.parent.type != "parameters":  # a signature's `*`
                    found[start].append(mutation)
    return [found[start] for start in sorted(found)]


def draw(seed: int) -> Iterator[tuple[Mutation, str]]:
    """Mutations that mean something, in an order of the seed's, and the lines that each changes."""
    paths = [path for package in _PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    sources = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in paths
        if "_proto" not in path.parts
    }
    choices = [each for path, source in sources.items() for each in places(path, source)]
    random = np.random.default_rng(seed)
    for place in random.permutation(len(choices)):
        mutation = choices[place][random.integers(len(choices[place]))]
        before = sources[mutation.path]
        after = mutation.apply(before)
        if _meaning(after) not in {None, _meaning(before)}:
            lines = difflib.ndiff(before.splitlines(), after.splitlines())
            yield mutation, "\n".join(each for each in lines if each[0] in "-+")


@dataclass
class Checkout:
    """A copy of the work tree, with a home and temporary folders of its own."""

    folder: Path
    passing: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    """Tests that are known to pass, and to fail, without any mutation."""
    flickering: set[str] = field(default_factory=set)
    """Tests that have failed once, and not when they were run again."""
    status: int = 0
    said: str = ""
    """What came of the last run."""

    def __post_init__(self) -> None:
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listing, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        self._times = itertools.count(int(time.time()))
        self._home = self.folder.parent / "home"
        self._home.mkdir()

    def catch(self, mutation: Mutation, arguments: list[str]) -> str | None:
        """The test that a mutation fails, or None if none of pytest's ``arguments`` does.

        Alone it has to fail again, and to pass without the mutation: a busy machine is no mutation.
        """
        while failed := self._failure([*arguments, *self._left_out()], mutation):
            if "::" not in failed:
                if self._failure([*arguments, "--collect-only"]):
                    sys.exit(f"expected tests that are found without a mutation, found {failed}")
                return failed
            alone = [failed, "-n0"]
            if not self._failure(alone, mutation):
                self.flickering.add(failed)
            elif self.status == pytest.ExitCode.USAGE_ERROR or failed in self.passing:
                return failed  # a name that was cut off cannot be asked for
            elif self._failure(alone):
                self.failing.add(failed)
            else:
                self.passing.add(failed)
                return failed
        return None

    def _left_out(self) -> list[str]:
        return [f"--deselect={each}" for each in self.failing | self.flickering]

    def _failure(self, arguments: list[str], mutation: Mutation | None = None) -> str | None:
        """The first test that fails; afterwards all files are as they were."""
        if mutation is None:
            return self._first_failure(arguments)
        source = (self.folder / mutation.path).read_text("utf-8")
        self._write(mutation.path, mutation.apply(source))
        failed = self._first_failure(arguments)
        self._write(mutation.path, source)
        return failed

    def _write(self, path: str, source: str) -> None:
        """Change a file, with a time of its own: bytecode goes by time in seconds and size."""
        (self.folder / path).write_text(source, "utf-8")
        os.utime(self.folder / path, (moment := next(self._times), moment))

    def _first_failure(self, arguments: list[str]) -> str | None:
        shutil.rmtree(self._home / ".cache" / "mlgo-gym", ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self._home, ignore_cleanup_errors=True) as temporary:
            places = {"PYTHONPATH": str(self.folder), "HOME": str(self._home), "TMPDIR": temporary}
            process = subprocess.Popen(
                [*_PYTEST, *arguments],
                cwd=self.folder,
                env=os.environ | places,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
                errors="replace",
            )
            try:
                output, _ = process.communicate(timeout=3600)
            except subprocess.TimeoutExpired:
                output = "FAILED all: an hour was not enough"
            finally:
                self._end_all_of(process)
        self.status = process.returncode
        self.said = (_SUMMARY.findall(output) or [output.strip()[-80:]])[-1]
        if self.status in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return None
        named = _OUTCOME.search(output)
        return named[1] if named else f"all: {output.strip().splitlines()[-1:]}"

    def _end_all_of(self, run: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        for each in psutil.process_iter():  # sessions of their own, too
            with contextlib.suppress(psutil.Error):
                if each.environ().get("HOME") == str(self._home):
                    each.kill()
        run.wait()


def stages(root: Path, path: str, jobs: str) -> list[list[str]]:
    """Arguments of pytest for one run after the other: a module's tests, its room's, the rest."""
    package, *rooms = Path(path).parts[:-1]
    room = Path("tests", rooms[0] if package == "mlgo_gym" and rooms else package)
    has_room = (root / room).is_dir()
    tests = sorted((root / room).rglob("test_*.py") if has_room else (root / "tests").glob("*.py"))
    own = [path, *(str(each.relative_to(root)) for each in tests if _is_about(each, path))]
    parallel = ["-n", jobs, "--dist=worksteal"]
    first = [*own, *(["-n0"] if len(own) < 4 else parallel)]
    done = [f"--ignore={each}" for each in own]
    rest = [*_ALL_TESTS, *parallel, *done]
    if not has_room:
        return [first, rest]
    return [first, [str(room), *parallel, *done], [*rest, f"--ignore={room}"]]


def _is_about(test: Path, path: str) -> bool:
    """Whether a test is named after a module, imports it, or calls the command of its name."""
    parent, _, stem = path.removesuffix(".py").replace("/", ".").rpartition(".")
    command = stem.strip("_").replace("_", "-")
    names = rf"\b{re.escape(parent)}(\.| import ){stem}\b|\"{command}\""
    return stem.strip("_") in test.stem or bool(re.search(names, test.read_text("utf-8")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Share of random mutations that the tests catch.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", default="auto", help="pytest's processes (default: %(default)s)")
    parser.add_argument("--rooms", action="store_true", help="leave out what is not of the room")
    parser.add_argument("--again", action="store_true", help="begin anew with those that survived")
    return parser.parse_args()


def main() -> int:
    """Go through the mutations of a seed; print what came of each, and the share at the end."""
    asked = _arguments()
    kept = ROOT / "build" / f"mutations-{asked.seed}.json"
    kept.parent.mkdir(exist_ok=True)
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    caught = 0
    with tempfile.TemporaryDirectory(prefix="mutate-", ignore_cleanup_errors=True) as folder:
        checkout = Checkout(Path(folder) / "checkout")
        drawn = itertools.islice(draw(asked.seed), asked.count)
        for number, (mutation, lines) in enumerate(drawn, 1):
            title = f"{number}. {mutation.path}:{mutation.line} {mutation.operator}\n{lines}"
            result = results.setdefault(title, {"passed": [], "caught_by": None})
            if asked.again and not result["caught_by"]:
                result["passed"] = []
            runs = stages(checkout.folder, mutation.path, asked.jobs)[: -1 if asked.rooms else None]
            while not result["caught_by"] and len(result["passed"]) < len(runs):
                result["caught_by"] = checkout.catch(mutation, runs[len(result["passed"])])
                if not result["caught_by"]:
                    result["passed"].append(checkout.said)
                kept.write_text(json.dumps(results, indent=1))
            caught += result["caught_by"] is not None
            passed = f"SURVIVED: {'; '.join(result['passed'])}"
            sys.stdout.write(f"{title}\n  {result['caught_by'] or passed}\n")
            sys.stdout.flush()
    sys.stdout.write(f"caught {caught} of {asked.count}: {caught / asked.count:.1%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
