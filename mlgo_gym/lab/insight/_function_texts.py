"""Functions as LLVM prints them: as the bitcode has them, and as optimised under two policies."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mlgo_gym.corpus import ModuleKey, Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.insight._decision_changes import FunctionChange
from mlgo_gym.llvm import Compiler, Done, Product, Task, each, options_of
from mlgo_gym.problems import in_turn

Answers = Mapping[ModuleKey, tuple[Sequence[int], Sequence[int]]]
"""The answers of both policies in each module, in the order of LLVM's questions."""


@dataclass(frozen=True, slots=True)
class FunctionTexts:
    """A function in LLVM's assembly; what is not there is empty.

    Attributes:
        key: the package and the module.
        function: its symbol.
        plain: as the bitcode has it.
        optimised: as it is optimised under the first and under the second policy.
    """

    key: ModuleKey
    function: str
    plain: str
    optimised: tuple[str, str]


def function_texts(
    packages: Packages, chosen: Iterable[FunctionChange], answers: Answers, setting: Setting
) -> Generator[Done[ModuleKey, list[FunctionTexts]]]:
    """The texts of functions, module by module; compiles each module again under both policies."""
    names: dict[ModuleKey, list[str]] = {}
    for function in chosen:
        names.setdefault(function.key, []).append(function.function)

    def work(compiler: Compiler, key: ModuleKey) -> list[FunctionTexts]:
        module, problem = packages[key], setting.problem
        options, wanted = options_of(module, setting.opt_level), tuple(dict.fromkeys(names[key]))
        plain = compiler.produce(module, options, Task(False, "text", functions=wanted))
        texts = [_parts(plain)]
        for answered in answers[key]:
            answer = {problem: in_turn(answered)}
            made = compiler.produce(module, options, Task(product="text", functions=wanted), answer)
            texts.append(_parts(made))
        columns = zip(wanted, *texts, strict=True)
        return [FunctionTexts(key, name, text, (one, two)) for name, text, one, two in columns]

    compiler = partial(Compiler, timeout_s=setting.timeout_s)
    return each(names, work, compiler, jobs=setting.jobs, in_order=True)


def _parts(product: Product) -> list[str]:
    """Each function's text."""
    found, start = [], 0
    for size in product.sizes:
        found.append(product.data[start : start + size].decode())
        start += size
    return found
