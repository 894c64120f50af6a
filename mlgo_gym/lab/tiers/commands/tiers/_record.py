"""``mlgo-gym tiers record``: a program's events, instructions and compile times at each tier."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Split a program into functions and run it in the sandbox under LLVM's JIT: at O0 to O3, with "
    "speculative code, and with loops that are entered while they run. Write its events, the "
    "instructions between them and the costs of compiling. It takes 20 seconds to 4 minutes."
)
EXAMPLE = "mlgo-gym tiers record --workload json --output json.npz"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--workload", "NAME", "the workload's name; give one corpus", required=True)
    what = "call its 'main' N times, one call after the other, as for longer inputs"
    add("--rounds", "N", what, 1)
    add.file("--output", "the recording, as .npz", required=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.tiers import record_program

    corpus = shared.one_corpus_of(options)
    with output.line() as say:
        recording = record_program(corpus, options.workload, rounds=options.rounds, progress=say)
    with output.keeping():
        recording.save(options.output)
    totals = recording.totals()
    output.print(
        f"{recording.name}: {len(recording.functions):,} functions, "
        f"{len(recording.events):,} events; million instructions at O0 to O3: "
        + ", ".join(f"{each / 1e6:,.1f}" for each in totals)
    )
    output.json(
        {
            "recording": str(options.output),
            "program": recording.program,
            "rounds": recording.rounds,
            "functions": len(recording.functions),
            "events": len(recording.events),
            "entries": len(recording.entries),
            "specialised": len(recording.values),
            "pruned": len(set(recording.kept[:, 0].tolist())),
            "instructions": totals,
            "sha256": recording.sha256(),
            "seconds_per_instruction": recording.seconds_per_instruction,
        }
    )
    return 0
