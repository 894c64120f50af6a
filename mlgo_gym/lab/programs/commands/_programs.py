"""Programs that run, as several commands have them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mlgo_gym.cli import Addition, Extension, Output

if TYPE_CHECKING:
    from mlgo_gym.cli import Grid
    from mlgo_gym.cli.options import Options
    from mlgo_gym.corpus import Corpus, Packages
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.programs._program_scores import ProgramScores
    from mlgo_gym.problems import PolicyLike

_RUN_METERS: Final = ("size", "instructions")


def count_workloads(corpora: Mapping[str, Corpus], names: Sequence[str] = ()) -> int:
    """How many there are; those of these names, if any are named."""
    from mlgo_gym.lab.programs import find_workloads

    return sum(len(find_workloads(each, names)) for each in corpora.values())


def measured(
    corpora: Mapping[str, Corpus],
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    meters: Sequence[str],
    output: Output,
    *,
    names: Sequence[str] = (),
    **how: Any,
) -> list[ProgramScores]:
    """`measured_programs`, by the meters' names, behind a bar of progress."""
    from mlgo_gym.lab.programs import meter_named
    from mlgo_gym.lab.programs._program_scores import measured_programs

    total = count_workloads(corpora, names)
    chosen = list(map(meter_named, meters))
    found = measured_programs(corpora, policies, setting, chosen, names, **how)
    return list(output.track(found, "measuring", total))


class ProgramsExtension(Extension):
    """``evaluate --run``: the programs of corpora, with what they execute."""

    commands: ClassVar[Collection[str]] = ("evaluate",)

    def add_options(self, add: Options, command: str) -> None:
        """Add ``--run``."""
        del command
        what = "run the programs of corpora that have workloads, too, and count their instructions"
        add("--run", "", what, dest="with_programs")

    @contextmanager
    def running(self, options: argparse.Namespace, output: Output) -> Iterator[None]:
        """Have an evaluation measure programs."""
        del output
        if options.command == "evaluate" and options.with_programs:
            options.additions.append(_Programs())
        yield

    def checks(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The tools that profiles and programs need."""
        yield "llvm-profdata, for profiles", _profdata
        yield "valgrind, for what programs take", _valgrind


class _Programs(Addition):
    def __init__(self) -> None:
        self._corpora: Mapping[str, Corpus] = {}
        self._policies: list[str] = []
        self._scores: list[ProgramScores] = []

    def check(self, packages: Packages) -> None:
        from mlgo_gym.lab.programs import check_tools, corpora_with_workloads

        self._corpora = corpora_with_workloads(packages.named)
        check_tools(_RUN_METERS)

    def measure(self, policies: Mapping[str, PolicyLike], setting: Setting, output: Output) -> None:
        self._policies = list(policies)
        self._scores = measured(self._corpora, policies, setting, _RUN_METERS, output)

    def tables(self, seed: int) -> Iterable[Grid | str]:
        from mlgo_gym.lab.programs.commands._show_programs import program_tables

        return program_tables(self._scores, self._policies, _RUN_METERS, seed)

    def record(self, seed: int) -> dict[str, Any]:
        from mlgo_gym.lab.programs.commands._show_programs import programs_record

        return {"run": programs_record(self._scores, self._policies, _RUN_METERS, seed)}

    def failures(self) -> Iterator[Exception]:
        return (each.error for each in self._scores if each.error)


def _valgrind() -> str:
    from mlgo_gym.lab.programs._meters import valgrind_tool

    return str(valgrind_tool())


def _profdata() -> str:
    from corpus_tools.profdata import ProfileTools

    tools = ProfileTools.find()
    return f"{tools.profdata}, {tools.opt}, {tools.check_runtime()}"
