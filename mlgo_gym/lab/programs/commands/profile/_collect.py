"""``mlgo-gym profile collect``: how often the code of a corpus's programs runs."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Instrument the modules of a corpus's workloads before any optimisation, run each program in "
    "its sandbox, and write the sum of the counts as LLVM's llvm-profdata does. Each runs twice: "
    "counts that differ are a warning, and the exit status is 1."
)
EXAMPLE = "mlgo-gym profile collect --output json.profdata"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.file("--output", "the profile that is written", required=True)
    add("--workload", "NAME", "only this workload; repeat for more (default: all)", many=True)
    add("--atomic", "", "count exactly where threads run the same code, which takes longer")
    add.jobs(1)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli import writing
    from mlgo_gym.lab.programs import collect_profile

    corpus = shared.one_corpus_of(options)
    with output.progress() as progress:
        progress.add_task("counting", total=None)
        collected = collect_profile(
            corpus, options.workload, atomic=options.atomic, jobs=options.jobs
        )
    profile = collected.profile
    with writing(options.output) as file:
        file.write(profile.data)
    output.print(f"{len(profile.data):,} bytes, {profile.name}, in {options.output}")
    output.json(
        {
            "output": str(options.output),
            "bytes": len(profile.data),
            "unstable": dict(collected.unstable),
        }
    )
    return output.warn_of(collected.warnings)
