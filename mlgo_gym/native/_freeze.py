"""Frozen models: machine code on disk, and its C header.

`freeze` writes into one folder

- ``NAME.o``: the object for one CPU,
- ``NAME.h``: its C interface,
- ``NAME.so``: the same as a shared library, where the machine has a C compiler's driver,
- ``NAME.json``: the description, written last::

    {"format": "mlgo-gym native model", "version": 1, "name": NAME,
     "inputs": [{"tensor": "action_callee_users:0", "spec": TensorSpec}, ...],
     "outputs": [...], "operators": ["CAST", ...], "output_spec": [...] or null,
     "cpu": "znver4", "features": "+avx2,...", "triple": "x86_64-unknown-linux-gnu",
     "llvm_version": "22.1.0", "model_sha256": "...", "object_sha256": "...",
     "instructions": 2173}

A frozen model is code that runs in the process that loads it: load only what you trust as you would
trust a shared library. What is checked is that the files are whole, made for this kind of machine
and, where they were made for the CPU that made them, that this CPU has the same features. LLVM does
not tell the features of a CPU that was named; on an older CPU such code may end its process.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgo_gym.errors import EnvironmentSetupError, ModelError, SpecError
from mlgo_gym.files import read_bounded, replacing, write_atomically
from mlgo_gym.llvm.process._request import NativeObject
from mlgo_gym.model._output_spec import model_files, parse_output_spec, read_model_json, unreadable
from mlgo_gym.native._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.native._lowering import check_name
from mlgo_gym.native._model import NativeModel, NativePort, compile_model
from mlgo_gym.tensor_spec import TensorSpec

_FORMAT: Final = "mlgo-gym native model"
_VERSION: Final = 1
_MAX_OBJECT_BYTES: Final = 1 << 28
_LINK_TIMEOUT_S: Final = 60.0
_OBJECT_TEXTS: Final = ("cpu", "features", "triple", "llvm_version")
_TEXTS: Final = ("name", *_OBJECT_TEXTS, "model_sha256")
_C_HEADER: Final = """\
/* {name}: a policy as machine code. Written by mlgo-gym; model {sha256}.
 *
 * Link the object {name}.o, or {name}.so; nothing but the C library is behind it.
 *
 *   int32_t {name}_evaluate(const void *const *inputs, void *const *outputs);
 *
 * inputs[i] points to the tensor that {name}_inputs[i] describes, outputs[i] to room for the one
 * that {name}_outputs[i] describes: row-major, native byte order, aligned for their elements, and
 * outputs overlap nothing. The inputs are not changed. The result is 0, or 1 plus the number of the
 * operator that met a value it is not defined for (an index out of range, an integer divided by
 * zero); the outputs are of no use then. Re-entrant and thread-safe.
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_INPUT_COUNT {input_count}
#define {upper}_OUTPUT_COUNT {output_count}

struct {name}_tensor {{
  const char *name;
  const char *type; /* float, int32_t, int64_t, or uint8_t for a truth value of 0 or 1 */
  size_t size_bytes;
  size_t rank;
  int64_t shape[8];
}};

static const struct {name}_tensor {name}_inputs[] = {{
{inputs}
}};

static const struct {name}_tensor {name}_outputs[] = {{
{outputs}
}};

int32_t {name}_evaluate(const void *const *inputs, void *const *outputs);

#ifdef __cplusplus
}}
#endif

