"""Functions as policies that answer inside the worker."""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mlgo_gym.base import UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.problems import Answer, Policy, Problem, SentPolicy


class WorkerPolicy(Policy):
    """Answers with a function inside the worker, where LLVM asks: no process is woken up for it.

    A function that a module of its name has is imported in the worker. Any other is sent as its
    source, and made there: it may use modules that are imported where it stands, and nothing else
    from around it. It runs where no file can be opened (`docs/explanation/threat-model.md`), and
    for each worker by itself, so what it changes is not seen here; what it raises is a
    `PolicyError`.

    Args:
        answer: from an observation to an action.

    Raises:
        UsageError: the function cannot be sent; the message says why.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> def small(observation):
    ...     return int(observation["callee_basic_block_count"][0] < 3)
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     result = compiler.compile_module(
    ...         module, problem=InliningForSize(), policy=WorkerPolicy(small)
    ...     )
    >>> result.decisions
    46
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._about, self._data = _described(answer)

    def begin(self, module: Module) -> AbstractContextManager[Answer]:  # noqa: ARG002
        """The function here, for what the worker leaves to its host."""
        return nullcontext(self._answer)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """The function, where its answers can be checked there."""
        checks = problem.for_worker()
        if checks is None:
            return None
        about = self._about | checks
        digest = hashlib.sha256(json.dumps(about).encode() + self._data)
        return SentPolicy(f"function-{digest.hexdigest()}", about, self._data)


def _described(answer: Answer) -> tuple[dict[str, Any], bytes]:
    if not isinstance(answer, FunctionType):
        raise _refused(answer, f"expected a function, found {type(answer).__name__}")
    name = answer.__qualname__
    if answer.__module__ != "__main__" and "<" not in name:
        path = f"{answer.__module__}:{name}"
        try:
            found = pkgutil.resolve_name(path)
        except (ImportError, AttributeError, ValueError):
            found = None
        if found is answer:
            return {"kind": "function", "name": path, "imports": {"": answer.__module__}}, b""
    return _of_source(answer)


def _of_source(answer: FunctionType) -> tuple[dict[str, Any], bytes]:
    if answer.__name__ == "<lambda>":
        raise _refused(answer, "expected a name, which a lambda has not")
    if answer.__closure__:
        free = ", ".join(map(repr, answer.__code__.co_freevars))
        raise _refused(answer, f"expected nothing from around it but modules, found {free}")
    try:
        source = textwrap.dedent(inspect.getsource(answer))
    except (OSError, TypeError) as error:
        raise _refused(answer, f"its source cannot be read: {error}") from error
    imports = {}
    for name in _names(answer.__code__):
        value = answer.__globals__.get(name)
        if isinstance(value, ModuleType):
            imports[name] = value.__name__
        elif name in answer.__globals__:
            raise _refused(answer, f"expected nothing from around it but modules, found {name!r}")
    name = answer.__name__
    file = f"<{name}>"
    return {"kind": "source", "name": name, "file": file, "imports": imports}, source.encode()


def _names(code: CodeType) -> Iterator[str]:
    """The names that code looks up in what is around it, functions inside it included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _refused(answer: Callable[..., Any], reason: str) -> UsageError:
    name = getattr(answer, "__qualname__", repr(answer))
    return UsageError(f"policy {name}: cannot be sent to a worker: {reason}")
