"""Commands, whose modules are imported when they run or when somebody asks for their help.

A command is a module that says what it does (``DESCRIPTION``) and shows it (``EXAMPLE``), adds its
options to a parser (``add_options``), and does it (``run``). A package of commands names them
(``COMMANDS``: their modules, and a line of help for each) instead of the last two.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from types import ModuleType
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """The parser of a command; its options are there once it is loaded, which parsing does.

    Args:
        module: the full name of the command's module, or of a package of commands.
        **settings: as `argparse.ArgumentParser` takes them.
    """

    def __init__(self, *, module: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._module = module
        self._is_loaded = False

    def load(self) -> None:
        """Import the command and add its options, unless that was done."""
        if self._is_loaded:
            return
        self._is_loaded = True
        module = import_module(self._module)
        self.description = module.DESCRIPTION
        self.epilog = f"example: {module.EXAMPLE}"
        if hasattr(module, "COMMANDS"):
            self._add_commands(module)
            return
        if hasattr(module, "add_options"):
            module.add_options(self)
        self.add_argument(
            "--json", action="store_true", help="print the result as JSON, and nothing else"
        )
        self.set_defaults(run=module.run)

    def parse_known_args(self, *arguments: Any, **settings: Any) -> Any:
        """As every parser does, once the command is loaded."""
        self.load()
        return super().parse_known_args(*arguments, **settings)

    def _add_commands(self, package: ModuleType) -> None:
        commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for module, meaning in package.COMMANDS.items():
            name = module.removeprefix("_").replace("_", "-")
            commands.add_parser(name, help=meaning, module=f"{package.__name__}.{module}")
