"""``mlgo-gym bench verify``: submissions repeated."""

from __future__ import annotations

import argparse

from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Answer LLVM as a submission did, and compare every object's hash, and all numbers. What "
    "holds gets a file SUBMISSION.verified.json, which 'bench table' asks for."
)
EXAMPLE = "mlgo-gym bench verify submissions/a.zip --suite suites/size-v1"


def add_options(add: shared.Options) -> None:
    add("submission", "FILE", "what 'bench submit' has written", nargs="+")
    add("--suite", "DIR", "the suite's folder (default: the sample)")
    add.jobs(2)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.base import InputError
    from mlgo_gym.lab.bench import Submission, open_or_sample, verified, verify

    failures, records = [], []
    with open_or_sample(options.suite) as suite:
        for path in options.submission:
            try:
                found = Submission.load(path)
                with output.line() as say:
                    verify(found, suite, jobs=options.jobs, progress=say)
            except InputError as error:
                failures.append(str(error))
                records.append({"path": str(path), "verified": False, "error": str(error)})
                continue
            verified(path, found, suite)
            output.print(f"{path}: verified, {len(found.files)} traces")
            records.append({"path": str(path), "verified": True})
    output.json(records)
    return output.warn_of(failures)
