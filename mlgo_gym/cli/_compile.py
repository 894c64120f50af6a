"""``mlgo-gym compile``: a model applied to bitcode, by the embedded LLVM alone."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mlgo_gym.cli._options import (
    add_problem_option,
    add_setting_options,
    add_worker_options,
    make_problem,
)
from mlgo_gym.cli._rollout import replacing, warn_of_failures
from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._schedule import each
from mlgo_gym.llvm.command._options import OPT_LEVELS
from mlgo_gym.model._shipped import find_model
from mlgo_gym.policies._models import Model, problem_of_models
from mlgo_gym.problems._registry import problem_named
from mlgo_gym.rollout._deployment import Deployed, Form, deploy
from mlgo_gym.rollout._rollout import ModuleReport, RolloutLog
from mlgo_gym.runners._load import MODES, runner_factory

DESCRIPTION = (
    "Compile bitcode, LLVM assembly or a corpus with the embedded LLVM and a model's advice, and "
    "say what became of the size against LLVM's default. The output is an object, or what the "
    "ending of its name says: .s assembly, .bc optimised bitcode."
)
EXAMPLE = "mlgo-gym compile x.bc -o x.o --model inlining-for-size"

_SUFFIXES: Final[Mapping[Form, str]] = MappingProxyType(
    {"object": ".o", "assembly": ".s", "bitcode": ".bc"}
)
_INPUT_SUFFIXES: Final = (".bc", ".ll")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("input", type=Path, metavar="IN", help="IN.bc, IN.ll or a corpus")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="a file; of a corpus a folder",
    )
    parser.add_argument(
        "--model",
        type=find_model,
        metavar="DIR",
        help="a model directory or a frozen model (default: none, LLVM's own heuristics)",
    )
    add_problem_option(parser, default="")
    parser.add_argument(
        "--mode", choices=MODES[:2], default=MODES[0], help="how the model runs (default: release)"
    )
    parser.add_argument(
        "--emit",
        choices=tuple(_SUFFIXES),
        help="what comes out (default: by the ending of OUT; of a corpus, objects)",
    )
    for level in OPT_LEVELS[1:]:
        parser.add_argument(
            f"-{level}",
            dest="opt_level",
            action="store_const",
            const=level,
            help="the optimisation level (default: each module's own)",
        )
    add_setting_options(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="write LLVM's training log")
    add_worker_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    model = _model(options)
    if options.log and model is None:
        raise OptionsError("--log: expected a --model whose decisions are logged, found none")
    reports: list[ModuleReport] = []
    with contextlib.ExitStack() as stack:
        log = None
        if options.log and model:
            file = stack.enter_context(replacing(options.log))
            log = RolloutLog(file, model.problem)
        for deployed, target in _deployed(options, model, output):
            _write(target, deployed.output)
            if log:
                log.write(deployed.report)
            reports.append(deployed.report.without_decisions())
    names = [model.name] if model else []
    output.print(comparison.as_table(reports, names, output.width))
    output.json(comparison.as_json(reports, names))
    return warn_of_failures(reports, output)


def _deployed(
    options: argparse.Namespace, model: Model | None, output: Output
) -> Iterator[tuple[Deployed, Path]]:
    modules, targets = _inputs(options)
    form = options.emit or _form(options.output)

    def work(compiler: Compiler, name: str) -> Deployed:
        module = modules(name)
        chosen = options_of(module, options.opt_level)
        keep = options.log is not None
        return deploy(compiler, module, chosen, model, form=form, keep_decisions=keep)

    compiler = partial(Compiler, timeout_s=options.timeout)
    found = each(targets, work, compiler, jobs=options.jobs, in_order=True)
    with contextlib.closing(found):
        for done in output.track(found, "compiling", len(targets)):
            yield done.value, targets[done.item]


def _inputs(options: argparse.Namespace) -> tuple[Callable[[str], Module], dict[str, Path]]:
    """What reads a module of a name, and where each name's output goes."""
    path: Path = options.input
    if path.is_dir():
        corpus = Corpus.load(path)
        suffix = _SUFFIXES[options.emit or "object"]
        return corpus.__getitem__, {
            name: options.output / f"{name}{suffix}" for name in corpus.names
        }
    if path.suffix not in _INPUT_SUFFIXES:
        raise OptionsError(
            f"input: expected a file that ends in {' or '.join(_INPUT_SUFFIXES)}, or a corpus, "
            f"found {str(path)!r}"
        )
    return lambda _: Module.from_file(path), {path.name: options.output}


def _model(options: argparse.Namespace) -> Model | None:
    if options.model is None:
        return None
    kind = problem_named(options.problem) if options.problem else problem_of_models([options.model])
    path, problem = Path(options.model), make_problem(kind, options)
    return Model(path.name, path, problem, runner_factory(str(path), options.mode))


def _form(target: Path) -> Form:
    return next((form for form, end in _SUFFIXES.items() if target.suffix == end), "object")


def _write(target: Path, data: bytes) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionsError(f"cannot write {str(target)!r}: {error.strerror}") from error
    with replacing(target) as file:
        file.write(data)
