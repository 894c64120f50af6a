"""Extensions of commands: options that other packages add, and what these change of a run.

The entry points of the group ``mlgo_gym.extensions`` name subclasses of `Extension`::

    [project.entry-points."mlgo_gym.extensions"]
    ray = "mlgo_gym.lab.cluster.commands._ray:RayExtension"
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mlgo_gym.base import EnvironmentSetupError, load, plugins, report

if TYPE_CHECKING:
    from mlgo_gym.cli.options import Options
    from mlgo_gym.cli.show._grid import Grid
    from mlgo_gym.cli.show._output import Output
    from mlgo_gym.corpus import Packages
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.problems import PolicyLike

GROUP: Final = "mlgo_gym.extensions"


class Extension:
    """Options added to commands, with their effects; every method has a default.

    Attributes:
        commands: the commands that get the options, such as ``corpus build``.
        traits: commands with one of these get the options as well: ``compilation`` are those with
            all options of how modules are compiled, ``executor`` those whose ``--jobs`` may be any
            executor.

    >>> class Quiet(Extension):
    ...     commands = ("rollout",)
    ...     def add_options(self, add, command):
    ...         add("--quiet", "", "print nothing")
    >>> Quiet().checks()
    ()
    """

    commands: ClassVar[Collection[str]] = ()
    traits: ClassVar[Collection[str]] = ()

    def add_options(self, add: Options, command: str) -> None:
        """Add options to a command of `commands` or `traits`; they come after its own."""

    def running(self, options: argparse.Namespace, output: Output) -> AbstractContextManager[None]:
        """Surround the run of any command.

        On entering, it may replace values of the options: ``jobs`` by an `mlgo_gym.llvm.Engine`,
        ``run`` by another function of options and output. It may append to ``additions``
        (`Addition`), which ``evaluate`` measures besides.
        """
        del options, output
        return nullcontext()

    def checks(self) -> Iterable[tuple[str, Callable[[], str]]]:
        """Checks for ``mlgo-gym doctor``: a name, and a function that says what was found.

        The function raises the project's own error where something is missing.
        """
        return ()


class Addition:
    """One more measurement that ``evaluate`` makes, of the same packages and policies.

    >>> Addition().record(seed=0)
    {}
    """

    def check(self, packages: Packages) -> None:
        """Raise an error before the work, where it cannot be done."""

    def measure(self, policies: dict[str, PolicyLike], setting: Setting, output: Output) -> None:
        """Measure, after the evaluation and while the policies are open."""

    def tables(self, seed: int) -> Iterable[Grid | str]:
        """Return what is printed after the tables of the evaluation."""
        del seed
        return ()

    def record(self, seed: int) -> dict[str, Any]:
        """Return what is added to the JSON record."""
        del seed
        return {}

    def failures(self) -> Iterable[object]:
        """Return why parts of it could not be measured, each with its text."""
        return ()


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Load the extensions, in the order of their entry points' names, ours first.

    One that cannot be loaded, or is none, is left out with a warning.
    """
    found = []
    for point in plugins(GROUP, ()).values():
        try:
            found.append(load(point, _lacks)())
        except EnvironmentSetupError as error:
            report(error)
    return tuple(found)


def extensions_of(command: str, traits: set[str]) -> Iterator[Extension]:
    """The extensions that add options to a command, such as ``corpus build``, with these traits."""
    return (
        each
        for each in extensions()
        if command in each.commands or not traits.isdisjoint(each.traits)
    )


@contextmanager
def extended(options: argparse.Namespace, output: Output) -> Iterator[None]:
    """Surround the run of a command by all extensions."""
    options.additions = []
    with ExitStack() as stack:
        for each in extensions():
            stack.enter_context(each.running(options, output))
        yield


def _lacks(kind: Any) -> str | None:
    if isinstance(kind, type) and issubclass(kind, Extension):
        return None
    return f"expected a subclass of mlgo_gym.cli.Extension, found {kind!r}"
