"""Lowers a `Graph` to the text of an LLVM module; what it writes with can as well be of C.

The text defines one function with C linkage::

    int32_t NAME_evaluate(const void *const *inputs, void *const *outputs);

``inputs`` and ``outputs`` hold one pointer for each port of the graph, in its order, aligned for
their elements and free of overlap. The result is 0, or 1 plus the number of the operator that met
a value it is not defined for (an index out of range, an integer divided by zero); outputs then hold
nothing of use. The function keeps all its state on the stack: it is re-entrant and thread-safe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from mlgo_gym.base import ModelError
from mlgo_gym.model import _arrays as arrays
from mlgo_gym.model import _dense as dense
from mlgo_gym.model import _elementwise as elementwise
from mlgo_gym.model import _reductions as reductions
from mlgo_gym.model._graph import Graph
from mlgo_gym.model._ir import IrWriter
from mlgo_gym.model._origins import Origins
from mlgo_gym.model._scope import Scope, Step
from mlgo_gym.model._writer import Writer

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")

_LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    **elementwise.LOWERINGS,
    **dense.LOWERINGS,
    **arrays.LOWERINGS,
    **reductions.LOWERINGS,
}


def check_name(name: str) -> str:
    """The name, if C can use it as an identifier."""
    if not _NAME.fullmatch(name):
        raise ModelError(name, f"expected a C identifier as name, found {name!r}")
    return name


def lower_graph(graph: Graph, *, name: str = "model") -> str:
    """The LLVM IR of a graph: a module with the function ``NAME_evaluate``.

    Raises:
        ModelError: an operator is used in a way that is not supported, shapes do not fit each
            other, or the function would need too much memory or time.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.model import read_tflite
    >>> graph = read_tflite(find_model("inlining-for-size") + "/model.tflite")
    >>> "define" in lower_graph(graph, name="inliner")
    True
    """
    return lower_and_count(graph, name)[0]


def lower_and_count(graph: Graph, name: str, origins: Origins | None = None) -> tuple[str, int]:
    """Return what `lower_graph` does, and how many instructions one evaluation executes.

    With origins, debug locations say what operator each comes of.
    """
    check_name(name)
    writer = IrWriter(origins)
    lower_into(writer, graph)
    return writer.module(name), writer.evaluated


def lower_into(writer: Writer, graph: Graph) -> None:
    """Write a graph's function; of all languages, this is how."""
    scope = Scope(graph, writer)
    for number, port in enumerate(graph.inputs):
        dtype = graph.tensors[port.tensor].dtype
        scope.pointers[port.tensor] = writer.input(number, dtype, port.name)
    for number, operator in enumerate(graph.operators):
        step = Step(scope, number, operator)
        if operator.kind not in _LOWERINGS:
            raise step.error("not supported")
        writer.note(f"Operator {number}: {operator.kind} {step.output.name}")
        with writer.within(operator.kind):
            _LOWERINGS[operator.kind](step)
        scope.check()
    for number, port in enumerate(graph.outputs):
        tensor = graph.tensors[port.tensor]
        writer.note(f"Output {number}: {port.name}")
        writer.output(number, tensor.dtype, scope.pointer(port.tensor), tensor.element_count)
    scope.check()
