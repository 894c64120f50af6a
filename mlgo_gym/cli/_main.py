"""``mlgo-gym``: parses the command line and turns errors into one line and an exit status.

Exit status: 0 all went well, 1 something failed, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from corpus_tools.errors import CorpusToolsError
from mlgo_gym import __version__
from mlgo_gym.cli import _compile as compile_command
from mlgo_gym.cli import _dataset as dataset
from mlgo_gym.cli import _demo as demo
from mlgo_gym.cli import _doctor as doctor
from mlgo_gym.cli import _evaluate as evaluate
from mlgo_gym.cli import _explain_features as explain_features
from mlgo_gym.cli import _freeze as freeze
from mlgo_gym.cli import _replay as replay
from mlgo_gym.cli import _rollout as rollout
from mlgo_gym.cli import _search as search
from mlgo_gym.cli import _serve as serve
from mlgo_gym.cli import _size_report as size_report
from mlgo_gym.cli import _train as train
from mlgo_gym.cli import corpus
from mlgo_gym.cli.show._output import Output
from mlgo_gym.errors import MlgoGymError

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-gym`` with these arguments, or with those of the process."""
    options = _parser().parse_args(arguments)
    output = Output(as_json=options.json)
    try:
        return int(options.run(options, output))
    except (MlgoGymError, CorpusToolsError) as error:
        output.error(str(error))
        return 1
    except KeyboardInterrupt:
        output.error("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlgo-gym",
        description="LLVM's machine-learning guided heuristics: corpora, rollouts, measurements.",
    )
    parser.add_argument("--version", action="version", version=f"mlgo-gym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (
        *(demo, doctor, corpus, dataset, rollout, search, replay, train, evaluate),
        *(explain_features, freeze, compile_command, size_report, serve),
    ):
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
