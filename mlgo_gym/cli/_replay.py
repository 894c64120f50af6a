"""``mlgo-gym replay``: repeat recorded compilations and verify what comes out."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from mlgo_gym.cli._options import add_corpus_option, add_opt_level_option, add_timeout_option
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CompilationError, InputError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.records._replay import options_of_trace, replay
from mlgo_gym.records._trace import Trace

DESCRIPTION = (
    "Compile again what each trace records, with the recorded answers, and compare the object's "
    "hash. A level that is given must be that of the trace."
)
EXAMPLE = "mlgo-gym replay traces/digest.c.trace"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("traces", type=Path, nargs="+", metavar="FILE", help="a trace")
    add_corpus_option(parser)
    add_opt_level_option(parser)
    add_timeout_option(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    corpus = Corpus.load(options.corpus)
    records: list[dict[str, object]] = []
    with Compiler(timeout_s=options.timeout) as compiler:
        for path in options.traces:
            try:
                records.append(_replayed(compiler, corpus, path, options.opt_level))
            except (InputError, CompilationError) as error:
                output.error(str(error))
                continue
            output.print("{trace}: {decisions:,} decisions, the same object".format(**records[-1]))
    output.json(records)
    return 0 if len(records) == len(options.traces) else 1


def _replayed(
    compiler: Compiler, corpus: Corpus, path: Path, opt_level: str | None
) -> dict[str, object]:
    trace = Trace.load(path)
    options = opt_level and replace(options_of_trace(trace), opt_level=opt_level)
    result = replay(compiler, trace, corpus[trace.module], options or None)
    return {
        "trace": str(path),
        "module": trace.module,
        "decisions": trace.decisions,
        "object_sha256": result.object_sha256,
        "text_size_bytes": result.text_size_bytes,
    }
