"""``mlgo-gym freeze``: compile a model ahead of time, for compilers and other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlgo_gym.cli import _options as shared
from mlgo_gym.cli.show._output import Output

DESCRIPTION = (
    "Compile the TFLite graph of a model directory to native code: an object, a C header, a "
    "description for 'rollout --model', and, where the machine has a linker, a shared library. "
    "Neither TensorFlow nor TFLite is needed, here or to run the result."
)
EXAMPLE = "mlgo-gym freeze --model inlining-for-size --output frozen"


def add_options(add: shared.Options) -> None:
    add.model("what is compiled", modes=(), required=True)
    add.output("where it goes")
    add("--name", "NAME", "the files' name and the C prefix", "model")
    add("--cpu", "CPU", "LLVM's name of a CPU (default: this machine's)")


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.native._freeze import freeze

    files = freeze(
        Path(options.model),
        options.output,
        name=options.name,
        cpu=options.cpu,
        trusted=options.trust_code,
    )
    if files.shared_library is None:
        output.warn("no linker found, so there is no shared library")
    if not files.is_sealed:
        output.warn("no key can be kept for this user, so loading it needs --trust-code")
    files_made = (files.description, files.object, files.header, files.shared_library)
    written = [str(path) for path in files_made if path]
    output.print("\n".join(written))
    output.json(written)
    return 0
