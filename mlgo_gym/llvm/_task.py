"""Tasks of a compilation, and those that there are names for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mlgo_gym.base import InternalError

_PRODUCTS: Final = ("object", "assembly", "bitcode", "machine code", "functions", "text")
_ALLOCATED: Final = "virtregrewriter"


@dataclass(frozen=True, slots=True)
class Task:
    """A compilation's steps, and the product that it hands back.

    Attributes:
        optimize: the module goes through the optimiser; an optimised module need not.
        product: one of these:

            - ``object``: the module's code
            - ``assembly``: its code as text
            - ``bitcode``: the optimised module
            - ``machine code``: LLVM's MIR right after register allocation; code generation ends
              there
            - ``functions``: each named function as the bitcode of a module of its own
            - ``text``: each named function as LLVM prints it, empty if the module has none of the
              name; without names, the whole module
        print_frequencies: LLVM prints the frequencies of machine blocks to standard error.
        functions: the names of the functions that are handed back.
        estimates: the result has the number of executed instructions, estimated by the counts in
            the bitcode.
        names: the context of each inlining decision is the names of caller and callee, with a NUL
            between them.
        sites: as `names`, and behind another NUL the calls through which this one was inlined
            (`Site`).
        debug_info: the object has debug information, whose lines are the calls' ids (`Site`).
        left: functions whose evictions LLVM's own heuristic decides, without a question
            (`Policy.left`).

    Raises:
        InternalError: there is no such product, or debug information without sites.

    >>> Task(product="assembly").optimize
    True
    """

    optimize: bool = True
    product: str = "object"
    print_frequencies: bool = False
    functions: tuple[str, ...] = ()
    estimates: bool = False
    names: bool = False
    sites: bool = False
    debug_info: bool = False
    left: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.product not in _PRODUCTS:
            raise InternalError(f"task: expected one of {_PRODUCTS}, found {self.product!r}")
        if self.debug_info and not self.sites:
            raise InternalError("task: expected sites with debug_info, found none")

    @property
    def knows_calls(self) -> bool:
        """Whether the call that LLVM asks about is looked at."""
        return self.names or self.sites

    @property
    def looks_inside(self) -> bool:
        """Whether it takes more of LLVM than its channels: where its functions are."""
        return self.knows_calls or bool(self.left)

    @property
    def is_forkable(self) -> bool:
        """Whether compilations can branch: an object is made, or registers are allocated alone."""
        plain = replace(self, estimates=False, sites=False, debug_info=False)
        return plain in {COMPILE, ALLOCATE}

    def llvm_options(self) -> tuple[str, ...]:
        """LLVM's options for it; every task sets them all, since they outlast a compilation."""
        stop = _ALLOCATED if self.product == "machine code" else ""
        return (
            f"-stop-after={stop}",
            f"-print-machine-bfi={str(self.print_frequencies).lower()}",
        )


COMPILE: Final = Task()
"""Optimise a module and generate its object."""

COMPILE_WITH_ESTIMATE: Final = replace(COMPILE, estimates=True)
"""`COMPILE`, with an estimate of the instructions that are executed."""

COMPILE_WITH_DEBUG_INFO: Final = replace(COMPILE, sites=True, debug_info=True)
"""`COMPILE`, with the `Site` of each decision, and which code of the object comes of it."""

ASSEMBLE: Final = Task(product="assembly")
"""Optimise a module and generate its assembly."""

OPTIMIZE: Final = Task(product="bitcode")
"""Optimise a module; `ALLOCATE` and `extract` take what comes out."""

ALLOCATE: Final = Task(optimize=False, product="machine code")
"""Generate the code of an optimised module up to the end of register allocation."""

ALLOCATE_WITH_FREQUENCIES: Final = replace(ALLOCATE, print_frequencies=True)
"""`ALLOCATE`, with LLVM's estimates of how often each block runs."""


def extract(names: tuple[str, ...]) -> Task:
    """Take functions out of an optimised module."""
    return Task(optimize=False, product="functions", functions=names)
