"""``mlgo-gym``: parses the command line and turns errors into one line and an exit status.

Exit status: 0 all went well, 1 something failed, 2 the command line is wrong, 128 and the number of
the signal that ended it: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.

A command is a module, imported when it runs or when somebody asks for its help. It says what it
does (``DESCRIPTION``, a text or a function that returns one for the help) and shows it
(``EXAMPLE``), adds its options (``add_options``), and does it (``run``), which imports what only
the work needs. A package of commands names them (``COMMANDS``: their modules, and a line of help
for each) instead of the last two. Other packages add commands by entry points of the group
``mlgo_gym.commands``: a command's module, or the ``COMMANDS`` of a package. A command whose name is
taken, and a package that cannot be loaded, are left out with a warning.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from corpus_tools.children import receive_statuses
from corpus_tools.command_line import Interruption
from corpus_tools.errors import CorpusToolsError
from mlgo_gym import __version__
from mlgo_gym.base import MlgoGymError, UsageError
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mlgo_gym.commands"
_SEVERAL = "COMMANDS"
"""Of an entry point that adds all commands of a package."""

_PARTS = ("DESCRIPTION", "EXAMPLE")

_OTHERS = "other commands"
_FEW = 2
"""Headings are worth having from so many on."""

_MOST_STATUS = 255
"""The largest exit status."""

_INSIDE = "REPLACED BY KeyboardInterrupt"
"""Of the error that pybind11 makes of an interrupt while TensorFlow raises one of its own."""


START = """\
mlgo-gym: LLVM's machine-learning guided heuristics as environments and tools

Start
  mlgo-gym demo        compare LLVM with a model, a trained policy and a search
  mlgo-gym doctor      see what is installed, and how to get the rest
  mlgo-gym models      list the trained models that ship

Train a policy
  mlgo-gym corpus build lupa jq --output corpora
  mlgo-gym train advantage --corpus corpora --hold-out jq --output run
  mlgo-gym evaluate --corpus corpora/jq --model run/model

Make your own program smaller
  mlgo-gym project --build build --output project.txt
  mlgo-gym tune --build build --search 20m --output tuned
  mlgo-cc --mlgo-help

