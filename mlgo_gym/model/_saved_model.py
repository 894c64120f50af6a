"""Models as TensorFlow saves them: the released ones of google/ml-compiler-opt, say.

A folder with ``saved_model.pb`` and ``output_spec.json`` (``compiler_opt/rl/policy_saver.py``
there) is converted to TFLite by TensorFlow, in a process of its own, whenever it is loaded; that
takes some seconds, and `mlgo_gym.model.freeze` does it once for all. TensorFlow takes such a
folder for a program, and so does this module: it must be trusted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import EnvironmentSetupError, ModelError, OptionsError
from mlgo_gym.model._card import model_files

HOW_TO_TRUST: Final = (
    "if you trust it, pass --trust-code (in Python trusted=True, for mlgo-cc MLGO_TRUST_CODE=1)"
)
"""The remedy for a model that is code, and not known to be this user's."""
SIGNATURE: Final = "action"
"""The signature of LLVM's policies."""
_SAVED_MODEL_FILE: Final = "saved_model.pb"
_TIMEOUT_S: Final = 300.0


@contextmanager
def graph_file(model: Path, *, trusted: bool = False) -> Iterator[Path]:
    """A model's TFLite graph: its own file, or one that is there for as long as this is open.

    Raises:
        OptionsError: it must be made of a SavedModel that is not trusted.
        ModelError: TensorFlow cannot convert it.
        EnvironmentSetupError: TensorFlow is not installed.
    """
    graph, _ = model_files(model)
    if graph.exists() or not (model / _SAVED_MODEL_FILE).is_file():
        yield graph
        return
    if not trusted:
        raise OptionsError(
            f"model {str(model)!r}: expected model.tflite, found a SavedModel, which TensorFlow "
            f"would run as this user; {HOW_TO_TRUST}"
        )
    with scratch_folder() as folder:
        made = folder / "model.tflite"
        _run(model, made)
        yield made


def _run(model: Path, target: Path) -> None:
    command = [sys.executable, "-P", "-m", __name__, str(model), str(target)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            str(model), f"expected TensorFlow to convert it within {_TIMEOUT_S:g} s, found no end"
        ) from error
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if last.startswith("ModuleNotFoundError"):
        raise EnvironmentSetupError(
            f"model {str(model)!r}: expected TensorFlow, which converts a SavedModel, found none; "
            "pip install 'mlgo-gym[train]' brings it"
        )
    if done.returncode:
        raise ModelError(str(model), f"TensorFlow cannot convert {_SAVED_MODEL_FILE}: {last}")


def converted(model: Path | str) -> bytes:
    """The TFLite graph of a SavedModel's `SIGNATURE`, by TensorFlow in this process."""
    import tensorflow as tf  # noqa: PLC0415 - who only loads models does without

    converter = tf.lite.TFLiteConverter.from_saved_model(str(model), signature_keys=[SIGNATURE])
    graph: bytes = converter.convert()
    return graph


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(converted(sys.argv[1]))
