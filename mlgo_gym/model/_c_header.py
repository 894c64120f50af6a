"""The C header of a model: one function, and what its pointers point to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mlgo_gym.model._model import NativePort

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