'mlgo-gym --help' lists all commands, 'mlgo-gym COMMAND --help' explains one.
"""
"""The text for somebody who names no command."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command's module, or of a package of them, which parsing imports."""

    def __init__(
        self,
        *,
        module: str,
        plugin: EntryPoint | None = None,
        has_plugins: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._module = module
        self._plugin = plugin
        self._has_plugins = has_plugins
        self._is_loaded = False
        self._headings: dict[str, list[str]] = {}

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """A value of a command line; ``"$NAME"`` of a variable that is not set is none."""
        if not arg_string and action.default != "" and action.nargs != argparse.PARSER:
            raise argparse.ArgumentError(action, "expected a value, found ''")
        return super()._get_value(action, arg_string)

    @property
    def commands(self) -> Mapping[str, CommandParser]:
        """The parsers of the commands, by name; none if this is a command itself."""
        self.load()
        return self._commands.choices if hasattr(self, "_commands") else {}

    def load(self) -> None:
        """Import the command and add its options, unless that was done."""
        if self._is_loaded:
            return
        self._is_loaded = True
        if self._plugin is None:
            module = import_module(self._module)
        else:
            from mlgo_gym.base import load

            module = load(self._plugin, _lacks, self._module)
        self.description = module.DESCRIPTION
        self.epilog = f"example: {module.EXAMPLE}"
        if hasattr(module, "COMMANDS"):
            self._add_commands(module)
            return
        from mlgo_gym.cli._extensions import extensions_of
        from mlgo_gym.cli.options import Options

        command = self.prog.partition(" ")[2]
        add = Options(self)
        if hasattr(module, "add_options"):
            module.add_options(add)
        for extension in extensions_of(command, add.traits):
            extension.add_options(add, command)
        self.add_argument(
            "--json", action="store_true", help="print the result as JSON, and nothing else"
        )
        self.set_defaults(run=module.run, command=command, actions=self._actions)

    def parse_known_args(self, args: Any = None, *more: Any, **settings: Any) -> Any:
        self.load()
        if self._has_plugins:
            self._add_plugins(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, *more, **settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version; argparse itself passes over what goes wrong."""
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        try:
            sys.stdout.write(message)
            sys.stdout.flush()
        except OSError as error:
            error.filename = "standard output"
            raise

    def _add_commands(self, package: ModuleType) -> None:
        commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        self._commands = commands
        for heading, modules in getattr(package, "GROUPS", {}).items():
            self._headings[heading] = [*map(_named, modules)]
        for module, meaning in package.COMMANDS.items():
            self._add(_named(module), meaning, f"{package.__name__}.{module}", self._plugin)

    def _add(self, name: str, meaning: str, module: str, plugin: EntryPoint | None) -> None:
        shown = meaning.replace("%", "%%")
        self._commands.add_parser(name, help=shown, module=module, plugin=plugin)

    def _add_plugins(self, words: Sequence[str]) -> None:
        """Add the commands of other packages, unless our own is called: looking takes time."""
        if words and words[0] in self._commands.choices:
            return
        from mlgo_gym.base import EnvironmentSetupError, entry_points, report

        self._has_plugins = False
        for point in entry_points(GROUP):
            try:
                self._add_plugin(point)
            except EnvironmentSetupError as error:
                report(error)

    def _add_plugin(self, point: EntryPoint) -> None:
        """Add the command of an entry point, or those of its package.

        Raises:
            EnvironmentSetupError: the package's commands cannot be loaded.
        """
        from mlgo_gym.base import TAKEN, broken, load, report

        package, _, attribute = point.value.partition(":")
        if attribute == _SEVERAL:
            modules = load(point, _lacks_commands)
            heading = getattr(sys.modules[package], "GROUP", _OTHERS)
            commands = {f"{package}.{each}": (_named(each), modules[each]) for each in modules}
        else:
            heading, of = _OTHERS, point.dist.name if point.dist else package
            commands = {"": (point.name, f"a command of {of}")}  # the entry point's object itself
        for module, (name, meaning) in commands.items():
            if name in self._commands.choices:
                report(broken(point, f"{name}: {TAKEN}" if module else TAKEN))
                continue
            self._add(name, meaning, module, point)
            self._headings.setdefault(heading, []).append(name)

    def format_help(self) -> str:
        """The help; of many commands each group stands below a heading of its own."""
        description: Any = self.description
        if callable(description):
            self.description = description()
        if len(self._headings) < _FEW:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        meanings = {each.dest: each for each in self._commands._choices_actions}  # noqa: SLF001
        for heading, names in self._headings.items():
            formatter.start_section(heading)
            formatter.add_arguments([meanings[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([each for each in self._actions if each.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def _named(module: str) -> str:
    """The name of the command that a module is."""
    return module.removeprefix("_").replace("_", "-")


def _lacks_commands(commands: Any) -> str | None:
    if isinstance(commands, Mapping) and all(
        isinstance(each, str) for pair in commands.items() for each in pair
    ):
        return None
    return f"expected modules and what they do, found {commands!r}"


def _lacks(command: Any) -> str | None:
    from mlgo_gym.base import missing_parts

    if hasattr(command, _SEVERAL):
        return missing_parts(command, _PARTS) or _lacks_commands(command.COMMANDS)
    return missing_parts(command, (*_PARTS, "run"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlgo-gym`` with these arguments, or with those of the process."""
    if arguments is None and sys.stderr is not None:  # it is the process's own program
        faulthandler.enable()
    receive_statuses()
    with Interruption(is_last=arguments is None) as interruption:
        return _ended(sys.argv[1:] if arguments is None else arguments, interruption)


def _ended(arguments: Sequence[str], interruption: Interruption) -> int:
    """Run, and say in one line how it ended where it did not end well."""
    try:
        return _run(arguments)
    except (MlgoGymError, CorpusToolsError) as error:
        Output(as_json=False).error(str(error))
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return 1
    except (OSError, ImportError, MemoryError) as error:
        Output(as_json=False).error(_reason(error))
        return 1
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and _INSIDE not in str(error):
            raise
        Output(as_json=False).error(interruption.message)
        return interruption.status


def _reason(error: OSError | ImportError | MemoryError) -> str:
    """Name a refusal of the system that nobody has said more about."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, ImportError):
        if not (error.path or "").endswith(".so"):
            raise error
        return f"a library cannot be loaded: {error}"
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _run(arguments: Sequence[str]) -> int:
    if sys.stdout is None:
        raise UsageError("standard output: expected an open one, found it closed")
    if not arguments:
        output = Output(as_json=False)
        output.print(START.rstrip("\n"))
        output.finish()
        return 0
    options = parser().parse_args(arguments)
    from mlgo_gym.cli._extensions import extended
    from mlgo_gym.cli._values import fetch_models
    from mlgo_gym.cli._writing import check_outputs

    output = Output(as_json=options.json)
    check_outputs(options)
    fetch_models(options)
    with extended(options, output):
        status = options.run(options, output)
        if not isinstance(status, int) or not 0 <= status <= _MOST_STATUS:
            raise UsageError(
                f"{options.command}: run: expected an exit status, 0 to {_MOST_STATUS}, "
                f"found {status!r}"
            )
    output.finish()
    return status


def whole() -> CommandParser:
    """Return the parser with the commands of all packages."""
    made = parser()
    made.load()
    made._add_plugins(())  # noqa: SLF001
    return made


def parser() -> CommandParser:
    made = CommandParser(prog="mlgo-gym", module="mlgo_gym.cli", has_plugins=True)
    made.add_argument("--version", action="version", version=f"mlgo-gym {__version__}")
    return made


if __name__ == "__main__":
    sys.exit(main())
