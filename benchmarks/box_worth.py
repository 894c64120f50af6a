"""What a few boxed calls say of the whole program.

python -m benchmarks.box_worth mutants [--corpus DIR] [--workload NAME] [--count N]
python -m benchmarks.box_worth ranks [--corpus DIR] [--workload NAME] [--candidates N]

``mutants`` changes one operation of a function, runs the whole program with that code, and says of
the changes that its output shows how many the boxed calls show. ``ranks`` compiles a function under
random decisions, and compares the instructions of its boxed calls with those of the whole program,
by valgrind, as ranks (Spearman).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import rank_correlation
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
from mlgo_gym.errors import MlgoGymError
from mlgo_gym.lab.boxes import Box, BoxedProgram
from mlgo_gym.lab.boxes._described import Prepared
from mlgo_gym.lab.programs import Program, meter_named
from mlgo_gym.llvm import options_of
from mlgo_gym.stream import Observation

CHANGES = (
    *((" add ", " sub "), (" sub ", " add "), (" mul ", " add "), (" and ", " or ")),
    *((" or ", " and "), (" xor ", " or "), (" shl ", " lshr "), (" lshr ", " shl ")),
    *(("icmp eq", "icmp ne"), ("icmp ne", "icmp eq"), ("icmp slt", "icmp sle")),
    *(("icmp ult", "icmp ule"), ("icmp sgt", "icmp sge"), ("icmp ugt", "icmp uge")),
)
FLAGS = re.compile(r" (?:nuw|nsw|exact|disjoint)\b")
HOTTEST = 5
Floats = NDArray[np.float64]


def boxes_of(program: BoxedProgram, function: str, calls: int) -> list[Box]:
    """The representative calls and the one in the middle, of those that can be repeated."""
    try:
        chosen = {*program.representative(function, calls), (calls + 1) // 2}
    except MlgoGymError:
        return []
    found = []
    for box in program.boxes([(function, call) for call in sorted(chosen)]):
        try:
            _ = box.original
        except MlgoGymError:
            continue
        found.append(box)
    return found


def mutants(program: BoxedProgram, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = program.calls()
    shown, seen, same, broken = 0, 0, 0, 0
    known: dict[str, list[Box]] = {}
    with Compiler() as compiler:
        for _ in range(count):
            function = str(rng.choice(list(calls)))
            boxes = known.setdefault(function, boxes_of(program, function, calls[function]))
            module = program.module(function)
            text = changed(module.data.decode(), rng)
            if not boxes or text is None:
                continue
            own = replace(module, data=text.encode())
            try:
                made = compiler.compile_module(own, options_of(module), keep_object=True)
                image = program.image(function, made.object_bytes or b"")
            except MlgoGymError:
                broken += 1
                continue
            if is_right(program, function, image):
                same += 1
                continue
            shown += 1
            seen += any(box.trial(image).difference for box in boxes)
    print(
        f"{program.workload.name}: {shown} changes of {shown + same} change its output; boxes show "
        f"{seen} of them ({seen / max(shown, 1):.0%})"
    )


def is_right(program: BoxedProgram, function: str, image: object) -> bool:
    workload = program.workload
    try:
        done = program.run_with(function, image)  # type: ignore[arg-type]
    except MlgoGymError:
        return False
    return (done.status, done.stdout_sha256) == (workload.exit_status, workload.stdout_sha256)


def changed(text: str, rng: np.random.Generator) -> str | None:
    """The module with one operation of the function changed."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if re.match(r"define (?!available)", line))
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    places = [
        (i, old, new)
        for i in range(start + 1, end)
        for old, new in CHANGES
        if f"={old}" in lines[i] or f"= {old}" in lines[i]
    ]
    if not places:
        return None
    place, old, new = places[rng.integers(len(places))]
    lines[place] = FLAGS.sub("", lines[place]).replace(old, new, 1)
    return "\n".join(lines)


def ranks(corpus: Corpus, workload: str, candidates: int, seed: int) -> None:
    problem, meter = InliningForSize(), meter_named("instructions")
    rng = np.random.default_rng(seed)
    with ExitStack() as stack, BoxedProgram.of(corpus, workload) as program:
        compiler = stack.enter_context(Compiler())
        prepared = Prepared(corpus, workload, None, compiler, stack)
        correlations = []
        for function, calls in hottest(program):
            boxes = boxes_of(program, function, calls)
            objects: dict[bytes, None] = {}
            for _ in range(candidates):
                objects[program.compiled(function, {problem: tossed(rng)})] = None
            costs = []
            for made in objects:
                image = program.image(function, made)
                counts = [box.trial(image, counted=True).instructions for box in boxes]
                path = prepared.linked({function: made})
                (reading,) = meter.read(program.workload, [Program(path, 0, "")])
                costs.append((sum(each or 0 for each in counts), reading.value))
            if len(costs) > 2:
                boxed, whole = np.array(costs, float).T
                correlations.append(rank_correlation(boxed, whole, constant=1.0))
                print(
                    f"{function}: {len(costs)} candidates, {len(boxes)} calls, "
                    f"{correlations[-1]:.3f}",
                    flush=True,
                )
        mean = f"{np.mean(correlations):.3f}" if correlations else "of nothing"
        print(f"{workload}: mean rank correlation {mean}")


def tossed(rng: np.random.Generator) -> Callable[[Observation], int]:
    """A policy that inlines a share of the calls, which is another for each."""
    share = rng.random()
    return lambda _: int(rng.random() < share)


def hottest(program: BoxedProgram) -> Iterator[tuple[str, int]]:
    """Functions that execute most, in whose code LLVM asks about several calls."""
    calls = program.calls()
    found = []
    for box in program.boxes([(name, (count + 1) // 2) for name, count in calls.items()]):
        try:
            counted = box.trial(counted=True).instructions
        except MlgoGymError:
            counted = None
        if counted:
            found.append((counted * calls[box.function], box.function))
        box.close()
    several = (name for _, name in sorted(found, reverse=True) if asked(program, name) > 1)
    for name in islice(several, HOTTEST):
        yield name, calls[name]


def asked(program: BoxedProgram, function: str) -> int:
    """How many decisions there are in a function's code."""
    seen: list[int] = []

    def never(_: object) -> int:
        seen.append(0)
        return 0

    program.compiled(function, {InliningForSize(): never})
    return len(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("mutants", "ranks"))
    parser.add_argument("--corpus", default=SAMPLE_CORPUS)
    parser.add_argument("--workload", default="json")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    corpus = Corpus.load(options.corpus)
    if options.what == "ranks":
        ranks(corpus, options.workload, options.candidates, options.seed)
        return
    with BoxedProgram.of(corpus, options.workload) as program:
        # What takes so much longer does not end.
        program.workload = replace(program.workload, timeout_s=1)  # type: ignore[misc]
        mutants(program, options.count, options.seed)


if __name__ == "__main__":
    main()
