"""Rules that an agent writes, and what they are worth: all but the server."""

from __future__ import annotations

import ast
from typing import Any

import llvmlite.binding as llvm

from mlgo_gym import Corpus, InliningForSize
from mlgo_gym.rollout import rollout

PROBLEM = InliningForSize()
MOST_CHARACTERS = 4_000
FEATURES = {each.spec.name: f"{each.meaning}, {each.unit}" for each in PROBLEM.layout.features}
ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.IfExp, ast.Name, ast.Load, ast.Constant,
)  # fmt: skip


class Rule:
    """An expression over LLVM's features: where it is true, the call is inlined.

    It is code of somebody else, so nothing but numbers, names of features, arithmetic, comparisons
    and ``and``, ``or``, ``not`` and ``if`` is evaluated.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise ValueError(
                f"expected at most {MOST_CHARACTERS:,} characters, found {len(text):,}"
            )
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"expected an expression of Python: {error}") from error
        for node in ast.walk(tree):
            if found := _refused(node):
                raise ValueError(
                    "expected numbers, features, + - *, comparisons, and, or, not, if: "
                    f"found {found}"
                )
        self._code = compile(tree, "rule", "eval")
        self._names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    def __call__(self, observation: Any) -> int:
        """1 where the call is inlined."""
        values = {name: int(observation[name][0]) for name in self._names}
        return int(bool(eval(self._code, {"__builtins__": {}}, values)))  # noqa: S307


def _refused(node: ast.AST) -> str:
    """What a rule must not have; nothing where it may."""
    if isinstance(node, ast.Name) and node.id not in FEATURES:
        return f"{node.id}, which is no feature of LLVM's"
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
        return repr(node.value)
    return "" if isinstance(node, ALLOWED) else type(node).__name__


def ir(corpus: Corpus, module: str, first: int, lines: int) -> str:
    """Some lines of a module's IR."""
    text = str(llvm.parse_bitcode(corpus[module].data, llvm.create_context()))
    return "\n".join(text.splitlines()[first : first + lines])


def score(corpus: Corpus, text: str) -> tuple[float, dict[str, Any]]:
    """The mean over modules of the share of code that a rule saves, and what it does to each."""
    rule, rewards = Rule(text), []
    modules: dict[str, Any] = {}
    for report in rollout(corpus, {"rule": rule}, PROBLEM):
        (attempt,) = report.attempts
        reward = report.reward(attempt)
        if reward is None or report.baseline is None or attempt.result is None:
            modules[report.module] = str(attempt.error or report.error)
            continue
        rewards.append(reward)
        modules[report.module] = {
            "bytes": report.measure.score(attempt.result),
            "bytes_of_llvm": report.measure.score(report.baseline),
        }
    mean = sum(rewards) / len(rewards) if rewards else -1.0
    return mean, modules