#endif
"""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .,:;/+*=()<>\[\]{}-]")


@dataclass(frozen=True, slots=True)
class FrozenFiles:
    """What `freeze` has written; ``shared_library`` is ``None`` where there is no linker.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     files.header.name
    'inliner.h'
    """

    description: Path
    object: Path
    header: Path
    shared_library: Path | None


def freeze(
    model: Path | str,
    output_dir: Path | str,
    *,
    name: str,
    cpu: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> FrozenFiles:
    """Compile a model ahead of time.

    Args:
        model: a model directory with ``model.tflite`` and, if there is one, ``output_spec.json``;
            or a ``.tflite`` file.
        output_dir: where to; made if needed. Each file appears whole or not at all.
        name: a C identifier: the files' name and the prefix of the function's.
        cpu: LLVM's name of a CPU of this machine's architecture; ``None`` is this CPU.
        trusted: compile in this process instead of a child.
        timeout_s: what compiling may take in a child process, in seconds.

    Raises:
        ModelError: the model cannot be used, or LLVM does not know the CPU.
        EnvironmentSetupError: the output cannot be written, or the linker fails.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     files.object.name, files.object.stat().st_size > 1000
    ('inliner.o', True)
    """
    path = Path(model)
    file, specs = model_files(path)
    output_spec = read_model_json(specs, str(model)) if specs.exists() else None
    if output_spec is not None:
        parse_output_spec(output_spec, str(model))
    native = compile_model(file, name=name, cpu=cpu, trusted=trusted, timeout_s=timeout_s)
    target = Path(output_dir)
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(target / f"{name}.o", native.object.data)
        write_atomically(target / f"{name}.h", c_header(native).encode())
        shared = _link(target / f"{name}.o", target / f"{name}.so")
        description = json.dumps(_describe(native, output_spec), indent=1) + "\n"
        write_atomically(target / f"{name}.json", description.encode())
    except OSError as error:
        raise EnvironmentSetupError(f"cannot write to {output_dir}: {error}") from error
    return FrozenFiles(target / f"{name}.json", target / f"{name}.o", target / f"{name}.h", shared)


def load_frozen(model: Path | str) -> tuple[NativeModel, Any]:
    """Read a frozen model: its folder or its ``NAME.json``.

    Returns:
        The model, and the parsed ``output_spec.json`` that it was frozen with, or ``None``.

    Raises:
        ModelError: files are missing or damaged, or made for another machine.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     model, _ = load_frozen(folder)
    >>> model.name
    'inliner'
    """
    source = str(model)
    path = find_description(Path(model)) if Path(model).is_dir() else Path(model)
    if path is None:
        raise ModelError(source, "expected one frozen model in the folder")
    description = read_model_json(path, source)
    try:
        native = _parse(description, path, source)
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise ModelError(source, f"{path.name}: not a frozen model: {error!r}") from error
    _check_machine(native)
    return native, description["output_spec"]


def find_description(folder: Path) -> Path | None:
    """The description of the one frozen model in a folder, if there is exactly one."""
    found = [path for path in sorted(folder.glob("*.json")) if path.with_suffix(".o").is_file()]
    return found[0] if len(found) == 1 else None


def _describe(model: NativeModel, output_spec: Any) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "name": model.name,
        "inputs": [_describe_port(port) for port in model.inputs],
        "outputs": [_describe_port(port) for port in model.outputs],
        "operators": list(model.operators),
        "output_spec": output_spec,
        **{name: getattr(model.object, name) for name in _OBJECT_TEXTS},
        "model_sha256": model.model_sha256,
        "object_sha256": hashlib.sha256(model.object.data).hexdigest(),
        "instructions": model.instructions,
    }


def _describe_port(port: NativePort) -> dict[str, Any]:
    return {"tensor": port.tensor, "spec": json.loads(port.spec.to_json())}


def _parse(value: dict[str, Any], path: Path, source: str) -> NativeModel:
    if value["format"] != _FORMAT or value["version"] != _VERSION:
        raise ModelError(
            source,
            f"{path.name}: expected format {_FORMAT!r} {_VERSION}, "
            f"found {value['format']!r} {value['version']}",
        )
    texts = {key: value[key] for key in _TEXTS}
    if not all(isinstance(text, str) for text in (*texts.values(), *value["operators"])):
        raise ModelError(source, f"{path.name}: expected texts, found {texts}")
    object_path = path.with_suffix(".o")
    try:
        data = read_bounded(object_path, _MAX_OBJECT_BYTES)
    except OSError as error:
        raise unreadable(error, source, object_path.name) from error
    if hashlib.sha256(data).hexdigest() != value["object_sha256"]:
        raise ModelError(source, f"{path.stem}.o: not the object that {path.name} describes")
    return NativeModel(
        name=check_name(texts["name"]),
        source=source,
        inputs=tuple(_parse_port(each) for each in value["inputs"]),
        outputs=tuple(_parse_port(each) for each in value["outputs"]),
        operators=tuple(value["operators"]),
        object=NativeObject(data, *(texts[key] for key in _OBJECT_TEXTS)),
        model_sha256=texts["model_sha256"],
        instructions=int(value["instructions"]),
    )


def _parse_port(value: dict[str, Any]) -> NativePort:
    return NativePort(TensorSpec.from_value(value["spec"]), str(value["tensor"]))


def _check_machine(model: NativeModel) -> None:
    from mlgo_gym.llvm.process import _binding as binding  # noqa: PLC0415 - loads LLVM

    triple = binding.default_triple()
    if model.object.triple != triple:
        raise ModelError(
            model.source, f"expected an object for {triple}, found one for {model.object.triple}"
        )
    wanted = {each[1:] for each in model.object.features.split(",") if each.startswith("+")}
    missing = sorted(wanted - binding.host_features())
    if missing:
        raise ModelError(
            model.source,
            f"made for {model.object.cpu}: this CPU lacks {', '.join(missing)}",
        )


def _link(source: Path, target: Path) -> Path | None:
    driver = shutil.which("cc") or shutil.which("clang") or shutil.which("gcc")
    if driver is None:
        return None
    with replacing(target) as file:
        done = subprocess.run(
            [driver, "-shared", "-o", file.name, str(source)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LINK_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            raise EnvironmentSetupError(f"{driver} cannot link {source.name}: {words}")
    return target


def c_header(model: NativeModel) -> str:
    """The text of ``NAME.h``: one function, and tables of its inputs and outputs."""
    return _C_HEADER.format(
        name=model.name,
        upper=model.name.upper(),
        guard=f"MLGO_GYM_{model.name.upper()}_H",
        sha256=model.model_sha256,
        input_count=len(model.inputs),
        output_count=len(model.outputs),
        inputs=_table(model.inputs),
        outputs=_table(model.outputs),
    )


def _table(ports: Sequence[NativePort]) -> str:
    return "\n".join(
        f"    {{{_quote(port.spec.name)}, {_quote(port.spec.type)}, {port.spec.size_bytes}, "
        f"{len(port.spec.shape)}, {{{', '.join(map(str, port.spec.shape)) or '0'}}}}},"
        for port in ports
    )


def _quote(text: str) -> str:
    r"""A C string; names come from a file that anybody may have written.

    >>> print(_quote('a"b?\n'))
    "a\042b\077\012"
    """
    return '"' + "".join(_escape(character) for character in text) + '"'


def _escape(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "replace"))
