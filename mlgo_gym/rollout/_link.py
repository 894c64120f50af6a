"""The code of a package as a linker leaves it: after ``--gc-sections``, and after ``--icf=safe``.

Objects are linked as a shared library, so every symbol of default visibility is exported. lld's
rules are applied to the sections of the objects, so that no linker is needed; on real packages the
sizes are lld's to the byte (docs/results/benchmarks.md).

References (LLVM 22): ``lld/ELF/MarkLive.cpp`` for what is kept, ``lld/ELF/ICF.cpp`` for what is
folded, ``findKeepUniqueSections`` in ``lld/ELF/Driver.cpp`` for what is never folded.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]
_SHT_SYMTAB, _SHT_RELA, _SHT_NOTE, _SHT_NOBITS, _SHT_REL, _SHT_GROUP = 2, 4, 7, 8, 9, 17
_SHT_ARRAYS: Final = (14, 15, 16)  # SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY
_SHT_LLVM_ADDRSIG: Final = 0x6FFF4C03
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR, _SHF_MERGE, _SHF_STRINGS = 1, 2, 4, 0x10, 0x20
_SHF_LINK_ORDER, _SHF_GROUP, _SHF_GNU_RETAIN = 0x80, 0x200, 0x200000
_SHN_LORESERVE: Final = 0xFF00
_MOST: Final = 1 << 40
_NUMBERS: Final = ("offset", "size", "align")
_EXPORTED: Final = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_RESERVED: Final = (b".ctors", b".dtors", b".init", b".fini", b".jcr")
_NEVER_FOLDED: Final = (b".init", b".fini", b".eh_frame")
_READ_ONLY: Final = b".data.rel.ro"
_C_IDENTIFIER: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class LinkedSizes:
    """Bytes of code in a linked package, the padding between functions included.

    Attributes:
        text: with one copy of each COMDAT group.
        gc: after ``--gc-sections``.
        icf: after ``--gc-sections --icf=safe``.

    >>> LinkedSizes(text=300, gc=200, icf=180).icf
    180
    """

    text: int
    gc: int
    icf: int


@dataclass(frozen=True, slots=True)
class ElfObject:
    """The parts of a relocatable ELF object that decide what a linker keeps of it."""

    data: bytes = field(repr=False)
    sections: _Array = field(repr=False)
    names: tuple[bytes, ...] = field(repr=False)
    symbols: _Array = field(repr=False)
    symbol_names: tuple[bytes, ...] = field(repr=False)
    relocations: Mapping[int, _Array] = field(repr=False)
    groups: tuple[tuple[bytes, bool, tuple[int, ...]], ...] = field(repr=False)
    significant: _Array | None = field(repr=False)
    """Symbols whose address is significant, by index; ``None``: the object does not say."""

    @classmethod
    def read(cls, data: bytes) -> ElfObject:
        """Read an object.

        Raises:
            ValueError: the bytes are no relocatable ELF object.
        """
        if not data.startswith(b"\x7fELF"):
            raise ValueError("expected an ELF object, found another format")
        try:
            found = cls._read(data)
        except (IndexError, TypeError, OverflowError) as error:
            raise ValueError(f"expected an ELF object, found a damaged one: {error}") from error
        found.check()
        return found

    def check(self) -> None:
        """Check that every index and place is within the object.

        Raises:
            ValueError: one is not.
        """
        count, symbols = len(self.sections), len(self.symbols)
        sections = {name: self.sections[name].astype(np.float64) for name in _NUMBERS}
        ends = sections["offset"] + sections["size"]
        has_bytes = self.sections["type"] != _SHT_NOBITS
        ordered = (self.sections["flags"].astype(np.int64) & _SHF_LINK_ORDER) != 0
        placed = self.symbols["section"].astype(np.int64)
        chosen = [each[:, 1] for each in self.relocations.values()]
        chosen += [] if self.significant is None else [self.significant]
        within = (
            (ends[has_bytes] <= len(self.data)).all(),
            (sections["size"] <= _MOST).all() and (sections["align"] <= _MOST).all(),
            (self.sections["link"][ordered] < count).all(),
            (self.symbols["value"].astype(np.float64) <= _MOST).all(),
            ((placed < count) | (placed >= _SHN_LORESERVE)).all(),
            all((each < symbols).all() for each in chosen),
            all(max(members, default=0) < count for *_, members in self.groups),
        )
        if not all(within):
            raise ValueError("expected an ELF object, found one that points beyond its end")

    @classmethod
    def _read(cls, data: bytes) -> ElfObject:
        layout = _Layout(data)
        start = int(layout.header("offset_of_sections"))
        count = (len(data) - start) // layout.section.itemsize
        sections = np.frombuffer(data, layout.section, count, start)
        titles = _content(data, sections[int(layout.header("section_names"))])
        names = tuple(_name(titles, int(at)) for at in sections["name"])
        symbols, significant = layout.no_symbols(), None
        symbol_names: tuple[bytes, ...] = ()
        relocations: dict[int, _Array] = {}
        groups = []
        for section in sections[sections["type"] == _SHT_SYMTAB]:
            symbols = _array(data, section, layout.symbol)
            text = _content(data, sections[int(section["link"])])
            symbol_names = tuple(_name(text, int(at)) for at in symbols["name"])
        for section in sections:
            kind = int(section["type"])
            if kind in (_SHT_REL, _SHT_RELA):
                target = int(section["info"])
                if sections[target]["flags"] & _SHF_ALLOC:
                    relocations[target] = layout.relocations(data, section)
            elif kind == _SHT_GROUP:
                flags, *members = _array(data, section, layout.word).tolist()
                groups.append((symbol_names[int(section["info"])], bool(flags & 1), tuple(members)))
            elif kind == _SHT_LLVM_ADDRSIG:
                significant = np.array(list(_uleb128s(_content(data, section))), dtype=np.int64)
        return cls(
            data, sections, names, symbols, symbol_names, relocations, tuple(groups), significant
        )


class _Layout:
    """The field layouts of an ELF file's class and byte order (``<elf.h>``)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        order = "<" if data[5] == 1 else ">"
        self._is_wide = data[4] == 2
        self.word, half = np.dtype(f"{order}u4"), f"{order}u2"
        word = self.word.str
        wide = f"{order}u8" if self._is_wide else word
        self.section = np.dtype(
            [
                *(("name", word), ("type", word), ("flags", wide), ("address", wide)),
                *(("offset", wide), ("size", wide), ("link", word), ("info", word)),
                *(("align", wide), ("entry", wide)),
            ]
        )
        place, kind = [("value", wide), ("size", wide)], [("info", "u1"), ("other", "u1")]
        kind.append(("section", half))
        rest = [*kind, *place] if self._is_wide else [*place, *kind]
        self.symbol = np.dtype([("name", word), *rest])
        self._rel = np.dtype([("offset", wide), ("info", wide)])
        self._rela = np.dtype([("offset", wide), ("info", wide), ("addend", wide)])
        self._header = np.dtype(
            [
                *(("identity", "V16"), ("type", half), ("machine", half), ("version", word)),
                *(("entry", wide), ("programs", wide), ("offset_of_sections", wide)),
                *(("flags", word), ("size", half), ("of_program", half), ("of_programs", half)),
                *(("of_section", half), ("of_sections", half), ("section_names", half)),
            ]
        )

    def header(self, name: str) -> int:
        """Return a field of the file's header."""
        return int(np.frombuffer(self._data, self._header, 1)[0][name])

    def no_symbols(self) -> _Array:
        return np.zeros(0, self.symbol)

    def relocations(self, data: bytes, section: Any) -> _Array:
        """Return ``[n, 4]`` int64: offset, symbol, type and addend of each relocation."""
        has_addend = int(section["type"]) == _SHT_RELA
        found = _array(data, section, self._rela if has_addend else self._rel)
        shift, mask = (32, 0xFFFFFFFF) if self._is_wide else (8, 0xFF)
        info = found["info"].astype(np.uint64)
        columns = [found["offset"], info >> np.uint64(shift), info & np.uint64(mask)]
        columns.append(found["addend"] if has_addend else np.zeros_like(info))
        return np.stack([each.astype(np.uint64).astype(np.int64) for each in columns], 1)


