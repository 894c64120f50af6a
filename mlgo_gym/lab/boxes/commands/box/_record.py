"""``mlgo-gym box record``: calls of a program's functions, boxed and written to a folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from corpus_tools.manifest import MANIFEST_NAME
from mlgo_gym.base import OptionsError, WorkloadError
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.lab.boxes import BoxedProgram

DESCRIPTION = (
    "Run a program to calls of its functions, check that each can be repeated, and write a folder "
    "with everything needed. The folder is a corpus of these functions: search it with --reward "
    "box, train on it, evaluate on it."
)
EXAMPLE = "mlgo-gym box record --workload json --output boxes"
_MEDIAN = "median"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "the workload's name; give one corpus", required=True)
    what = "a function, as 'box calls' prints it or by its source name; repeat (default: all that "
    add("--function", "NAME", what + "are called and can be boxed)", many=True)
    what = "a call: its number from 1, or median, the middle one; repeat for more (default: median)"
    add("--call", "WHICH", what, many=True, type=_call)
    add.opt_level()
    add.output("folder for the boxes", replaced_kind=MANIFEST_NAME)


def _call(text: str) -> int | str:
    if text == _MEDIAN:
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number from 1 or {_MEDIAN}, found {text!r}")


def run(options: argparse.Namespace, output: Output) -> int:
    from pathlib import Path

    from corpus_tools.staging import check_output
    from mlgo_gym.lab.boxes import BoxedProgram

    corpus = shared.one_corpus_of(options)
    check_output(Path(options.output))
    with BoxedProgram.of(corpus, options.workload, opt_level=options.opt_level) as program:
        calls = program.calls()
        names = [program.symbol(name) for name in options.function or ()]
        wanted, refused = _wanted(program, calls, names, options.call or [_MEDIAN])
        if not wanted:
            why = f": {refused[0]}" if refused else ""
            raise OptionsError(f"expected a call that can be boxed, found none{why}")
        program.save(options.output, wanted)
        sha256 = program.sha256
    for each in refused:
        output.print(f"left out: {each}")
    functions = len({name for name, _ in wanted})
    output.print(f"{len(wanted):,} calls of {functions:,} functions: {options.output}")
    output.json(
        {
            "boxes": [{"function": name, "call": call} for name, call in wanted],
            "refused": refused,
            "program_sha256": sha256,
        }
    )
    return 0


def _wanted(
    program: BoxedProgram, calls: dict[str, int], names: list[str], which: list[Any]
) -> tuple[list[tuple[str, int]], list[str]]:
    """The calls that are boxed, and why others are not: of a function all calls, or none."""
    asked: dict[str, list[int]] = {}
    refused: dict[str, WorkloadError] = {}
    for name in dict.fromkeys(names or calls):
        count = calls.get(name, 0)
        if not count:
            raise OptionsError(f"function {name!r}: expected one that is called, found no call")
        try:
            numbers = (_number(program, name, each, count) for each in which)
            asked[name] = list(dict.fromkeys(numbers))
        except WorkloadError as error:
            refused[name] = error
    wanted = [(name, call) for name, numbers in asked.items() for call in numbers]
    for box in program.boxes(wanted):
        try:
            _ = box.original
        except WorkloadError as error:
            refused.setdefault(box.function, error)
        box.close()
    if names and refused:
        raise next(refused[name] for name in names if name in refused)
    return [each for each in wanted if each[0] not in refused], [str(e) for e in refused.values()]


def _number(program: BoxedProgram, name: str, which: int | str, count: int) -> int:
    call = (count + 1) // 2 if which == _MEDIAN else int(which)
    if call > count:
        raise program.no_call(name, call, count)
    return call
