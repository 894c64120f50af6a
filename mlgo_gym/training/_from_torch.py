"""Policies that were trained in PyTorch, as model directories, without TensorFlow.

A policy is a module from the vector of all features to one logit for each action, as
stable-baselines3, TorchRL, RLlib and most others have one. ``torch.export`` says what it does,
operator by operator, and each becomes one of TFLite. What the training environment's wrappers did
to the vector goes into the model, since LLVM sends plain features.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import numpy as np

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.model import GraphWriter, Operand, Value, write_tflite
from mlgo_gym.problems import Problem
from mlgo_gym.training._model_folder import model_folder
from mlgo_gym.training._trials import FORBIDDEN

_UNARY: Final = {
    "abs": "ABS", "ceil": "CEIL", "exp": "EXP", "floor": "FLOOR", "log": "LOG",
    "neg": "NEG", "relu": "RELU", "relu6": "RELU6", "rsqrt": "RSQRT", "sgn": "SIGN",
    "sigmoid": "LOGISTIC", "sign": "SIGN", "sqrt": "SQRT", "square": "SQUARE", "tanh": "TANH",
}  # fmt: skip
_BINARY: Final = {
    "add": "ADD", "div": "DIV", "maximum": "MAXIMUM", "minimum": "MINIMUM", "mul": "MUL",
    "sub": "SUB",
}  # fmt: skip
_COMPARISONS: Final = {
    "eq": "EQUAL", "ge": "GREATER_EQUAL", "gt": "GREATER", "le": "LESS_EQUAL", "lt": "LESS",
    "ne": "NOT_EQUAL",
}  # fmt: skip
_LOGIC: Final = {
    "__and__": "LOGICAL_AND", "__or__": "LOGICAL_OR", "bitwise_and": "LOGICAL_AND",
    "bitwise_not": "LOGICAL_NOT", "bitwise_or": "LOGICAL_OR", "logical_and": "LOGICAL_AND",
    "logical_not": "LOGICAL_NOT", "logical_or": "LOGICAL_OR",
}  # fmt: skip
_ELEMENTWISE: Final = {
    **{name: (kind, 1, None) for name, kind in _UNARY.items()},
    **{name: (kind, 2, None) for name, kind in _BINARY.items()},
    **{name: (kind, 2, "bool") for name, kind in _COMPARISONS.items()},
}
"""TFLite's operator, how many operands it has, and the type of its result where it is another."""

_RESHAPES: Final = frozenset(
    ("flatten", "reshape", "squeeze", "unflatten", "unsqueeze", "view", "_unsafe_view")
)
_NOTHING: Final = frozenset(
    (
        "_assert_tensor_metadata", "alias", "clone", "contiguous", "detach", "dropout",
        "lift_fresh_copy",
    )
)  # fmt: skip
"""Operators that change no number."""

_LARGEST: Final = float(np.finfo(np.float32).max)


def translated(writer: GraphWriter, exported: Any, given: Value) -> Value:
    """Write the operators of a ``torch.export.ExportedProgram`` of one input and one output.

    Raises:
        OptionsError: an operator is not supported, or it has other outputs.
    """
    signature = exported.graph_signature
    known = {**exported.state_dict, **exported.constants}
    sources = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values: dict[str, Any] = {}
    for node in exported.graph.nodes:
        match node.op:
            case "placeholder" if node.name in sources:
                values[node.name] = _array(known[sources[node.name]])
            case "placeholder":
                values[node.name] = given
            case "call_function":
                values[node.name] = _Call(writer, node, values).translated()
            case "output":
                (outputs,) = node.args
                if len(outputs) != 1 or not isinstance(found := values[outputs[0].name], Value):
                    raise OptionsError(
                        f"torch policy: expected one tensor of logits that the features decide, "
                        f"found {len(outputs)} outputs"
                    )
                return found
    raise OptionsError("torch policy: expected an output, found none")


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.detach().cpu().numpy()
    return array.astype(np.float32) if array.dtype == np.float64 else array


