"""How the estimate of executed instructions goes with what valgrind counts.

::

    python -m benchmarks.estimate CORPUS... --output FILE [--modules 4] [--flips 2]
    python -m benchmarks.estimate --read FILE...

Of each corpus a profile is collected and attached, and modules are drawn that its programs execute
and that LLVM asks about a few times. Each is compiled under the default, and with everything
inlined, nothing, the shipped model, and a tenth of the default answers flipped; what makes the
default's object is left out. Printed are rank correlations of the estimate's change with the change
of the instructions that the module's programs execute, with intervals by packages drawn anew: over
all, within packages, and within modules; how often both have the same sign; and what each takes.

Corpora are folders with workloads, or folders of them.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import rank_correlation
from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.corpus import Packages
from mlgo_gym.errors import CompilationError, ModuleError, WorkloadError
from mlgo_gym.lab.programs import Estimate, attach_profile, collect_profile, corpora_with_workloads
from mlgo_gym.lab.programs._estimate import KeptEstimateUnit
from mlgo_gym.lab.programs._measures import ExecutedInstructions, Reach
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.llvm import options_of
from mlgo_gym.model import find_model
from mlgo_gym.problems._inlining_for_size import always, default, never
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.runners import model_policies
from mlgo_gym.stream import Observation

FLIPPED = 0.1
LEAST_DECISIONS = 5
DRAWS = 2000
MODEL = "inlining-for-size"
BASELINE = "default"


def run(corpora: Sequence[Path], output: Path, modules: int, flips: int, seed: int) -> None:
    with output.open("a") as file, tempfile.TemporaryDirectory() as folder:
        for package, corpus in corpora_with_workloads(Packages.load(corpora).named).items():
            start = perf_counter()
            counted = Path(folder, package.replace("/", "_"))
            attach_profile(corpus, collect_profile(corpus).profile, counted)
            print(f"{package}: profile in {perf_counter() - start:.1f} s", flush=True)
            for row in rows(Corpus.load(counted), modules, flips, seed):
                row["package"] = package
                print(json.dumps(row), file=file, flush=True)


def rows(corpus: Corpus, modules: int, flips: int, seed: int) -> Iterator[dict[str, Any]]:
    """What came of compilations of some modules of a corpus."""
    problem = InliningForSize()
    names = list(corpus)
    random.Random(f"{seed} {corpus.folder.name}").shuffle(names)  # noqa: S311 (no secret)
    with (
        Programs(corpus) as programs,
        Compiler() as compiler,
        model_policies([find_model(MODEL)], "release", problem) as models,
    ):
        reach = Reach(programs)
        measure = ExecutedInstructions(reach)
        found = 0
        for name in names:
            if found == modules:
                break
            policies: dict[str, PolicyLike] = {"always": always, "never": never, **models}
            policies |= {f"flips {n}": flipping(f"{seed} {name} {n}") for n in range(flips)}
            try:
                reach.workloads_of(name)
                made = list(compilations(compiler, corpus, name, policies, measure))
            except (ModuleError, CompilationError, WorkloadError) as error:
                print(f"  {name}: {error}", flush=True)
                continue
            found += bool(made)
            yield from made


def compilations(
    compiler: Compiler,
    corpus: Corpus,
    name: str,
    policies: dict[str, PolicyLike],
    measure: ExecutedInstructions,
) -> Iterator[dict[str, Any]]:
    module = corpus[name]
    unit = KeptEstimateUnit(compiler, module, options_of(module), InliningForSize())
    for policy, answers in {BASELINE: default, **policies}.items():
        start = perf_counter()
        result = unit.attempt(answers)
        compiled = perf_counter()
        if result.decisions < LEAST_DECISIONS:
            return
        counted = measure.score(result)
        try:
            estimate = Estimate().score(result)
        except ModuleError as error:  # of LLVM's own: the module cannot be estimated
            if policy == BASELINE:
                raise
            print(f"  {name}, {policy}: {error}", flush=True)
            continue
        yield {
            "module": name,
            "policy": policy,
            "object": result.object_sha256,
            "decisions": result.decisions,
            "estimate": estimate,
            "instructions": counted,
            "text": result.text_size_bytes,
            "compiled_s": compiled - start,
            "counted_s": perf_counter() - compiled,
        }


def flipping(seed: str) -> PolicyLike:
    generator = random.Random(seed)  # noqa: S311 (no secret)

    def answer(observation: Observation) -> int:
        return default(observation) ^ int(generator.random() < FLIPPED)

    return answer


def read(files: Sequence[Path]) -> None:
    """Print what rows say."""
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    plain = {(r["package"], r["module"]): r for r in found if r["policy"] == BASELINE}
    by_package: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for row in found:
        before = plain[row["package"], row["module"]]
        if row["object"] != before["object"]:
            change = [row[key] - before[key] for key in ("estimate", "instructions")]
            by_package[row["package"]].append((row["module"], *change))
    packages = list(by_package)
    total = sum(map(len, by_package.values()))
    print(f"{total} compilations that differ from LLVM's own, out of "
          f"{len(found) - len(plain)}, of {len(plain)} modules in {len(packages)}")  # fmt: skip
    for package in packages:
        value = within(by_package[package], by_module=False)
        print(f"  {package:16} {value:.3f}" if value is not None else f"  {package:16} -")
    generator = np.random.default_rng(0)
    for what, of in (("in all", overall), ("within packages", packaged), ("within modules", alone)):
        value = of([by_package[each] for each in packages])
        drawn = (generator.integers(len(packages), size=len(packages)) for _ in range(DRAWS))
        again = [of([by_package[packages[i]] for i in draw]) for draw in drawn]
        low, high = np.nanpercentile(again, [2.5, 97.5])
        print(f"{what:16} {value:.3f} [{low:.3f}, {high:.3f}]")
    changes = np.array([row[1:] for rows in by_package.values() for row in rows])
    moved = changes[changes[:, 1] != 0]
    agree = np.mean(np.sign(moved[:, 0]) == np.sign(moved[:, 1]))
    print(f"same sign: {agree:.3f} of {len(moved)}; compiling with the estimate "
          f"{np.median([r['compiled_s'] for r in found]):.2f} s, counting "
          f"{np.median([r['counted_s'] for r in found]):.2f} s in the median")  # fmt: skip


Changes = list[tuple[str, float, float]]


def overall(packages: Sequence[Changes]) -> float:
    return spearman(np.array([row[1:] for changes in packages for row in changes]))


def packaged(packages: Sequence[Changes]) -> float:
    return mean([within(changes, by_module=False) for changes in packages])


def alone(packages: Sequence[Changes]) -> float:
    return mean([within(changes, by_module=True) for changes in packages])


def within(changes: Changes, *, by_module: bool) -> float | None:
    """The correlation in one package, or the mean of those in its modules."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for module, *change in changes:
        groups[module if by_module else ""].append((change[0], change[1]))
    tables = [np.array(group) for group in groups.values()]
    known = [spearman(each) for each in tables if len(set(each[:, 1])) > 2]
    return float(np.mean(known)) if known else None


def mean(values: Sequence[float | None]) -> float:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else float("nan")


def spearman(pairs: NDArray[Any]) -> float:
    """The rank correlation; 0 where one side is always the same."""
    estimated, counted = np.round(pairs).T
    return rank_correlation(estimated, counted, constant=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.estimate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--output", type=Path, default=Path("estimate.jsonl"))
    parser.add_argument("--modules", type=int, default=4)
    parser.add_argument("--flips", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read", nargs="+", type=Path)
    options = parser.parse_args()
    if options.corpora:
        run(options.corpora, options.output, options.modules, options.flips, options.seed)
    read(options.read or [options.output])


if __name__ == "__main__":
    main()