def _content(data: bytes, section: Any) -> bytes:
    start = int(section["offset"])
    return data[start : start + int(section["size"])]


def _array(data: bytes, section: Any, dtype: np.dtype[Any]) -> _Array:
    count = int(section["size"]) // dtype.itemsize
    return np.frombuffer(data, dtype, count, int(section["offset"]))


def _name(text: bytes, at: int) -> bytes:
    return text[at : text.index(b"\0", at)]


def _uleb128s(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def linked_sizes(objects: Sequence[bytes], *, exports: Sequence[str] = ("*",)) -> LinkedSizes:
    """Return the sizes of the code that ``ld.lld -shared`` keeps of ELF objects, in their order.

    Functions can be dropped and folded alone if they have sections of their own
    (``-ffunction-sections``), and folded if the objects say which addresses matter
    (``-faddrsig``).

    Args:
        objects: the bytes of each object.
        exports: patterns of the symbols that are exported, as a version script lists them; of
            these, those of default or protected visibility are.

    Raises:
        ValueError: an object is no relocatable ELF file.

    >>> from mlgo_gym import Compiler, Module
    >>> from mlgo_gym.llvm import CompileOptions
    >>> text = "define i32 @kept() { ret i32 1 } define hidden i32 @dropped() { ret i32 2 }"
    >>> options = CompileOptions(function_sections=True)
    >>> with Compiler() as compiler:
    ...     made = compiler.compile_module(Module.from_ir(text), options, keep_object=True)
    >>> linked_sizes([made.object_bytes])
    LinkedSizes(text=22, gc=6, icf=6)
    """
    return Link([ElfObject.read(each) for each in objects], exports).sizes()


@dataclass(frozen=True, slots=True)
class _Definition:
    node: int
    value: int


class Link:
    """Objects that are linked: their sections are the nodes of one graph.

    Args:
        objects: in the linker's order.
        exports: as in `linked_sizes`.
    """

    def __init__(self, objects: Sequence[ElfObject], exports: Sequence[str] = ("*",)) -> None:
        self._exports: Final = re.compile("|".join(map(fnmatch.translate, exports)))
        self._objects = objects
        self._first = np.cumsum([0, *(len(each.sections) for each in objects)])
        self._flags = np.concatenate([each.sections["flags"].astype(np.int64) for each in objects])
        self._sizes = np.concatenate([each.sections["size"].astype(np.int64) for each in objects])
        self._aligns = np.concatenate([each.sections["align"].astype(np.int64) for each in objects])
        self._names = [name for each in objects for name in each.names]
        self._count = len(self._names)
        self._is_kept = np.ones(self._count, bool)
        self._in_group = np.zeros(self._count, bool)
        self._edges: list[tuple[_Array, _Array]] = []
        self._keep_groups()
        self._names_of_symbols: dict[bytes, int] = {}
        self._definitions: dict[bytes, _Definition] = {}
        self._visibility: dict[bytes, int] = {}
        self._resolve()
        self._targets = [self._symbol_targets(number) for number in range(len(objects))]
        self._read_relocations()

    def sizes(self) -> LinkedSizes:
        """Return the sizes of the code that is kept."""
        kept = self._code_bytes(self._is_kept), self._code_bytes(self.live), self._code_after_icf()
        text, gc, icf = (int(each.sum()) for each in kept)
        return LinkedSizes(text, gc, icf)

    def shares(self, *, folded: bool) -> _Array:
        """Return the bytes of code that are kept of each object: int64 ``[objects]``.

        Args:
            folded: after ``--icf=safe``, not after ``--gc-sections`` alone.
        """
        code = self._code_after_icf() if folded else self._code_bytes(self.live)
        return np.asarray(np.add.reduceat(np.append(code, 0), self._first[:-1]))

    def _code_after_icf(self) -> _Array:
        """`_code_bytes` of what is left after folding: sections as aligned as any folded one."""
        aligns = self._aligns.copy()
        into = self._folded_into()
        np.maximum.at(aligns, into, self._aligns)
        return self._code_bytes(self.live & (into == np.arange(self._count)), aligns)

    def _code_bytes(self, kept: _Array, aligns: _Array | None = None) -> _Array:
        """The bytes of code of each section, with the padding before it; 0 for those not kept."""
        aligns = self._aligns if aligns is None else aligns
        found = np.zeros(self._count, np.int64)
        end = 0
        for node in np.flatnonzero(kept & ((self._flags & _SHF_EXECINSTR) != 0)).tolist():
            align = max(int(aligns[node]), 1)
            after = -(-end // align) * align + int(self._sizes[node])
            found[node], end = after - end, after
        return found

    def _keep_groups(self) -> None:
        """Keep the first COMDAT group of each signature, and tie a group's sections together."""
        seen: set[bytes] = set()
        for first, each in zip(self._first, self._objects, strict=False):
            for signature, is_comdat, members in each.groups:
                nodes = first + np.array(members, dtype=np.int64)
                if is_comdat and signature in seen:
                    self._is_kept[nodes] = False
                    continue
                if is_comdat:
                    seen.add(signature)
                self._in_group[nodes] = True
                self._edges.append((nodes, np.roll(nodes, 1)))
            order = np.flatnonzero(each.sections["flags"].astype(np.int64) & _SHF_LINK_ORDER)
            self._edges.append(
                (first + each.sections["link"][order].astype(np.int64), first + order)
            )

    def _resolve(self) -> None:
        """Find the definition of each global symbol: the first strong one, else the first."""
        is_strong: set[bytes] = set()
        for first, each in zip(self._first, self._objects, strict=False):
            symbols = each.symbols
            for index in np.flatnonzero(symbols["info"] >> 4).tolist():
                name = each.symbol_names[index]
                self._names_of_symbols.setdefault(name, len(self._names_of_symbols))
                visibility = int(symbols["other"][index]) & 3
                if visibility:
                    known = self._visibility.get(name, 0)
                    self._visibility[name] = min(known or visibility, visibility)
                section = int(symbols["section"][index])
                if not 0 < section < _SHN_LORESERVE or not self._is_kept[first + section]:
                    continue
                strong = symbols["info"][index] >> 4 == 1
                if name not in self._definitions or (strong and name not in is_strong):
                    found = _Definition(int(first) + section, int(symbols["value"][index]))
                    self._definitions[name] = found
                    if strong:
                        is_strong.add(name)

    def _is_exported(self, name: bytes) -> bool:
        is_visible = self._visibility.get(name, 0) in _EXPORTED
        return is_visible and bool(self._exports.match(name.decode("utf-8", "replace")))

    @cached_property
    def _exported(self) -> list[int]:
        """The sections that define exported symbols."""
        return [each.node for name, each in self._definitions.items() if self._is_exported(name)]

    def _section(self, node: int) -> tuple[Any, bytes]:
        """Return the header and the content of a section."""
        owner = int(np.searchsorted(self._first, node, "right")) - 1
        each = self._objects[owner]
        section = each.sections[node - int(self._first[owner])]
        return section, _content(each.data, section)

    def _symbol_targets(self, number: int) -> tuple[_Array, _Array, _Array]:
        """Return the node, value and identity of each symbol of an object.

        A symbol without a definition here has the node -1. A symbol that another library may
        replace has an identity from 1, by its name.
        """
        each, first = self._objects[number], int(self._first[number])
        section = each.symbols["section"].astype(np.int64)
        is_here = (section > 0) & (section < _SHN_LORESERVE)
        nodes = np.where(is_here, first + section, -1)
        values = each.symbols["value"].astype(np.int64)
        identity = np.zeros(len(nodes), np.int64)
        for index in np.flatnonzero(each.symbols["info"] >> 4).tolist():
            name = each.symbol_names[index]
            found = self._definitions.get(name)
            nodes[index], values[index] = (found.node, found.value) if found else (-1, 0)
            is_default = self._visibility.get(name, 0) == 0
            if found is None or (is_default and self._is_exported(name)):
                identity[index] = 1 + self._names_of_symbols[name]
        return nodes, values, identity

    def _read_relocations(self) -> None:
        """Read what each section refers to, and which functions have exception tables."""
        self._has_lsda = np.zeros(self._count, bool)
        self._frame_roots: list[int] = []
        parts: list[_Array] = []
        for number, each in enumerate(self._objects):
            nodes, values, identity = self._targets[number]
            first = int(self._first[number])
            for section, found in each.relocations.items():
                if not self._is_kept[first + section]:
                    continue
                target = nodes[found[:, 1]]
                if each.names[section] == b".eh_frame":
                    self._read_frames(each, section, found, target)
                    continue
                source = np.full(len(found), first + section)
                position = values[found[:, 1]] + found[:, 3]
                self._note_strings(number, found, target, position)
                parts.append(
                    np.stack(
                        [
                            source,
                            found[:, 0],
                            found[:, 2],
                            target,
                            position,
                            identity[found[:, 1]],
                            found[:, 3],
                        ],
                        1,
                    )
                )
        self._relocations = np.concatenate(parts) if parts else np.zeros((0, 7), np.int64)
        is_there = self._relocations[:, 3] >= 0
        self._edges.append((self._relocations[is_there, 0], self._relocations[is_there, 3]))

    def _note_strings(self, number: int, found: _Array, target: _Array, position: _Array) -> None:
        """Name what lies in mergeable sections by its content, as all copies of it become one."""
        merged = np.flatnonzero((target >= 0) & ((self._flags[target] & _SHF_MERGE) != 0))
        values = self._targets[number][1]
        for index in merged.tolist():
            section, content = self._section(int(target[index]))
            at = int(values[found[index, 1]])
            if int(section["flags"]) & _SHF_STRINGS and int(section["entry"]) == 1:
                end = content.find(b"\0", at)
            else:
                end = at + int(section["entry"])
            digest = hashlib.blake2b(content[at:end], digest_size=6).digest()
            position[index] = int.from_bytes(digest, "little") + int(found[index, 3])

    def _read_frames(self, each: ElfObject, section: int, found: _Array, target: _Array) -> None:
        """Read ``.eh_frame``: an entry's first relocation is its function, others its tables."""
        content = _content(each.data, each.sections[section])
        order = np.argsort(found[:, 0], kind="stable")
        places = found[order, 0]
        at = 0
        while at + 8 <= len(content):
            length = int.from_bytes(content[at : at + 4], "little")
            begin, end = np.searchsorted(places, (at, at + 4 + length))
            nodes = target[order[begin:end]].tolist()
            if content[at + 4 : at + 8] != bytes(4) and nodes:
                function, *nodes = nodes
                if nodes and function >= 0:
                    self._has_lsda[function] = True
                nodes = [n for n in nodes if n >= 0 and not self._in_group[n]]
                nodes = [
                    n for n in nodes if not self._flags[n] & (_SHF_EXECINSTR | _SHF_LINK_ORDER)
                ]
            self._frame_roots += [node for node in nodes if node >= 0]
            at += 4 + length

    def _roots(self) -> _Array:
        roots = (self._flags & _SHF_GNU_RETAIN) != 0
        types = np.concatenate([each.sections["type"] for each in self._objects])
        roots |= np.isin(types, _SHT_ARRAYS) | ((types == _SHT_NOTE) & ~self._in_group)
        roots |= np.array([name.startswith(_RESERVED) for name in self._names])
        roots &= (self._flags & _SHF_ALLOC) != 0
        roots[self._exported] = True
        roots[self._frame_roots] = True
        return np.asarray(roots & self._is_kept)

    @cached_property
    def live(self) -> _Array:
        """The sections that can be reached from the roots: bool ``[sections]``."""
        sources = np.concatenate([source for source, _ in self._edges])
        targets = np.concatenate([target for _, target in self._edges])
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        starts = np.searchsorted(sources, np.arange(self._count + 1))
        live: _Array = self._roots()
        waiting = np.flatnonzero(live).tolist()
        while waiting:
            node = waiting.pop()
            for other in targets[starts[node] : starts[node + 1]].tolist():
                if not live[other] and self._is_kept[other]:
                    live[other] = True
                    waiting.append(other)
        return live

    def _keep_unique(self) -> _Array:
        """Return the sections with a symbol whose address may be compared."""
        unique = np.zeros(self._count, bool)
        for each, (nodes, *_) in zip(self._objects, self._targets, strict=True):
            chosen = nodes if each.significant is None else nodes[each.significant]
            unique[chosen[chosen >= 0]] = True
        unique[self._exported] = True
        return unique

    def _folded_into(self) -> _Array:
        """Return the section that each is folded into, itself for most: int64 ``[sections]``."""
        can_fold: _Array = self.live & ~self._keep_unique() & ((self._flags & _SHF_ALLOC) != 0)
        can_fold &= (self._flags & (_SHF_LINK_ORDER | _SHF_MERGE)) == 0
        can_fold &= ~self._has_lsda
        writable = (self._flags & _SHF_WRITE) != 0
        for node in np.flatnonzero(can_fold).tolist():
            name = self._names[node]
            is_listed = name in _NEVER_FOLDED or _C_IDENTIFIER.fullmatch(name)
            is_read_only = name == _READ_ONLY or name.startswith(_READ_ONLY + b".")
            if is_listed or (writable[node] and not is_read_only):
                can_fold[node] = False
        classes = self._classes(can_fold)
        chosen = np.flatnonzero(can_fold)
        _, first, which = np.unique(classes[chosen], return_index=True, return_inverse=True)
        into: _Array = np.arange(self._count)
        into[chosen] = chosen[first][which.reshape(-1)]
        return into

    def _classes(self, can_fold: _Array) -> _Array:
        """Partition sections into classes of equal content whose targets are of equal classes."""
        classes: _Array = np.arange(self._count, dtype=np.uint64)
        contents: dict[bytes, int] = defaultdict(lambda: self._count + len(contents))
        for node in np.flatnonzero(can_fold).tolist():
            section, content = self._section(node)
            flags = int(section["flags"]) & ~_SHF_GROUP
            classes[node] = contents[content + flags.to_bytes(8, "little")]
        source, offset, kind, target, position, identity, addend = self._relocations[
            can_fold[self._relocations[:, 0]]
        ].T
        is_named = identity > 0
        constant = _mixed(offset, kind, np.where(is_named, addend, position), identity)
        merged = (target >= 0) & ((self._flags[target] & _SHF_MERGE) != 0)
        moves = ~is_named & (target >= 0) & ~merged
        count = 0
        while True:
            about = np.where(moves, classes[target], np.uint64(0))
            sums = np.zeros(self._count, np.uint64)
            np.add.at(sums, source, _mixed(constant, about))
            keys = np.stack([classes, sums], 1)[can_fold]
            _, found = np.unique(keys, axis=0, return_inverse=True)
            classes[can_fold] = found.reshape(-1).astype(np.uint64) + np.uint64(self._count)
            if found.max(initial=-1) + 1 == count:
                return classes
            count = int(found.max(initial=-1)) + 1


def _mixed(*columns: _Array) -> _Array:
    """Return a 64-bit hash of each row."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return mixed
