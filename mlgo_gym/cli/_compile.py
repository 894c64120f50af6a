"""``mlgo-gym compile``: a model applied to bitcode, by the embedded LLVM alone."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._writing import OutputFile, WriteError, check_outputs, make_folder, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Module
from mlgo_gym.runners import IN_PROCESS

if TYPE_CHECKING:
    from mlgo_gym.problems import PolicyLike, Problem
    from mlgo_gym.rollout import Form

DESCRIPTION = (
    "Compile bitcode, LLVM assembly or corpora with the embedded LLVM and a model's advice, and "
    "print the size against LLVM's default. The output is an object; with the suffix .s it is "
    "assembly, with .bc optimised bitcode. Models of several problems answer in the same "
    "compilation."
)
EXAMPLE = "mlgo-gym compile x.bc -o x.o --model inlining-for-size"

_SUFFIXES: Final[Mapping[Form, str]] = MappingProxyType(
    {"object": ".o", "assembly": ".s", "bitcode": ".bc"}
)
_FORMS: Final[Mapping[str, Form]] = {end: form for form, end in _SUFFIXES.items()}
_INPUT_SUFFIXES: Final = (".bc", ".ll")


def add_options(add: shared.Options) -> None:
    add("input", "IN", "IN.bc or IN.ll", nargs="?")
    add.corpus()
    what = "a file; for corpora, a folder"
    add.file("-o --output", what, value="OUT", required=True, may_lack_folder=True, files=_files)
    add.model("a model that answers LLVM", modes=IN_PROCESS, many=True)
    add.policy(many=True)
    add.seed()
    what = "keep the best result among LLVM's own and those of all models and policies: the object "
    what += "with the least text; for register allocation, the best of each function"
    add("--keep-smaller", "", what)
    add.problem()
    what = "the form of the output (default: by the suffix of OUT; for corpora, objects)"
    add("--emit", tuple(_SUFFIXES), what)
    add.file("--log", "write LLVM's training log")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli.show import _comparison as comparison
    from mlgo_gym.rollout import (
        SMALLEST,
        ModuleReport,
        RolloutLog,
        deploy_modules,
        measure_of_objects,
    )

    form = _form(options)
    read, targets = _inputs(options, form)
    reports: list[ModuleReport] = []
    with output.keeping((WriteError,)), contextlib.ExitStack() as stack:
        problem, policies, also = stack.enter_context(_answering(options))
        deployed = deploy_modules(
            read,
            targets,
            problem,
            policies,
            **shared.compilation_of(options),
            form=form,
            keep_decisions=options.log is not None,
            keep_smaller=options.keep_smaller,
            also=also,
        )
        log = None
        if options.log:
            lines = stack.enter_context(writing(options.log))
            log = stack.enter_context(RolloutLog(lines, problem))
        for done in output.track(deployed, "compiling", len(targets)):
            if done.error and options.corpus:
                reports.append(
                    ModuleReport(done.item, measure_of_objects(problem), None, (), done.error)
                )
                continue
            target = targets[done.item]
            make_folder(target.parent, to_write=target)
            with writing(target) as file:
                file.write(done.value.output)
            report = replace(done.value.report, module=done.item)
            if log:  # of what came out
                log.write(replace(report, attempts=report.attempts[-1:]))
            reports.append(report.without_decisions())
    names = [*policies] + [SMALLEST] * options.keep_smaller
    output.print(comparison.as_grid(reports, names))
    output.json(comparison.as_json(reports, names))
    return output.warn_of_failures(reports)


@contextlib.contextmanager
def _answering(
    options: argparse.Namespace,
) -> Iterator[tuple[Problem, dict[str, PolicyLike], dict[Problem, PolicyLike]]]:
    """The problem, what answers it, and what answers others in the same compilations."""
    from mlgo_gym.rollout import measure_of

    of_problems = [(shared.problem_of(each), each) for each in shared.by_problem(options)]
    of_problems.sort(key=lambda pair: not measure_of(pair[0]).makes_objects)
    (problem, own), *others = of_problems
    count = _check_answering(options, [each for _, each in of_problems])
    with contextlib.ExitStack() as stack:
        policies = stack.enter_context(shared.policies_of(own, problem)) if count else {}
        also: dict[Problem, PolicyLike] = {}
        for other, each in others:
            ((name, also[other]),) = stack.enter_context(shared.policies_of(each, other)).items()
            policies = {f"{known} + {name}": policy for known, policy in policies.items()}
        yield problem, policies, also


def _check_answering(options: argparse.Namespace, of_problems: Sequence[argparse.Namespace]) -> int:
    """See that there are as many models and policies as there may be, and say how many."""
    count = len(options.model) + len(options.policy)
    if len(of_problems) > 1 and options.keep_smaller:
        raise OptionsError(
            f"--keep-smaller: expected models of one problem, found those of {len(of_problems)}"
        )
    if options.keep_smaller and not count:
        raise OptionsError(
            "--keep-smaller: expected a --model or --policy to compare with LLVM, found none"
        )
    if options.log and count != 1:
        found = count or "none"
        raise OptionsError(
            f"--log: expected a --model or --policy whose decisions are logged, found {found}"
        )
    most = max(len(each.model) + len(each.policy) for each in of_problems)
    if most > 1 and not options.keep_smaller:
        raise OptionsError(
            f"expected one --model or --policy of a problem, found {most}; --keep-smaller takes "
            "the best of several"
        )
    return count


def _form(options: argparse.Namespace) -> Form:
    """Return the form of the output; the ending of a folder's name says nothing."""
    if options.corpus:
        return options.emit or "object"
    path: Path = options.output
    suffix = path.suffix.lower()
    if str(path) == "-" or (suffix == ".ll" and not options.emit):
        expected = f"a file, such as NAME{', NAME'.join(_FORMS)}"
        raise OptionsError(f"--output: expected {expected}, found {str(path)!r}")
    return options.emit or _FORMS.get(suffix, "object")


def _files(output: Path, options: argparse.Namespace) -> list[Path]:
    return [] if options.corpus else [output]  # those of corpora are known when these are read


def _inputs(
    options: argparse.Namespace, form: Form
) -> tuple[Callable[[str], Module], dict[str, Path]]:
    """Return the reader of modules by name, and the output of each name."""
    path: Path | None = options.input
    if (path is None) != bool(options.corpus):
        found = "neither" if path is None else "both"
        raise OptionsError(f"input: expected a file or --corpus, found {found}")
    if path is None:
        packages = shared.packages_of(options)
        keys = {packages.label(key): key for key in packages}
        targets = {name: options.output / f"{name}{_SUFFIXES[form]}" for name in keys}
        OutputFile(is_folder=True).check("--output", options.output)
        read = (each.folder / f"{key.name}.bc" for key, each in packages.corpora.items())
        check_outputs(
            options,
            outputs=(("--output", path) for path in (options.output, *targets.values())),
            inputs=(("--corpus", module) for module in read),
        )
        return lambda name: packages[keys[name]], targets
    if path.suffix not in _INPUT_SUFFIXES:
        raise OptionsError(
            f"input: expected a file that ends in {' or '.join(_INPUT_SUFFIXES)}, "
            f"found {str(path)!r}; --corpus takes corpora"
        )
    return lambda _: Module.from_file(path), {path.name: options.output}
