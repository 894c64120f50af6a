"""Model directories: a network saved as LLVM and all here takes it; and as machine code.

::

    saved_model.pb, variables/   SavedModel with LLVM's signature ``action``
    model.tflite                 the same graph for TFLite, and for release mode
    output_spec.json             which output is the decision
    card.json                    what the model was made for, how, and what it is worth
    network.json, weights.npz    the network and its weights, to train on

The signature's inputs carry the names of LLVM's features. Compiled ahead of time, by
``saved_model_cli aot_compile_cpu``, they are fed as ``feed_NAME``, and the decision is fetched as
``fetch_NAME``: what LLVM's release runner looks up
(``llvm/include/llvm/Analysis/ReleaseModeModelRunner.h``). TFLite's converter calls them
``action_NAME``, which is what LLVM's development mode and the runners here look up.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from corpus_tools.reading import brief, reason_of
from mlgo_gym.base import (
    ModelError,
    OptionsError,
    read_arrays,
    read_bounded,
    staged_folder,
    write_json,
)
from mlgo_gym.model import (
    CARD_FILE,
    SIGNATURE,
    compile_model,
    converted,
    read_model_json,
    unreadable,
)
from mlgo_gym.problems import Problem
from mlgo_gym.training._model_folder import model_folder, unwritable
from mlgo_gym.training._networks import PolicyNetwork, check_arrays, network_from_config
from mlgo_gym.training._trials import NetworkCode

_NETWORK_FILE: Final = "network.json"
_WEIGHTS_FILE: Final = "weights.npz"
_MAX_WEIGHTS_BYTES: Final = 1 << 28
_OPERATION: Final = re.compile(r"\{\{.*?\}\} | \[Op:.*", re.DOTALL)
"""TensorFlow's words about itself around a reason."""
FILE_ERRORS: Final = (OSError, tf.errors.OpError, ConverterError)
"""Errors of files that Python or TensorFlow cannot write, or read again."""


