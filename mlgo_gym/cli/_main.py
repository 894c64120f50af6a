"""``mlgo-gym``: parses the command line and turns errors into one line and an exit status.

Exit status: 0 all went well, 1 something failed, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from corpus_tools.errors import CorpusToolsError
from mlgo_gym import __version__
from mlgo_gym.cli._command import CommandParser
from mlgo_gym.errors import MlgoGymError

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-gym`` with these arguments, or with those of the process."""
    try:
        options = parser().parse_args(arguments)
        from mlgo_gym.cli.show._output import Output  # after --help, which waits for nothing

        return int(options.run(options, Output(as_json=options.json)))
    except (MlgoGymError, CorpusToolsError) as error:
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return _failed("interrupted", _INTERRUPTED)
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1


def parser() -> CommandParser:
    """The parser of the whole command line."""
    made = CommandParser(prog="mlgo-gym", module="mlgo_gym.cli")
    made.add_argument("--version", action="version", version=f"mlgo-gym {__version__}")
    return made


def _failed(message: str, status: int) -> int:
    from mlgo_gym.cli.show._output import Output

    Output(as_json=False).error(message)
    return status


if __name__ == "__main__":
    sys.exit(main())
