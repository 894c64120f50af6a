"""Lowers a `Graph` to the text of an LLVM module.

The module defines one function with C linkage::

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

from mlgo_gym.errors import ModelError
from mlgo_gym.native import _arrays as arrays
from mlgo_gym.native import _dense as dense
from mlgo_gym.native import _elementwise as elementwise
from mlgo_gym.native import _reductions as reductions
from mlgo_gym.native._functions import definitions
from mlgo_gym.native._graph import Graph
from mlgo_gym.native._scope import Scope, Step

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")

_POINTERS: Final = "ptr readonly captures(none)"

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
    >>> from mlgo_gym.native import read_tflite
    >>> graph = read_tflite(find_model("inlining-for-size") + "/model.tflite")
    >>> "define" in lower_graph(graph, name="inliner")
    True
    """
    return lower_and_count(graph, name)[0]


def lower_and_count(graph: Graph, name: str) -> tuple[str, int]:
    """As `lower_graph`, and how many instructions one evaluation runs through."""
    check_name(name)
    scope = Scope(graph)
    for number, port in enumerate(graph.inputs):
        address = scope.writer.address("ptr", "%inputs", str(number))
        scope.pointers[port.tensor] = scope.writer.value(
            f"load ptr, ptr {address}, !invariant.load !0"
        )
    for number, operator in enumerate(graph.operators):
        step = Step(scope, number, operator)
        if operator.kind not in _LOWERINGS:
            raise step.error("not supported")
        _LOWERINGS[operator.kind](step)
        scope.check()
    for number, port in enumerate(graph.outputs):
        _copy_out(scope, number, port.tensor)
    scope.check()
    return _module(scope, name), scope.writer.evaluated


def _copy_out(scope: Scope, number: int, tensor: int) -> None:
    writer, described = scope.writer, scope.graph.tensors[tensor]
    address = writer.address("ptr", "%outputs", str(number))
    pointer = writer.value(f"load ptr, ptr {address}")
    # No loop: of many, LLVM would ask of each two whether they overlap.
    writer.emit(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {pointer}, ptr {scope.pointer(tensor)}, "
        f"i64 {described.size_bytes}, i1 false)"
    )


def _module(scope: Scope, name: str) -> str:
    body = scope.writer
    body.emit(f"ret i32 {body.load('i32', scope.status)}")
    text = body.text()
    return "\n".join(
        [
            *scope.constants,
            definitions(text),
            f"define i32 @{name}_evaluate({_POINTERS} %inputs, {_POINTERS} %outputs) nounwind {{",
            text,
            "}",
            "!0 = !{}",
            "",
        ]
    )
