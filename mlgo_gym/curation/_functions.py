"""A corpus with one module a function, for register allocation: optimised, ready for code.

::

    corpus_info.json         {"optimized": true, ...}
    MODULE/FUNCTION.bc       one function of the optimised module, the others as declarations
    MODULE/FUNCTION.cmd      the module's command line, with -disable-llvm-passes
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

from corpus_tools.manifest import Manifest, encode_command, write_json
from corpus_tools.staging import INFO_NAME, staged_corpus
from mlgo_gym.base import CorpusError
from mlgo_gym.corpus import Corpus, Module, split_of
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    MARKING,
    CompileOptions,
    Compiler,
    Jobs,
    SplitRequest,
    each,
    options_of,
    plain_options,
)

_NO_PASSES: Final = "-disable-llvm-passes"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.$-]|^\.")
_LONGEST_NAME: Final = 200
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class FunctionModule:
    """A module that defines one function, named as the linker sees it, with its command line."""

    function: str
    instructions: int
    bitcode: bytes
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionSplit:
    """The new modules, their instructions, and why others were left out."""

    modules: tuple[str, ...]
    instructions: int
    failures: dict[str, str]


def split_module(
    compiler: Compiler,
    module: Module,
    options: CompileOptions | None = None,
    *,
    minimum_instructions: int = 0,
) -> tuple[FunctionModule, ...]:
    """Optimise a module, as its command says or as told, and make one of each function."""
    chosen = options or options_of(module)
    own = (module.is_text, chosen.target(), minimum_instructions, plain_options())
    request = SplitRequest(*own, chosen.llvm_options)
    answer, payload = compiler.inquire(module, request, chosen.llvm_options)
    command = _command(module, answer["opt_level"].removesuffix(MARKING))
    functions = answer["functions"]
    starts = accumulate((size for _, _, size in functions), initial=0)
    return tuple(
        FunctionModule(name, instructions, payload[start : start + size], command)
        for (name, instructions, size), start in zip(functions, starts, strict=False)
    )


def split_functions(
    corpus: Corpus,
    output: Path,
    *,
    opt_level: str | None = None,
    minimum_instructions: int = 0,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[], None] = lambda: None,
) -> FunctionSplit:
    """Write a corpus with one module for each function of a corpus; it appears whole or not at all.

    A module that LLVM refuses is left out and reported; functions with fewer instructions are left
    out, too. ``progress`` is called when a module is done.
    """
    CompileOptions(opt_level)

    def split(compiler: Compiler, name: str) -> tuple[str, tuple[FunctionModule, ...]]:
        module = corpus[name]
        options = options_of(module, opt_level)
        least = minimum_instructions
        return module.sha256, split_module(compiler, module, options, minimum_instructions=least)

    compiler = partial(Compiler, timeout_s=timeout_s)
    found = each(corpus.names, split, compiler, jobs=jobs, in_order=True)
    functions: dict[str, str] = {}
    hashes: dict[str, str] = {}
    failures: dict[str, str] = {}
    instructions = 0
    with staged_corpus(output) as staged, closing(found):
        for done in found:
            if done.error:
                failures[done.item] = str(done.error)
            else:
                hashes[done.item], parts = done.value
                functions |= _written(staged, done.item, parts)
                instructions += sum(part.instructions for part in parts)
            progress()
        if not functions:
            reasons = ": " + "; ".join(failures.values()) if failures else ""
            raise CorpusError(
                f"corpus: expected a function that is long enough, found none{reasons}"
            )
        Manifest(tuple(functions)).write(staged)
        info = {
            "optimized": True,
            "source": corpus.folder.resolve().name,
            "split": split_of(corpus.folder),
            "opt_level": opt_level,
            "minimum_instructions": minimum_instructions,
            "sha256": hashes,
            "functions": functions,
        }
        write_json(staged / INFO_NAME, info)
    return FunctionSplit(tuple(functions), instructions, failures)


def _written(folder: Path, module: str, parts: Iterable[FunctionModule]) -> dict[str, str]:
    """Write modules of one function each; their functions by the modules' names."""
    written = {}
    for part in parts:
        name = f"{module}/{file_name(part.function)}"
        path = folder / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(part.bitcode)
        path.with_name(f"{path.stem}.cmd").write_bytes(encode_command(part.command))
        written[name] = part.function
    return written


def _command(module: Module, opt_level: str) -> tuple[str, ...]:
    """The module's command line at a level and without passes."""
    command = module.command or ("-cc1",)
    level = options_of(module).opt_level
    return (*command, *([] if level == opt_level else [f"-{opt_level}"]), _NO_PASSES)


def file_name(function: str) -> str:
    """A function's name as a part of a module's name: safe as a file name, and short enough.

    >>> file_name("operator new"), len(file_name("x" * 5000))
    ('operator%20new', 200)
    """
    data = function.encode("utf-8", "surrogateescape").decode("latin-1")
    safe = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", data)
    if len(safe) <= _LONGEST_NAME:
        return safe
    digest = hashlib.sha256(safe.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{safe[: _LONGEST_NAME - _DIGEST_DIGITS - 1]}-{digest}"
