"""The order for a compilation, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from mlgo_gym.corpus import Module
from mlgo_gym.llvm._task import Task
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.llvm.text._executed import executed_instructions
from mlgo_gym.problems import Problem, SentPolicy

_TEXT: Final = (".text", ".ltext", "__text")


@dataclass(frozen=True, slots=True)
class Order:
    """A module and how it is compiled: all that is needed to do it again."""

    module: Module
    options: CompileOptions
    problems: tuple[Problem, ...]
    task: Task
    timeout_s: float
    keep_object: bool
    keep_stderr: bool
    inside: Mapping[Problem, SentPolicy] = field(default_factory=dict)


@dataclass(frozen=True)
class CompilationResult:
    """The result of a compilation that made an object.

    Attributes:
        settings: the settings that decided the code: level, models, problem and its settings.
        decisions: how many observations were answered.
        sections: name and size in bytes of each section of the object, in its order.
        object_bytes: the object, where it was asked for.
        comdat_groups: the COMDAT group of each section, in the same order; empty for a section
            that is in none, and in object formats other than ELF.
        executed_instructions: how many instructions are executed by the counts in the bitcode, an
            estimate, if it was asked for; ``None`` where the bitcode has none.
        executed_before: how many of LLVM's own, before any optimisation, if that was asked for.

    >>> from mlgo_gym import Compiler, Module
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     compiler.compile_module(module).decisions
    0
    """

    module: str
    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    sections: tuple[tuple[str, int], ...] = field(repr=False)
    object_sha256: str
    object_bytes: bytes | None = field(default=None, repr=False)
    comdat_groups: tuple[str, ...] = field(default=(), repr=False)
    executed_instructions: float | None = field(default=None, repr=False)
    executed_before: int = field(default=0, repr=False)

    @classmethod
    def of(
        cls,
        module: str,
        answer: Mapping[str, Any],
        data: bytes,
        record: Mapping[str, Any],
        printed: str | None,
    ) -> Self:
        """Split a worker's answer: the object's bytes if it was to keep them, and the rest.

        With what LLVM has printed, for an estimate, the bytes are behind those of the assembly.
        """
        if printed is not None:
            record = {**record, **_estimate(answer, data, printed)}
            data = data[answer["assembly_bytes"] :]
        return cls(
            module=module,
            sections=tuple((name, size) for name, size, _ in answer["sections"]),
            comdat_groups=tuple(group for *_, group in answer["sections"]),
            object_sha256=answer["object_sha256"],
            object_bytes=data or None,
            **record,
        )

    @cached_property
    def text_size_bytes(self) -> int:
        """The size of the code: the sum of the ``.text*`` sections.

        Their names in the large code model (``.ltext``) and in Mach-O (``__text``) count too.
        """
        return sum(size for name, size in self.sections if name.startswith(_TEXT))

    def comdat_text_bytes(self) -> dict[str, int]:
        """The size of the code in each COMDAT group; a linker keeps one group of each name.

        The rest of `text_size_bytes` is the module's own. See `rollout._linked_text`.
        """
        sizes: dict[str, int] = {}
        for (name, size), group in zip(self.sections, self.comdat_groups, strict=True):
            if group and name.startswith(_TEXT):
                sizes[group] = sizes.get(group, 0) + size
        return sizes

    @property
    def score(self) -> float:
        """The size of the code, in bytes, by which policies are compared."""
        return self.text_size_bytes

    @property
    def digest(self) -> str:
        """The hash of what came out: the object's."""
        return self.object_sha256

    def record(self) -> dict[str, Any]:
        """The result as JSON values: score, hash and settings."""
        return {
            "text_size_bytes": self.text_size_bytes,
            "object_sha256": self.object_sha256,
            "settings": dict(self.settings),
        }


@dataclass(frozen=True, slots=True)
class Product:
    """The product of a task other than making an object.

    Attributes:
        settings: the settings that decided it: level, models, problems and their settings.
        decisions: how many observations were answered.
        opt_level: the level that the module was optimised at, or is to be emitted at.
        data: the bytes of the product; those of several functions stand one after the other.
        sizes: how many of the bytes belong to each function, in order; empty for other products.
        stderr: what LLVM printed to its standard error, where it was asked to print something.

    >>> from mlgo_gym import Compiler, Module
    >>> from mlgo_gym.llvm import Task
    >>> module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    >>> with Compiler() as compiler:
    ...     product = compiler.produce(module, None, Task(product="assembly"))
    >>> b"f:" in product.data
    True
    """

    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    opt_level: str
    data: bytes = field(repr=False)
    sizes: tuple[int, ...] = ()
    stderr: str = field(default="", repr=False)

    @classmethod
    def of(
        cls, answer: Mapping[str, Any], data: bytes, stderr: str, record: Mapping[str, Any]
    ) -> Self:
        """Make a product of a worker's answer, its bytes, and the record."""
        sizes = tuple(answer.get("sizes", ()))
        return cls(opt_level=answer["opt_level"], data=data, sizes=sizes, stderr=stderr, **record)


def settings_of(options: CompileOptions, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the settings that decide the code besides the module, for the record."""
    settings = options.settings()
    for problem in problems:
        settings |= problem.settings()
    if len(problems) > 1:
        settings["problem"] = [problem.name for problem in problems]
    return settings


def _estimate(answer: Mapping[str, Any], data: bytes, printed: str) -> dict[str, Any]:
    text = data[: answer["assembly_bytes"]].decode("utf-8", "replace")
    executed = executed_instructions(text, printed, answer["largest_count"])
    return {"executed_instructions": executed, "executed_before": answer["executed_before"]}
