"""``mlgo-gym profile attach``: a corpus with counts in its bitcode."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corpus_tools.manifest import MANIFEST_NAME
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Write a corpus with a profile's counts in its bitcode. A module that has a profile already is "
    "refused. Functions whose control flow differs from the profile's get no counts."
)
EXAMPLE = "mlgo-gym profile attach --profile json.profdata --output counted"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add("--profile", "FILE", "the profile, as 'profile collect' writes it", required=True)
    add.output("folder for the new corpus", replaced_kind=MANIFEST_NAME)
    add.workers()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.programs import Attached, ProfileFile, attach_profile

    corpus = shared.one_corpus_of(options)
    profile = ProfileFile.read(options.profile)
    with output.progress() as progress:
        task = progress.add_task("attaching", total=len(corpus))
        found = attach_profile(
            corpus,
            profile,
            options.output,
            **shared.workers_of(options),
            progress=lambda: progress.advance(task),
        )
    total = sum(found.values(), Attached())
    output.print(
        f"{total.counted:,} functions with counts, {total.unknown:,} that the profile does not "
        f"know, {total.mismatched:,} of another build, in {options.output}"
    )
    output.json(
        {
            "output": str(options.output),
            **asdict(total),
            "modules": {name: asdict(each) for name, each in found.items()},
        }
    )
    return 0
