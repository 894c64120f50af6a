"""The C header of a frozen model: one function, and what its pointers point to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mlgo_gym.native._model import NativeModel, NativePort

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
