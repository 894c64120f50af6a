"""``mlgo-gym corpus stats``: what is in a corpus."""

from __future__ import annotations

import argparse
from pathlib import PurePosixPath
from typing import Any, Final

from rich.table import Table

from mlgo_gym.cli.options import add_compilation_options
from mlgo_gym.cli.output import Output, add_json_option
from mlgo_gym.cli.rollout import run_policies, warn_of_failures
from mlgo_gym.corpus import Corpus
from mlgo_gym.policies import make_policy
from mlgo_gym.rollout import ModuleReport

__all__ = ["add_parser"]

_LANGUAGES: Final = {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++"}


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``corpus stats``."""
    parser = actions.add_parser(
        "stats",
        help="languages, sizes and decisions of a corpus",
        description="Compile a corpus with LLVM's default and count what is in it.",
    )
    add_compilation_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, output: Output) -> int:
    corpus = Corpus.load(options.corpus)
    reports = list(run_policies(options, output, {"default": make_policy("default")}))
    counts = [_count(corpus, language, reports) for language in (*sorted(_languages(corpus)), None)]
    output.print(_stats_table(counts))
    output.json({"corpus": str(options.corpus), "languages": counts[:-1], "total": counts[-1]})
    return warn_of_failures(reports, output)


def _stats_table(counts: list[dict[str, Any]]) -> Table:
    table = Table()
    table.add_column("language")
    for column in ("modules", "bitcode, bytes", "text, bytes", "decisions", "that ask"):
        table.add_column(column, justify="right")
    for count in counts:
        table.add_row(str(count["language"] or "total"), *(f"{count[key]:,}" for key in _COUNTED))
    return table


_COUNTED: Final = ("modules", "bitcode_bytes", "text_size_bytes", "decisions", "asking_modules")


def _count(corpus: Corpus, language: str | None, reports: list[ModuleReport]) -> dict[str, Any]:
    """Sums over the modules of a language; ``None`` takes all."""
    names = {name for name in corpus if language is None or _language(name) == language}
    complete = [each for each in reports if each.module in names and each.is_complete]
    asked = [each.attempts[0].result for each in complete]
    return {
        "language": language,
        "modules": len(names),
        "bitcode_bytes": sum((corpus.folder / f"{name}.bc").stat().st_size for name in names),
        "text_size_bytes": sum(int(each.baseline.score) for each in complete if each.baseline),
        "decisions": sum(result.decisions for result in asked if result),
        "asking_modules": sum(1 for result in asked if result and result.decisions),
    }


def _languages(corpus: Corpus) -> set[str]:
    return {_language(name) for name in corpus}


def _language(name: str) -> str:
    return _LANGUAGES.get(PurePosixPath(name).suffix, "other")
