"""What inlining makes of programs where policies see how hot calls are, and where they do not.

::

    python -m benchmarks.hotness CORPUS... [--counted DIR] [--model DIR]... [--output FILE]
    python -m benchmarks.hotness --read FILE...

Corpora are folders with workloads, or folders of them. Each gets the counts of its own programs, in
a folder that is kept if it is named, and taken from there the next time. Programs of the plain
corpora are LLVM's; those of the counted ones LLVM's, rules', and models'. Printed are geometric
means of size and executed instructions over programs, against LLVM without a profile, with
intervals by packages and programs drawn anew, and each program's.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlgo_gym import InliningForSize
from mlgo_gym.corpus import Corpus, Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.programs import (
    Reading,
    attach_profile,
    collect_profile,
    corpora_with_workloads,
    meter_named,
)
from mlgo_gym.lab.programs._program_scores import ProgramScores, measured_programs, program_change
from mlgo_gym.problems import PolicyLike
from mlgo_gym.rollout._rollout import BASELINE
from mlgo_gym.runners import model_policies
from mlgo_gym.stream import Observation

METERS = ("size", "instructions")
COUNTED = "LLVM with the profile"
HOTNESS = InliningForSize(hotness=True, derived=True, size_increase_threshold=math.inf)
LEFT = InliningForSize(skip_policy="if-caller-not-cold", size_increase_threshold=math.inf)


def below(cost: int) -> Callable[[Observation], int]:
    """Inline what costs less."""
    return lambda observation: int(observation["cost_estimate"][0] < cost)


def by_share(observation: Observation) -> int:
    """Inline what costs less than 5, and four more for each step of the share above 170."""
    share = int(observation["call_share"][0])
    return int(observation["cost_estimate"][0] < min(225, 5 + 4 * max(0, share - 170)))


RULES: Mapping[str, Callable[[Observation], int]] = {
    **{f"below {cost}": below(cost) for cost in (5, 100, 225)},
    "by share": by_share,
}


def run(corpora: Sequence[Path], counted: Path, models: Sequence[Path], output: Path) -> None:
    names = list(map(str, models))
    with model_policies(names, "release", HOTNESS) as made, output.open("a") as file:
        for package, corpus in corpora_with_workloads(Packages.load(corpora).named).items():
            folder = counted / package.replace("/", "_")
            if not folder.exists():
                attach_profile(corpus, collect_profile(corpus).profile, folder)
            known = Corpus.load(folder)
            ways: list[tuple[str, Corpus, InliningForSize, dict[str, PolicyLike]]] = [
                (BASELINE, corpus, HOTNESS, {}),
                (COUNTED, known, HOTNESS, {**RULES, **made}),
                ("", known, LEFT, {"below 5 in cold callers": below(5)}),
            ]
            for name, each, problem, policies in ways:
                for row in rows(package, each, problem, policies, name):
                    print(json.dumps(row), file=file, flush=True)


def rows(
    package: str,
    corpus: Corpus,
    problem: InliningForSize,
    policies: dict[str, PolicyLike],
    baseline: str,
) -> Iterator[dict[str, Any]]:
    """The readings of a corpus's programs; those of LLVM's own under this name, if there is one."""
    setting = Setting(problem, jobs=1)
    meters = [meter_named(each) for each in METERS]
    for scores in measured_programs({package: corpus}, policies, setting, meters):
        if scores.error:
            print(f"{scores.label}: {scores.error}", flush=True)
        for policy, readings in scores.readings.items():
            if policy != BASELINE or baseline:
                yield {
                    "package": package,
                    "workload": scores.workload,
                    "policy": baseline if policy == BASELINE else policy,
                    **{meter: each.value for meter, each in readings.items()},
                }


def read(files: Sequence[Path]) -> None:
    """Print what rows say."""
    programs: dict[tuple[str, str], dict[str, dict[str, Reading]]] = {}
    for row in (json.loads(line) for file in files for line in file.read_text().splitlines()):
        readings = {meter: Reading(row[meter]) for meter in METERS}
        programs.setdefault((row["package"], row["workload"]), {})[row["policy"]] = readings
    scores = [ProgramScores(*key, readings) for key, readings in programs.items()]
    packages = {each.package for each in scores}
    print(f"{len(scores)} programs of {len(packages)} packages, against LLVM without a profile")
    for policy in dict.fromkeys(name for each in scores for name in each.readings):
        known = [each for each in scores if {policy, BASELINE} <= each.readings.keys()]
        changes = (program_change(known, policy, meter) for meter in METERS)
        print(
            f"{policy:28}",
            *(f"{meter} {in_words(change)}" for meter, change in zip(METERS, changes, strict=True)),
        )
        for each in known:
            ratios = (f"{100 * (each.ratio(policy, meter) - 1):+7.2f} %" for meter in METERS)
            print(f"  {each.label:26}", *ratios)


def in_words(change: Any) -> str:
    low, high = change.interval or (change.value, change.value)
    return f"{100 * change.value:+.2f} % [{100 * low:+.2f}, {100 * high:+.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hotness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--counted", type=Path)
    parser.add_argument("--model", action="append", default=[], type=Path)
    parser.add_argument("--output", type=Path, default=Path("hotness.jsonl"))
    parser.add_argument("--read", nargs="+", type=Path)
    options = parser.parse_args()
    if options.corpora:
        with tempfile.TemporaryDirectory() as folder:
            counted = options.counted or Path(folder)
            run(options.corpora, counted, options.model, options.output)
    read(options.read or [options.output])


if __name__ == "__main__":
    main()