class _Call:
    """One operator with its operands, some by name, and the shape of its result."""

    def __init__(self, writer: GraphWriter, node: Any, values: Mapping[str, Any]) -> None:
        self.writer = writer
        self.name = str(node.target).removeprefix("aten.").partition(".")[0]
        schema = [each.name for each in node.target._schema.arguments]  # noqa: SLF001 - how torch names operands
        named = dict(zip(schema, node.args, strict=False)) | dict(node.kwargs)
        self._named = {name: _known(each, values) for name, each in named.items()}
        made = node.meta.get("val")
        self.is_float = str(getattr(made, "dtype", "")) == "torch.float32"
        self.shape = tuple(getattr(made, "shape", ()))

    def translated(self) -> Any:
        """The result; of a constant that nothing changes, its array."""
        if self.name in _NOTHING:
            return next(iter(self._named.values()))
        if self.name in _ELEMENTWISE:
            kind, count, dtype = _ELEMENTWISE[self.name]
            return self.writer.of(kind, *self.floats(count), dtype=dtype)
        if self.name in _LOGIC:
            return self.writer.of(_LOGIC[self.name], *self._named.values(), dtype="bool")
        if self.name in _RESHAPES:
            return self.writer.reshaped(self.value(), self.shape)
        if self.name in _OTHERS:
            return _OTHERS[self.name](self)
        raise self.error("not supported")

    def error(self, reason: str) -> OptionsError:
        return OptionsError(f"torch policy: operator {self.name}: {reason}")

    def of(self, name: str, default: Any = None) -> Any:
        """An operand by PyTorch's name of it."""
        return self._named.get(name, default)

    def value(self, name: str = "self") -> Value:
        """An operand that is computed, or a constant as a value."""
        return self.writer.value(self._named[name])

    def floats(self, count: int, *, after: int = 0) -> list[Operand]:
        """So many operands after so many others, as float32: what is false or true is 0 or 1."""
        if self.of("alpha", 1) != 1 or self.of("rounding_mode") is not None:
            raise self.error("expected neither alpha nor rounding_mode")
        return [self._float(each) for each in list(self._named.values())[after : after + count]]

    def _float(self, found: Any) -> Operand:
        if isinstance(found, Value):
            return self.writer.cast(found, "float32")
        return np.asarray(found, np.float32)

    def axis(self, *, more: int = 0) -> int:
        """The operand that is a dimension, of the result's and so many more, from the first on."""
        return int(self.of("dim", 0)) % max(len(self.shape) + more, 1)


def _known(given: Any, values: Mapping[str, Any]) -> Any:
    """An operand with what has been computed in place of the nodes."""
    if isinstance(given, list | tuple):
        return [_known(each, values) for each in given]
    return values[given.name] if hasattr(given, "op") else given


def _linear(call: _Call) -> Value:
    kernel, bias = call.of("weight"), call.of("bias")
    given = call.value("input")
    return call.writer.of(
        "FULLY_CONNECTED", given, kernel, bias, shape=call.shape, keep_num_dims=len(call.shape) != 2
    )


def _clamp(call: _Call) -> Value:
    value = call.value()
    low, high = call.of("min", call.of("min_val")), call.of("max", call.of("max_val"))
    for kind, bound in (("MAXIMUM", low), ("MINIMUM", high)):
        if bound is not None:
            value = call.writer.of(kind, value, bound)
    return value


def _log1p(call: _Call) -> Value:
    return call.writer.of("LOG", call.writer.of("ADD", call.value(), 1.0))


def _expm1(call: _Call) -> Value:
    return call.writer.of("SUB", call.writer.of("EXP", call.value()), 1.0)


def _silu(call: _Call) -> Value:
    value = call.value()
    return call.writer.of("MUL", value, call.writer.of("LOGISTIC", value))


