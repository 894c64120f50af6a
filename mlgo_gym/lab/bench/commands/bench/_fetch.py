"""``mlgo-gym bench fetch``: a suite's files."""

from __future__ import annotations

import argparse

from corpus_tools.scratch import scratch_folder
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Unpack a suite's archive and check every file's hash. Without --archive, the packages' "
    "sources are fetched from PyPI and compiled by their recipes, which takes clang 22; what "
    "differs from the suite is said, and is an error."
)
EXAMPLE = "mlgo-gym bench fetch size-v1-mini --output suites/size-v1-mini"


def add_options(add: shared.Options) -> None:
    add("suite", "NAME", "a suite that ships, or the file that describes one")
    add("--archive", "FILE", "its archive (default: it is built from recipes)")
    add("--output", "DIR", "the suite's folder", required=True)
    add("--clang", "PATH", "clang 22, where it is built (default: from PATH)")
    add.jobs(2)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.bench import (
        Suite,
        build_sources,
        check_differing,
        make_suite,
        suite_named,
        unpack,
    )

    suite = suite_named(options.suite)
    if options.archive is not None:
        found = unpack(options.archive, options.output, suite)
    else:
        with scratch_folder() as scratch:
            with output.line() as say:
                sources = build_sources(suite, scratch, options.clang, options.jobs, say)
                other = make_suite(suite, sources, options.output, jobs=options.jobs, progress=say)
            check_differing(suite, other)
        found = Suite.open(options.output)
    output.print(f"{found.name}: {len(found.sums)} files, as the suite names them")
    output.json({"suite": found.name, "sha256": found.sha256, "files": len(found.sums)})
    return 0
