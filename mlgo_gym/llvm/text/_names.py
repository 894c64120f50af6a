r"""Names as LLVM writes them, and what they are.

In assembly (``printEscapedString``) a name in quotes has a backslash before a backslash and before
two hexadecimal digits, which stand for any other byte that is not printable ASCII. In YAML, which
holds machine code, a name is plain, in single quotes, which are doubled inside, or in double quotes
with YAML's escapes (``yaml::escape``); of a name that is not UTF-8 only the start is left there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_IN_ASSEMBLY: Final = re.compile(r"\\(\\|[0-9A-Fa-f]{2})")
_IN_YAML: Final = re.compile(r"\\(x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8}|.)")
_YAML_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
)


def name_in_assembly(written: str) -> str:
    r"""The name that stands for, in quotes or not; bytes that are not UTF-8 are surrogates.

    >>> name_in_assembly(r'"a\20b\\c"'), name_in_assembly("main")
    ('a b\\c', 'main')
    """
    if not written.startswith('"'):
        return written
    text = _IN_ASSEMBLY.sub(
        lambda match: "\\" if match[1] == "\\" else chr(int(match[1], 16)), written[1:-1]
    )
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def name_in_yaml(written: str) -> str:
    r"""The name that a scalar stands for.

    >>> name_in_yaml("main"), name_in_yaml("'it''s'"), name_in_yaml(r'"\x01a\\b\N"')
    ('main', "it's", '\x01a\\b\x85')
    """
    if written.startswith("'"):
        return written[1:-1].replace("''", "'")
    if not written.startswith('"'):
        return written
    return _IN_YAML.sub(lambda match: _unescaped(match[1]), written[1:-1])


def _unescaped(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _YAML_ESCAPES.get(escape, escape)
