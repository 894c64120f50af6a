r"""Traces: the decisions of one compilation, enough to repeat it byte for byte.

The file format, version 1::

    HEADER\n     one line of JSON, UTF-8
    BODY         zlib: the advice tensors of all decisions, then, if recorded, all observations,
                 then, if recorded, the site of each decision (`Site.to_json`), a line each
    HASH         32 bytes: SHA-256 of everything before

HEADER is an object::

    trace            1, the version
    module           the module's name
    module_sha256    SHA-256 of the module's bytes
    settings         what decided the code besides: level, models, problem and its settings
    llvm_version     the LLVM that compiled
    byte_order       "little" or "big": that of the tensors
    advice           the SPEC of an advice tensor (`mlgo_gym.base._tensor_spec`)
    features         the SPECs of an observation's tensors; empty where they were not recorded
    decisions        how many decisions there are
    object_sha256    SHA-256 of the object that came out
    text_size_bytes  the size of the object's code
    body_bytes       the length of BODY in bytes
    sites_bytes      the length of the sites in bytes; 0 where they were not recorded

Tensors are packed in the order of the decisions and, within an observation, of the features.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpus_tools.reading import brief
from mlgo_gym.base import (
    SpecError,
    TensorSpec,
    TraceError,
    parse_json,
    read_bounded,
    write_atomically,
)
from mlgo_gym.llvm import CompilationResult, Site, check_site_lengths, read_sites
from mlgo_gym.problems import Layout
from mlgo_gym.stream import feature_specs

_VERSION: Final = 1
_MAX_BODY_BYTES: Final = 1 << 30
_MAX_FILE_BYTES: Final = _MAX_BODY_BYTES + (1 << 24)
_MAX_HEADER_BYTES: Final = 1 << 20
_HASH_BYTES: Final = 32
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ABOUT: Final = (
    "module", "module_sha256", "settings", "llvm_version", "object_sha256", "text_size_bytes",
)  # fmt: skip
_HASHES: Final = ("module_sha256", "object_sha256")
_TEXTS: Final = ("module", "module_sha256", "llvm_version", "object_sha256", "byte_order")
_COUNTS: Final = ("decisions", "text_size_bytes", "body_bytes", "sites_bytes")
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded compilation.

    Attributes:
        module_sha256: the hash of the module's bytes, in hexadecimal digits.
        settings: the settings that decided the code, as in `CompilationResult.settings`.
        advice: the answers' raw tensors, one after the other.
        object_sha256: the hash of the object's bytes, in hexadecimal digits.
        features: the tensors of an observation; empty where observations were not recorded.
        observations: the observations' raw tensors, one after the other.
        sites: where each decision is; empty where that was not recorded.

    Raises:
        TraceError: the parts do not fit each other; of methods, a file cannot be written or read,
            or is none of this version and byte order, or damaged.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import record
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     trace = record(compiler, module, InliningForSize(), lambda observation: 0)
    >>> trace.decisions == len(trace.advice) // 8
    True
    """

    module: str
    module_sha256: str
    settings: Mapping[str, Any]
    llvm_version: str
    advice_spec: TensorSpec
    advice: bytes = field(repr=False)
    object_sha256: str
    text_size_bytes: int
    features: tuple[TensorSpec, ...] = field(default=(), repr=False)
    observations: bytes = field(default=b"", repr=False)
    sites: tuple[Site, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in _HASHES:
            _check_hash(getattr(self, name), name, self.module)
        for name, size, found in (
            ("advice", self.decisions * self.advice_spec.size_bytes, len(self.advice)),
            ("observations", self.decisions * self._observation_bytes, len(self.observations)),
        ):
            if size != found:
                raise TraceError(self.module, f"{name}: expected {size} bytes, found {found}")
        _check_sites(len(self.sites), self.decisions, self.module)

    @classmethod
    def of(
        cls,
        result: CompilationResult,
        layout: Layout,
        advice: Sequence[bytes],
        observations: Sequence[bytes] = (),
    ) -> Trace:
        """The trace of a result, out of the raw tensors of the answers to its one problem."""
        return cls(
            advice_spec=layout.advice,
            advice=b"".join(advice),
            features=layout.specs if observations else (),
            observations=b"".join(observations),
            **{name: getattr(result, name) for name in _ABOUT},
        )

    @property
    def decisions(self) -> int:
        """How many decisions were taken."""
        return len(self.advice) // self.advice_spec.size_bytes

    @property
    def _observation_bytes(self) -> int:
        return sum(spec.size_bytes for spec in self.features)

    def actions(self) -> np.ndarray[Any, Any]:
        """The answers as an array ``[decisions, *advice shape]`` of the advice's dtype."""
        return np.frombuffer(self.advice, self.advice_spec.dtype).reshape(
            self.decisions, *self.advice_spec.shape
        )

    def observation(self, index: int) -> bytes | None:
        """The raw tensors of one observation; ``None`` where they were not recorded."""
        if not self.features:
            return None
        size = self._observation_bytes
        return self.observations[index * size : (index + 1) * size]

    def to_bytes(self) -> bytes:
        """The whole file."""
        lines = [site.to_json().encode() + b"\n" for site in self.sites]
        try:
            check_site_lengths(lines, "sites")
        except SpecError as error:
            raise TraceError(self.module, str(error)) from error
        sites = b"".join(lines)
        body = zlib.compress(self.advice + self.observations + sites, 9)
        header = {
            "trace": _VERSION,
            "module": self.module,
            "module_sha256": self.module_sha256,
            "settings": dict(self.settings),
            "llvm_version": self.llvm_version,
            "byte_order": sys.byteorder,
            "advice": json.loads(self.advice_spec.to_json()),
            "features": [json.loads(spec.to_json()) for spec in self.features],
            "decisions": self.decisions,
            "object_sha256": self.object_sha256,
            "text_size_bytes": self.text_size_bytes,
            "body_bytes": len(body),
            "sites_bytes": len(sites),
        }
        data = json.dumps(header, allow_nan=False).encode() + b"\n" + body
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "<bytes>") -> Trace:
        """Read a whole file, which errors call by this name."""
        header, start = _header(data, name)
        body = memoryview(data)[start : start + header["body_bytes"]]
        try:
            advice_spec = TensorSpec.from_value(header.get("advice"))
            features = feature_specs(header["features"])
        except SpecError as error:
            raise TraceError(name, str(error)) from error
        advice_bytes = header["decisions"] * advice_spec.size_bytes
        total = advice_bytes + header["decisions"] * sum(spec.size_bytes for spec in features)
        unpacked = _inflated(body, total + header["sites_bytes"], name)
        return cls(
            advice_spec=advice_spec,
            advice=unpacked[:advice_bytes],
            features=features,
            observations=unpacked[advice_bytes:total],
            sites=_sites(unpacked[total:], header["decisions"], name),
            **{name: header[name] for name in _ABOUT},
        )

    def save(self, path: Path) -> None:
        """Write the file; it takes its name only when all has been written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.to_bytes())
        except OSError as error:
            raise TraceError(str(path), f"cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file."""
        try:
            data = read_bounded(Path(path), _MAX_FILE_BYTES)
        except OSError as error:
            raise TraceError(str(path), f"cannot be read: {error.strerror}") from error
        return cls.from_bytes(data, str(path))


