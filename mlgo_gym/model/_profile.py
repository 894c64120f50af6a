"""A model's machine code by the operators that it comes of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mlgo_gym.base import ModelError
from mlgo_gym.corpus import function_code
from mlgo_gym.model._graph import Graph
from mlgo_gym.model._origins import Origin, Origins


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """The code of an operator, or of what is fused into one.

    Attributes:
        number: which operator of the graph it is, from 0; ``None`` for what is of none.
        name: TFLite's name of the operator, or what is fused into it, as in ``relu``.
        origins: what the model that was trained called it: the parts of the output's name, of
            which the converter to TFLite makes one.
        instructions: how many instructions of it one evaluation runs through, before they are
            optimised.
        size_bytes: the size of its machine code; 0 where LLVM has made none of it, or has merged
            it with another's.

    >>> OperatorCode(3, "FULLY_CONNECTED", ("dense/MatMul", "dense/BiasAdd"), 4100, 220).number
    3
    """

    number: int | None
    name: str
    origins: tuple[str, ...]
    instructions: int
    size_bytes: int


def operator_codes(
    data: bytes, function: str, graph: Graph, origins: Origins, evaluated: int
) -> tuple[OperatorCode, ...]:
    """The parts of a function of an object, in the order of execution, and the rest as the last.

    Raises:
        ModelError: the object is none whose debug information can be read.
    """
    try:
        code = function_code(data)[function]
    except (ValueError, KeyError) as error:
        raise ModelError(graph.source, f"profile: {error}") from error
    sizes = Counter[tuple[int, ...]]()
    for inlined in code.inlined:
        sizes[inlined.ids] += inlined.own_bytes
    numbers = _numbers(origins.found)
    found = []
    for each in origins.found:
        number = numbers[each.ids[-1]]
        output = graph.tensors[graph.operators[number].outputs[0]].name
        found.append(
            OperatorCode(
                number,
                each.name,
                tuple(output.split(";")),
                origins.evaluated[each],
                sizes[each.ids],
            )
        )
    counted = sum(each.instructions for each in found)
    rest = code.size_bytes - sum(each.size_bytes for each in found)
    return (*found, OperatorCode(None, "inputs and outputs", (), evaluated - counted, rest))


def _numbers(origins: list[Origin]) -> Mapping[int, int]:
    """The operators' numbers by their ids."""
    own = (each.ids[0] for each in origins if len(each.ids) == 1)
    return {identity: number for number, identity in enumerate(own)}
