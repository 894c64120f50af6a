"""``mlgo-gym freeze``: compile a model ahead of time, for compilers and other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlgo_gym.cli._options import add_model_options, add_output_option
from mlgo_gym.cli.show._output import Output
from mlgo_gym.native._freeze import freeze

DESCRIPTION = (
    "Compile the TFLite graph of a model directory to native code: an object, a C header, a "
    "description for 'rollout --model', and, where the machine has a linker, a shared library. "
    "Neither TensorFlow nor TFLite is needed, here or to run the result."
)
EXAMPLE = "mlgo-gym freeze --model inlining-for-size --output frozen"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_model_options(parser, "what is compiled", modes=(), required=True)
    add_output_option(parser, "where it goes")
    parser.add_argument(
        "--name", default="model", help="the files' name and the C prefix (default: model)"
    )
    parser.add_argument("--cpu", help="LLVM's name of a CPU (default: this machine's)")


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    files = freeze(Path(options.model), options.output, name=options.name, cpu=options.cpu)
    written = [files.description, files.object, files.header]
    if files.shared_library is not None:
        written.append(files.shared_library)
    else:
        output.warn("no linker found, so there is no shared library")
    output.print("\n".join(str(path) for path in written))
    output.json([str(path) for path in written])
    return 0
