"""A model as one C file and its header, for any compiler and CPU; frozen models have it, too.

The file has no dependencies but the C library, allocates nothing, and is written by the lowering
that makes objects, so that both compute the same operations in the same order. It is C11 for
compilers of the kind of gcc and clang. Features are variables by their names, which C must be able
to use.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_gym.base import EnvironmentSetupError, ModelError, write_atomically
from mlgo_gym.model._c_writer import CONTRACTION, CWriter
from mlgo_gym.model._graph import Graph
from mlgo_gym.model._model import NativePort, check_name, lower_into, ports
from mlgo_gym.model._saved_model import graph_file
from mlgo_gym.model._tflite_reader import read_graph, read_tflite

_C_HEADER: Final = """\
/* {name}: a policy as {what}. Written by mlgo-gym; model {sha256}.
 *
 * {use}; nothing but the C library is behind it.
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
  const char *type; /* C's name; uint8_t also for a truth value of 0 or 1 */
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
{places}
int32_t {name}_evaluate(const void *const *inputs, void *const *outputs);

#ifdef __cplusplus
}}
#endif

#endif
"""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .,:;/+*=()<>\[\]{}-]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_KEYWORDS: Final = re.compile(
    "alignas|alignof|asm|auto|bool|break|case|char|const|constexpr|continue|default|do|double|else|"
    "enum|extern|false|float|for|goto|if|inline|int|long|nullptr|register|restrict|return|short|"
    "signed|sizeof|static|static_assert|struct|switch|thread_local|true|typedef|typeof|"
    "typeof_unqual|union|unsigned|void|volatile|while"
)
_TAKEN: Final = re.compile(
    r"_[A-Z_]\w*|[a-z]_\d+|u?int\w*_t|U?INT\w*_(C|MIN|MAX)|inputs|outputs|status|lane|FMA|NAN|"
    r"INFINITY|NULL|size_t|sqrtf|unix|linux"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of model of a header, how it is used, and whether features are identifiers."""

    what: str
    use: str
    has_names: bool


OBJECT: Final = Kind("machine code", "Link the object {name}.o, or {name}.so", has_names=False)
SOURCE: Final = Kind("C11", "Compile {name}.c at -O3 for your CPU", has_names=True)


def c_header(
    name: str,
    sha256: str,
    inputs: Sequence[NativePort],
    outputs: Sequence[NativePort],
    kind: Kind,
) -> str:
    """The text of ``NAME.h``: one function, and tables of its inputs and outputs."""
    return _C_HEADER.format(
        name=name,
        what=kind.what,
        use=kind.use.format(name=name),
        upper=name.upper(),
        guard=f"MLGO_GYM_{name.upper()}_H",
        sha256=sha256,
        input_count=len(inputs),
        output_count=len(outputs),
        inputs=_table(inputs),
        outputs=_table(outputs),
        places=_places(name, inputs) if kind.has_names else "",
    )


def _places(name: str, inputs: Sequence[NativePort]) -> str:
    lines = [f"  {name}_in_{port.spec.name} = {number}," for number, port in enumerate(inputs)]
    return "\n".join(["", "/* Where each feature is in inputs. */", "enum {", *lines, "};", ""])


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


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files that `emit_c` has written.

    Attributes:
        source: ``NAME.c``.
        header: ``NAME.h``.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = emit_c(find_model("inlining-for-size"), folder, name="inliner")
    ...     "callee_basic_block_count" in files.source.read_text()
    True
    """

    source: Path
    header: Path


def emit_c(
    model: Path | str, output_dir: Path | str, *, name: str, trusted: bool = False
) -> SourceFiles:
    """Write a model as C11: one file and its header.

    Args:
        model: a model directory with ``model.tflite``, or a ``.tflite`` file.
        output_dir: where to; made if needed. Each file appears whole or not at all.
        name: a C identifier: the files' name and the prefix of what is global in them.
        trusted: a SavedModel is converted, which TensorFlow takes for a program.

    Raises:
        ModelError: the model cannot be used, or C cannot use a feature's name.
        EnvironmentSetupError: the output cannot be written.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = emit_c(find_model("inlining-for-size"), folder, name="inliner")
    ...     files.source.name, files.header.name
    ('inliner.c', 'inliner.h')
    """
    with graph_file(Path(model), trusted=trusted) as file:
        data = read_graph(file)
    graph = read_tflite(data, source=str(model))
    sha256 = hashlib.sha256(data).hexdigest()
    text = lower_to_c(graph, name=name, sha256=sha256)
    given, made = ports(graph, graph.inputs), ports(graph, graph.outputs)
    header = c_header(name, sha256, given, made, SOURCE)
    target = Path(output_dir)
    files = SourceFiles(target / f"{name}.c", target / f"{name}.h")
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(files.header, header.encode())
        write_atomically(files.source, text.encode())
    except OSError as error:
        raise EnvironmentSetupError(f"cannot write to {output_dir}: {error}") from error
    return files


def lower_to_c(graph: Graph, *, name: str, sha256: str) -> str:
    """The text of ``NAME.c``."""
    check_name(name)
    for port in graph.inputs:
        _check_feature(graph.source, port.name, name)
    writer = CWriter(name)
    lower_into(writer, graph)
    module = writer.module(name)
    needs_math = re.search(r"\b(sqrtf|NAN|INFINITY)\b", module)
    return "\n".join(
        [
            f"/* {name}: a policy as C11. Written by mlgo-gym; model",
            f"   {sha256}. */",
            f'#include "{name}.h"',
            *(["#include <math.h>"] if needs_math else []),
            "",
            CONTRACTION,
            module,
        ]
    )


def _check_feature(source: str, feature: str, name: str) -> None:
    found = None
    if not _IDENTIFIER.fullmatch(feature):
        found = "a character that no identifier has, or too many"
    elif _KEYWORDS.fullmatch(feature):
        found = "a keyword of C"
    elif _TAKEN.fullmatch(feature) or feature.startswith(f"{name}_"):
        found = "a name that the file itself may use"
    if found is not None:
        expected = "expected a name that C can use as a variable's"
        raise ModelError(source, f"feature {feature!r}: {expected}, found {found}")