def trace_path(folder: Path, module: str) -> Path:
    """Return the path of a module's trace in a folder of traces."""
    return folder / f"{module}.trace"


def trace_paths(folder: Path) -> list[Path]:
    """Return the paths of all traces in a folder and the folders in it, in order."""
    return sorted(folder.rglob("*.trace"))


def _header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    start = data.find(b"\n", 0, _MAX_HEADER_BYTES) + 1
    try:
        header = parse_json(data[:start]) if start else None
    except ValueError:
        header = None
    if not isinstance(header, dict) or "trace" not in header:
        raise TraceError(name, f"expected a trace's header, found {data[:_SHOWN]!r}")
    if header["trace"] != _VERSION:
        found = brief(header["trace"])
        raise TraceError(name, f"expected version {_VERSION}, found {found}")
    _check_fields(header, name)
    expected = header["body_bytes"] + _HASH_BYTES
    if len(data) - start != expected:
        raise TraceError(
            name, f"expected {expected} bytes after the header, found {len(data) - start}"
        )
    if hashlib.sha256(memoryview(data)[:-_HASH_BYTES]).digest() != data[-_HASH_BYTES:]:
        raise TraceError(name, "expected contents that agree with their hash, found others")
    return header, start


def _check_fields(header: Mapping[str, Any], name: str) -> None:
    kinds: dict[str, type] = dict.fromkeys(_TEXTS, str)
    kinds |= {"settings": dict, "features": list}
    kinds |= dict.fromkeys(_COUNTS, int)
    for field_name, kind in kinds.items():
        value = header.get(field_name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TraceError(name, f"{field_name}: expected {kind.__name__}, found {brief(value)}")
    for field_name in _HASHES:
        _check_hash(header[field_name], field_name, name)
    for field_name in _COUNTS:
        if not 0 <= header[field_name] <= _MAX_BODY_BYTES:
            raise TraceError(
                name,
                f"{field_name}: expected 0 to {_MAX_BODY_BYTES}, found {header[field_name]}",
            )
    if header["byte_order"] != sys.byteorder:
        raise TraceError(
            name,
            f"byte_order: expected {sys.byteorder!r}, found {brief(header['byte_order'])}",
        )


def _check_hash(value: str, field_name: str, name: str) -> None:
    if not _SHA256.fullmatch(value):
        found = brief(value)
        raise TraceError(name, f"{field_name}: expected 64 hexadecimal digits, found {found}")


def _sites(data: bytes, decisions: int, name: str) -> tuple[Site, ...]:
    _check_sites(data.count(b"\n"), decisions, name)  # before there is an object for each line
    lines = data.splitlines(keepends=True)
    try:
        sites = read_sites(lines, "sites")
    except SpecError as error:
        raise TraceError(name, str(error)) from error
    _check_sites(len(sites), decisions, name)
    return sites


def _check_sites(found: int, decisions: int, name: str) -> None:
    if found not in (0, decisions):
        raise TraceError(name, f"sites: expected {decisions}, or none, found {found}")


def _inflated(body: memoryview, size: int, name: str) -> bytes:
    if size > _MAX_BODY_BYTES:
        raise TraceError(name, f"expected at most {_MAX_BODY_BYTES} bytes of tensors, found {size}")
    inflater = zlib.decompressobj()
    try:
        tensors = inflater.decompress(body, size + 1)
    except zlib.error as error:
        raise TraceError(name, f"the tensors cannot be decompressed: {error}") from error
    if len(tensors) != size or not inflater.eof or inflater.unused_data:
        raise TraceError(name, f"expected {size} bytes of tensors, found {len(tensors)} or more")
    return tensors
