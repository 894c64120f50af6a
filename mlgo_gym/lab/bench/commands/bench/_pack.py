"""``mlgo-gym bench pack``: a suite's archive."""

from __future__ import annotations

import argparse

from corpus_tools.scratch import scratch_folder
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

DESCRIPTION = (
    "Make the archive of a suite from the corpora of its packages, or from recordings. The same "
    "corpora make the same archive. With --hashes, the hashes are written too, for a new suite."
)
EXAMPLE = "mlgo-gym bench pack size-v1 --from corpora --output size-v1.tar.xz"


def add_options(add: shared.Options) -> None:
    add("suite", "NAME", "a suite that ships, or the file that describes one")
    what = "the corpora of its packages, by their names, or its recordings"
    add("--from", "DIR", what, required=True, dest="source", may_hold_outputs=True)
    add.file("--output", "the archive", required=True)
    add.file("--hashes", "write the files' hashes, which the suite does not have yet")
    add.jobs(2)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.base import write_atomically
    from mlgo_gym.lab import bench

    suite = bench.suite_named(options.suite)
    with scratch_folder() as scratch:
        folder = scratch / suite.name
        sources = bench.sources_in(suite, options.source)
        with output.line() as say:
            other = bench.make_suite(suite, sources, folder, jobs=options.jobs, progress=say)
        if options.hashes is None:
            bench.check_differing(suite, other)
        made = bench.Suite.open(folder, is_new=options.hashes is not None)
        bench.pack(made, options.output)
        if options.hashes is not None:
            write_atomically(options.hashes, bench.sums_text(made.sums).encode())
    size = options.output.stat().st_size
    output.print(f"{made.name}: {len(made.sums)} files, {size:,} bytes")
    output.json({"suite": made.name, "sha256": made.sha256, "files": len(made.sums), "bytes": size})
    return 0