def save_model(
    model: PolicyNetwork | Path,
    problem: Problem,
    directory: Path,
    card: Mapping[str, Any],
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a model directory, or replace it at once, by a network or another one's copy.

    Texts are files besides, by name, of a network alone.
    """
    try:
        if not isinstance(model, Path):
            with model_folder(directory, problem, model.features(), card, texts) as staged:
                _write(model, problem, staged)
            return
        with staged_folder(directory, CARD_FILE) as staged:
            shutil.copytree(model, staged, dirs_exist_ok=True)
            made_for: dict[str, Any] = read_model_json(staged / CARD_FILE, str(model))
            write_json(staged / CARD_FILE, made_for | dict(card))
    except FILE_ERRORS as error:
        raise unwritable(directory, reason(error)) from error


def reason(error: OSError | tf.errors.OpError | ConverterError) -> str:
    """Why a file cannot be written, which TensorFlow says of those that it writes itself."""
    if isinstance(error, OSError):
        return reason_of(error)
    return _OPERATION.sub("", str(error)).partition("\n")[0]


def signature_of(network: PolicyNetwork, problem: Problem) -> tuple[tf.Module, Any]:
    """A TensorFlow module, and its function from features to the decision at LLVM's shapes."""
    module = tf.Module()
    # Variables of TensorFlow's own: its TFLite converter does not freeze those of Keras 3.
    module.weights = [tf.Variable(each) for each in network.trainable_variables]

    def action(**features: Any) -> dict[str, Any]:
        logits, _ = network.stateless_call(module.weights, [], features)
        return {problem.advice.name: tf.argmax(logits, axis=-1, output_type=tf.int64)}

    module.action = tf.function(action, autograph=False)
    return module, module.action.get_concrete_function(**_inputs(network, problem))


def logits_graph(network: PolicyNetwork, problem: Problem) -> bytes:
    """A TFLite graph of the logits, ``float32 [1, actions]``, whose weights are inputs."""
    variables = network.trainable_variables
    weights = {
        weight_name(number): tf.TensorSpec(each.shape, tf.float32, name=weight_name(number))
        for number, each in enumerate(variables)
    }

    def logits(**given: Any) -> Any:
        values = [given.pop(name) for name in weights]
        return network.stateless_call(values, [], given)[0]

    inputs = _inputs(network, problem) | weights
    function = tf.function(logits, autograph=False).get_concrete_function(**inputs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
    graph: bytes = converter.convert()
    return graph


def weight_name(number: int) -> str:
    """Return the name of a network's weight among the inputs of `logits_graph`."""
    return f"weight_{number}"


def load_network(directory: Path) -> PolicyNetwork:
    """The network of a model directory, with its weights, to train on or to look at.

    Raises:
        ModelError: a file is missing or damaged, or the two do not fit.
    """
    source = str(directory)
    config = read_model_json(directory / _NETWORK_FILE, source)
    try:
        data = read_bounded(directory / _WEIGHTS_FILE, _MAX_WEIGHTS_BYTES)
    except OSError as error:
        raise unreadable(error, source, _WEIGHTS_FILE) from error
    try:
        weights = _weights(read_arrays(data, len(data)))
        network = network_from_config(config, sum(each.size for each in weights))
        check_arrays(_numbered(weights), _numbered(network.get_weights()))
        network.set_weights(weights)
    except OptionsError as error:
        raise ModelError(source, f"{_NETWORK_FILE}: {error}") from error
    except (ValueError, KeyError) as error:
        raise ModelError(
            source, f"{_WEIGHTS_FILE}: expected the network's weights: {brief(error)}"
        ) from error
    return network


def _weights(arrays: Mapping[str, Any]) -> list[Any]:
    """Arrays in the order of their names, which are numbers."""
    found = [arrays[str(index)] for index in range(len(arrays))]
    if wrong := [each.dtype for each in found if each.dtype.kind != "f"]:
        raise ValueError(f"expected floating-point numbers, found {wrong[0]}")
    return found


def _numbered(weights: Sequence[Any]) -> dict[str, Any]:
    """Arrays by the names that they have in a file."""
    return {str(index): each for index, each in enumerate(weights)}


def _inputs(network: PolicyNetwork, problem: Problem) -> dict[str, tf.TensorSpec]:
    """Return the network's inputs among the features that LLVM sends, in order."""
    taken = {*network.features(), "mask"}
    return {
        spec.name: tf.TensorSpec(spec.shape, tf.as_dtype(spec.dtype), name=spec.name)
        for spec in problem.layout.specs
        if spec.name in taken
    }


def _write(network: PolicyNetwork, problem: Problem, folder: Path) -> None:
    """Everything but the card."""
    module, function = signature_of(network, problem)
    tf.saved_model.save(module, str(folder), signatures={SIGNATURE: function})
    (folder / "model.tflite").write_bytes(converted(folder))
    (folder / "fingerprint.pb").unlink(missing_ok=True)  # of a TensorFlow imported before
    shutil.rmtree(folder / "assets", ignore_errors=True)  # it is empty
    write_json(folder / _NETWORK_FILE, network.config())
    with (folder / _WEIGHTS_FILE).open("wb") as file:
        np.savez(file, **_numbered(network.get_weights()))


class CompiledNetwork(NetworkCode):
    """The code of a network that learns."""

    def __init__(self, network: PolicyNetwork, problem: Problem) -> None:
        model = compile_model(logits_graph(network, problem), trusted=True)
        weights = {
            weight_name(number): np.zeros(each.shape, np.float32)
            for number, each in enumerate(network.trainable_variables)
        }
        super().__init__(model, problem.layout.specs, weights)
        self.take_weights(network)

    def take_weights(self, network: PolicyNetwork) -> None:
        """Answer as a network of the same shape does now, while nobody asks."""
        for mine, theirs in zip(self.weights, network.trainable_variables, strict=True):
            mine[...] = theirs.numpy()