def _elu(call: _Call) -> Value:
    writer, value, alpha = call.writer, call.value(), float(call.of("alpha", 1.0))
    below = writer.of("SUB", writer.of("EXP", writer.of("MINIMUM", value, 0.0)), 1.0)
    return writer.of("ADD", writer.of("RELU", value), writer.of("MUL", below, alpha))


def _gelu(call: _Call) -> Value:
    if call.of("approximate") != "tanh":
        raise call.error("expected approximate='tanh'")
    writer, value = call.writer, call.value()
    cube = writer.of("MUL", writer.of("MUL", writer.of("SQUARE", value), value), 0.044715)
    inner = writer.of("MUL", writer.of("ADD", value, cube), math.sqrt(2 / math.pi))
    half = writer.of("MUL", writer.of("ADD", writer.of("TANH", inner), 1.0), 0.5)
    return writer.of("MUL", value, half)


def _leaky_relu(call: _Call) -> Value:
    return call.writer.of("LEAKY_RELU", call.value(), alpha=float(call.of("negative_slope", 0.01)))


def _pow(call: _Call) -> Value:
    if call.of("exponent") != 2:
        raise call.error("expected the exponent 2")
    return call.writer.of("SQUARE", call.value())


def _softmax(call: _Call) -> Value:
    if call.axis() != len(call.shape) - 1:
        raise call.error("expected the last dimension")
    return call.writer.of("SOFTMAX", call.value(), beta=1.0)


def _layer_norm(call: _Call) -> Value:
    writer, value = call.writer, call.value("input")
    axes = tuple(range(len(call.shape) - len(call.of("normalized_shape")), len(call.shape)))
    mean = _reduced(writer, "MEAN", value, axes, keep=True)
    spread = writer.of("SQUARED_DIFFERENCE", value, mean)
    variance = _reduced(writer, "MEAN", spread, axes, keep=True)
    factor = writer.of("RSQRT", writer.of("ADD", variance, float(call.of("eps", 1e-5))))
    normal = writer.of("MUL", writer.of("SUB", value, mean), factor)
    for kind, name in (("MUL", "weight"), ("ADD", "bias")):
        if call.of(name) is not None:
            normal = writer.of(kind, normal, call.of(name))
    return normal


def _reduction(kind: str) -> Callable[[_Call], Value]:
    def reduce(call: _Call) -> Value:
        value = call.value()
        dimensions = call.of("dim") or range(len(value.shape))
        axes = tuple(sorted(int(each) % len(value.shape) for each in dimensions))
        return _reduced(call.writer, kind, value, axes, keep=bool(call.of("keepdim", False)))

    return reduce


def _reduced(
    writer: GraphWriter, kind: str, value: Value, axes: tuple[int, ...], *, keep: bool
) -> Value:
    shape = tuple(
        1 if axis in axes else size
        for axis, size in enumerate(value.shape)
        if keep or axis not in axes
    )
    return writer.of(kind, value, np.array(axes, np.int32), shape=shape)


def _cat(call: _Call) -> Value:
    parts = [call.writer.value(each) for each in call.of("tensors")]
    return call.writer.joined(parts, call.axis())


def _stack(call: _Call) -> Value:
    parts = [call.writer.value(each) for each in call.of("tensors")]
    return call.writer.of("PACK", *parts, shape=call.shape, axis=call.axis())


def _select(call: _Call) -> Value:
    value, axis = call.value(), call.axis(more=1)
    index = int(call.of("index")) % value.shape[axis]
    return call.writer.reshaped(_sliced(call.writer, value, axis, index, index + 1), call.shape)


def _slice(call: _Call) -> Value:
    if call.of("step", 1) != 1:
        raise call.error("expected the step 1")
    value, axis = call.value(), call.axis()
    start, end, _ = slice(call.of("start"), call.of("end")).indices(value.shape[axis])
    return _sliced(call.writer, value, axis, start, end)


def _sliced(writer: GraphWriter, value: Value, axis: int, start: int, end: int) -> Value:
    begin, size = np.zeros(len(value.shape), np.int32), np.array(value.shape, np.int32)
    begin[axis], size[axis] = start, end - start
    return writer.of("SLICE", value, begin, size, shape=tuple(map(int, size)))


