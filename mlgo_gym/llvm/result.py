"""What comes out of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CompilationResult"]

_TEXT: Final = (".text", ".ltext", "__text")


@dataclass(frozen=True, slots=True)
class CompilationResult:
    """What came out of a compilation.

    Attributes:
        module: the module's name.
        module_sha256: the hash of the module's bytes.
        settings: what decided the code besides: level, models, problem and its settings.
        llvm_version: the LLVM that compiled.
        decisions: how many observations were answered.
        sections: name and size in bytes of each section of the object, in its order.
        object_sha256: the hash of the object's bytes.
        object_bytes: the object, where it was asked for.
    """

    module: str
    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    decisions: int
    sections: tuple[tuple[str, int], ...] = field(repr=False)
    object_sha256: str
    object_bytes: bytes | None = field(default=None, repr=False)

    @property
    def text_size_bytes(self) -> int:
        """The size of the code: the sum of the ``.text*`` sections.

        Their names in the large code model (``.ltext``) and in Mach-O (``__text``) count too.
        """
        return sum(size for name, size in self.sections if name.startswith(_TEXT))
