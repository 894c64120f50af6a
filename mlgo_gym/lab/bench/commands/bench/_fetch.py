"""``mlgo-gym bench fetch``: a suite's files."""

from __future__ import annotations

import argparse
from pathlib import Path

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import BenchmarkError, copy_file
from mlgo_gym.cli import Output, file_or_uri
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Unpack a suite's archive and check every file's hash. Without --archive, a suite of "
    "recordings comes from this package. For other suites, packages are fetched from PyPI and "
    "compiled by their recipes, which needs clang 22. A file that differs from the suite's is an "
    "error."
)
EXAMPLE = "mlgo-gym bench fetch size-v1-mini --output suites/size-v1-mini"


def add_options(add: shared.Options) -> None:
    add("suite", "NAME", "a suite that ships, or the file that describes one")
    what = "its archive, here or by https://HOST/FILE or s3://BUCKET/KEY (default: its "
    add("--archive", "FILE", what + "own, or it is built from recipes)", type=file_or_uri)
    add.output("the suite's folder", replaced_kind="suite.json")
    add("--clang", "PATH", "clang 22, to build the suite (default: from PATH)")
    add.jobs(2)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab import bench

    suite = bench.suite_named(options.suite)
    archive = options.archive or suite.shipped_archive
    if isinstance(archive, Path):
        found = bench.unpack(archive, options.output, suite)
    elif archive is not None:
        with scratch_folder() as scratch:
            copy = scratch / "archive"
            try:
                copy_file(archive, copy, bench.MAX_BYTES)
            except OSError as error:
                raise BenchmarkError(f"{archive}: {error.strerror}") from error
            found = bench.unpack(copy, options.output, suite, archive)
    else:
        with scratch_folder() as scratch:
            with output.line() as say:
                sources = bench.build_sources(suite, scratch, options.clang, options.jobs, say)
                other = bench.make_suite(
                    suite, sources, options.output, jobs=options.jobs, progress=say
                )
            bench.check_differing(suite, other)
        found = bench.Suite.open(options.output)
    output.print(f"{found.name}: {len(found.sums)} files, as the suite names them")
    output.json({"suite": found.name, "sha256": found.sha256, "files": len(found.sums)})
    return 0