def _where(call: _Call) -> Value:
    one, other = call.floats(2, after=1)
    return call.writer.of("SELECT_V2", call.value("condition"), one, other, dtype="float32")


def _reversed(call: _Call) -> Value:
    return call.writer.of("SUB", *reversed(call.floats(2)))


def _as_float(call: _Call) -> Operand:
    if not call.is_float:
        raise call.error("expected float32")
    return call.floats(1)[0]


_OTHERS: Final[Mapping[str, Callable[[_Call], Any]]] = {
    "_softmax": _softmax,
    "_to_copy": _as_float,
    "cat": _cat,
    "clamp": _clamp,
    "clamp_max": _clamp,
    "clamp_min": _clamp,
    "concat": _cat,
    "elu": _elu,
    "expm1": _expm1,
    "gelu": _gelu,
    "hardtanh": _clamp,
    "layer_norm": _layer_norm,
    "leaky_relu": _leaky_relu,
    "linear": _linear,
    "log1p": _log1p,
    "mean": _reduction("MEAN"),
    "pow": _pow,
    "rsub": _reversed,
    "select": _select,
    "silu": _silu,
    "slice": _slice,
    "softmax": _softmax,
    "stack": _stack,
    "sum": _reduction("SUM"),
    "where": _where,
}


@dataclass(frozen=True, slots=True)
class VectorNormalization:
    """The normalisation that a training environment's wrappers apply to the features.

    Attributes:
        signed_log: each number becomes ``sign(x) * log(1 + |x|)`` (`SignedLogObservation`).
        mean: of each number after that, which is taken from it; empty leaves it.
        variance: its variance, by the root of which it is divided.
        epsilon: added to the variance.
        limit: what remains is clipped to this size.

    The last four are those of Gymnasium's ``NormalizeObservation`` (``obs_rms.mean``,
    ``obs_rms.var`` and ``epsilon``; it does not clip) and of stable-baselines3's ``VecNormalize``
    (these three and ``clip_obs``).

    Raises:
        OptionsError: there are not as many means as variances.

    >>> VectorNormalization(signed_log=True).signed_log
    True
    """

    signed_log: bool = False
    mean: tuple[float, ...] = ()
    variance: tuple[float, ...] = ()
    epsilon: float = 1e-8
    limit: float = math.inf

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.variance):
            raise OptionsError(
                f"normalisation: expected {len(self.mean)} variances, found {len(self.variance)}"
            )

    def of(self, writer: GraphWriter, values: Value) -> Value:
        """Add it to a graph, for values ``float32 [1, numbers]``."""
        if self.signed_log:
            logarithm = writer.of("LOG", writer.of("ADD", writer.of("ABS", values), 1.0))
            values = writer.of("MUL", writer.of("SIGN", values), logarithm)
        if self.mean:
            factor = 1 / np.sqrt(np.array(self.variance) + self.epsilon)
            values = writer.of("SUB", values, np.array(self.mean, np.float32))
            values = writer.of("MUL", values, factor.astype(np.float32))
        if math.isfinite(self.limit):
            values = writer.of("MINIMUM", writer.of("MAXIMUM", values, -self.limit), self.limit)
        return values


def export_torch(
    policy: Any,
    problem: Problem,
    directory: str | Path,
    *,
    normalization: VectorNormalization = VectorNormalization(),
    card: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a PyTorch policy as a model directory.

    The vector is `mlgo_gym.envs.FloatVectorObservation`'s: all features in LLVM's order,
    those with 33 numbers one after the other. The decision is the largest logit's, of those that
    LLVM takes. Neither TensorFlow nor TFLite is needed.

    Args:
        policy: a ``torch.nn.Module`` from ``float32 [1, numbers]`` to ``float32 [1, actions]``: 2
            actions for the inliner (not to inline, and to inline), and 33 for eviction. It is
            exported as it is in ``eval`` mode, by ``torch.export``. Layers and arithmetic, slices
            and concatenations can be exported; loops over data cannot.
        problem: what it answers.
        directory: where; a model that is there is replaced.
        normalization: what the training environment's wrappers did to the vector.
        card: more for the model's card.

    Raises:
        OptionsError: the problem has no numbered actions; or the policy cannot be exported, takes
            or gives other numbers than the problem has, or has an operator that is not supported.
        ModelError: the folder cannot be written.
        EnvironmentSetupError: PyTorch is not installed.

    >>> import tempfile, torch
    >>> from mlgo_gym import InliningForSize
    >>> layers = torch.nn.Sequential(torch.nn.Linear(38, 8), torch.nn.SiLU(), torch.nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_torch(layers, InliningForSize(), f"{folder}/model")
    ...     (Path(folder) / "model" / "model.tflite").exists()
    True
    """
    space = problem.action_space()
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise OptionsError(
            f"torch policy: expected a problem with numbered actions, found {problem.name}"
        )
    numbers = sum(each.spec.element_count for each in problem.layout.features)
    if normalization.mean and len(normalization.mean) != numbers:
        raise OptionsError(
            f"normalisation: expected {numbers} means, found {len(normalization.mean)}"
        )
    writer = GraphWriter()
    sent = {each.spec.name: writer.input(each.spec) for each in problem.layout.features}
    values = normalization.of(writer, _vector(writer, problem, sent))
    logits = translated(writer, _exported(policy, numbers), values)
    if logits.shape != (1, space.n):
        raise OptionsError(
            f"torch policy: expected logits of shape (1, {space.n}) for {problem.name}, "
            f"found {logits.shape}"
        )
    if "mask" in sent:
        mask = writer.cast(sent["mask"], "float32")
        forbidden = writer.of("MUL", writer.of("SUB", 1.0, mask), FORBIDDEN)
        logits = writer.of("ADD", writer.of("MUL", logits, mask), forbidden)
    decision = writer.of("ARG_MAX", logits, np.int32(1), dtype="int64", shape=(1,))
    data = write_tflite(writer.graph(problem.advice.name, decision))
    made_for = {"trainer": "torch", **card}
    with model_folder(Path(directory), problem, tuple(sent), made_for) as folder:
        (folder / "model.tflite").write_bytes(data)


def _vector(writer: GraphWriter, problem: Problem, sent: Mapping[str, Value]) -> Value:
    """All features ``float32 [1, numbers]``, as the environments show them."""
    parts = []
    for feature in problem.layout.features:
        part = writer.cast(sent[feature.spec.name], "float32")
        if feature.may_be_infinite:
            finite = writer.of("LESS_EQUAL", writer.of("ABS", part), _LARGEST, dtype="bool")
            part = writer.of("SELECT_V2", finite, part, float(feature.high), dtype="float32")
        parts.append(writer.reshaped(part, (1, feature.spec.element_count)))
    return writer.joined(parts, axis=1)


def _exported(policy: Any, numbers: int) -> Any:
    """A policy as ``torch.export`` writes it down."""
    try:
        import torch  # noqa: PLC0415 - not needed otherwise
    except ImportError as error:
        raise EnvironmentSetupError(
            "torch policy: expected PyTorch, found none; pip install torch brings it"
        ) from error
    if not isinstance(policy, torch.nn.Module):
        raise OptionsError(f"torch policy: expected a torch.nn.Module, found {policy!r}")
    trains = policy.training
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PyTorch for itself
            exported = torch.export.export(policy.eval(), (torch.zeros(1, numbers),), strict=False)
            return exported.run_decompositions({})  # which leaves nothing that works in place
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionsError(
            f"torch policy: expected a module that takes float32 [1, {numbers}], and that "
            f"torch.export takes, found {type(error).__name__}: {reason}"
        ) from error
    finally:
        policy.train(trains)
