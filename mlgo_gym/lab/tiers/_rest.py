"""The rest of a function from a block on, as a function of the memory that its blocks share.

Before, LLVM's ``reg2mem`` has put all values that more than one block uses on the stack. So what a
block needs to go on is the addresses of the stack's variables, whatever code came there: a loop
that runs in slow code can be left for fast code (on-stack replacement, Fink and Qian, Design,
Implementation and Evaluation of Adaptive Recompilation with On-Stack Replacement, CGO 2003), and
a wrong guess for code that does not guess (deoptimisation).

A function is specialised on the first values of one of its arguments, as an inline cache is on
types (Hölzle, Chambers and Ungar, Optimizing Dynamically-Typed Object-Oriented Languages With
Polymorphic Inline Caches, ECOOP 1991): it compares the argument with one value after the other,
each has code of its own, and where all fail the call goes on in the function's code at O0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final

from mlgo_gym.lab.tiers._recording import CACHED
from mlgo_gym.lab.tiers._units import suffixed
from mlgo_gym.llvm import NAME_PATTERN, Function, ModuleText, Signature

ASKS: Final = "tiers.ask"
"""The name of the block where it asks."""

_LABEL: Final = re.compile(rf"^({NAME_PATTERN}):")
_TARGET: Final = re.compile(rf"\blabel %({NAME_PATTERN})")
_VALUE: Final = re.compile(rf"%{NAME_PATTERN}")
_MADE: Final = re.compile(rf"^  (%{NAME_PATTERN}) = ")
_ALLOCA: Final = re.compile(rf"^  (%{NAME_PATTERN}) = alloca (.+?)(?:, align \d+)?$")
_DYNAMIC: Final = re.compile(r", i\d+ %|\binalloca\b")
_SCALAR: Final = re.compile(r"i\d+|ptr|half|bfloat|float|double|x86_fp80|<[^>]*>")
_UNFIT: Final = re.compile(
    r"\b(?:musttail|indirectbr|callbr|invoke|landingpad|blockaddress|phi)\b"
    r"|@\w*setjmp\(|@vfork\(|@llvm\.(?:va_start|stacksave|localescape)"
)
_POINTERS: Final = re.compile(r'"frame-pointer"="[^"]*" ?')
_ESCAPES: Final = "declare void @llvm.localescape(...)"
_FRAME: Final = "%tiers.frame"

WATCHER: Final = "tiers.watch"
ROW_WORDS: Final = 1 + CACHED[-1] + len(CACHED)
"""Words of what is known of an argument: how many values, the values, and calls with later ones."""
LOG_WORDS: Final = 4
"""Words of an entry of the log: an argument's row, a place in `CACHED`, a count, and a call."""

_INTEGER: Final = re.compile(r"i([1-9]|[1-5]\d|6[0-4])")
_UNWATCHED: Final = re.compile(
    r"\b(?:musttail|indirectbr|callbr|blockaddress)\b|@\w*setjmp\(|@vfork\(|@llvm\.va_start"
)

_SOUGHT: Final = f"""
define void @{WATCHER}(ptr %row, i64 %value) {{
entry:
  %known = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %other ]
  %is_end = icmp eq i64 %i, %known
  br i1 %is_end, label %new, label %compare
compare:
  %next = add i64 %i, 1
  %at = getelementptr i64, ptr %row, i64 %next
  %there = load i64, ptr %at
  %is_it = icmp eq i64 %there, %value
  br i1 %is_it, label %found, label %other
other:
  br label %look
new:
  %is_room = icmp ult i64 %known, {CACHED[-1]}
  br i1 %is_room, label %add, label %found
add:
  %more = add i64 %known, 1
  %new_at = getelementptr i64, ptr %row, i64 %more
  store i64 %value, ptr %new_at
  store i64 %more, ptr %row
  br label %found
found:
"""
"""Looks for the value among those that are known, and adds it; ``%i`` is its place."""
_COUNTED: Final = """
  %is_later.{j} = icmp uge i64 %i, {cached}
  br i1 %is_later.{j}, label %count.{j}, label %done.{j}
count.{j}:
  %at.{j} = getelementptr i64, ptr %row, i64 {word}
  %was.{j} = load i64, ptr %at.{j}
  %is.{j} = add i64 %was.{j}, 1
  store i64 %is.{j}, ptr %at.{j}
  %both.{j} = and i64 %is.{j}, %was.{j}
  %is_power.{j} = icmp eq i64 %both.{j}, 0
  br i1 %is_power.{j}, label %log.{j}, label %done.{j}
log.{j}:
  %entries.{j} = load i64, ptr inttoptr (i64 {log} to ptr)
  %more.{j} = add i64 %entries.{j}, 1
  store i64 %more.{j}, ptr inttoptr (i64 {log} to ptr)
  %fits.{j} = icmp ult i64 %entries.{j}, {most}
  br i1 %fits.{j}, label %write.{j}, label %done.{j}
write.{j}:
  %entry.{j} = getelementptr [4 x i64], ptr inttoptr (i64 {entries} to ptr), i64 %entries.{j}
  %call.{j} = load i64, ptr inttoptr (i64 {calls} to ptr)
  %address.{j} = ptrtoint ptr %row to i64
  %second.{j} = getelementptr i64, ptr %entry.{j}, i64 1
  %third.{j} = getelementptr i64, ptr %entry.{j}, i64 2
  %fourth.{j} = getelementptr i64, ptr %entry.{j}, i64 3
  store i64 %address.{j}, ptr %entry.{j}
  store i64 {j}, ptr %second.{j}
  store i64 %is.{j}, ptr %third.{j}
  store i64 %call.{j}, ptr %fourth.{j}
  br label %done.{j}
done.{j}:
"""
"""Counts calls whose value is none of the first ``cached``, and logs powers of two."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Addresses that code that guesses needs of the program that it runs in.

    Attributes:
        code: where it goes on.
        countdown: a count of wrong guesses, which is asked about at zero.
        ask: what is called there; it keeps all registers.
    """

    GOES_ON: ClassVar[str] = "tiers.other"
    METADATA: ClassVar = {"0": '!0 = !{!"branch_weights", i32 1, i32 1048575}'}

    code: int
    countdown: int
    ask: int

    def failed(self) -> Iterator[str]:
        """The end of a block where a guess was wrong, and the next block, which asks.

        The block `GOES_ON` follows, which `left` makes, and the module's metadata has `METADATA`.
        """
        place = f"ptr inttoptr (i64 {self.countdown} to ptr)"
        yield f"  %tiers.count = load i64, {place}"
        yield "  %tiers.less = sub i64 %tiers.count, 1"
        yield f"  store i64 %tiers.less, {place}"
        yield "  %tiers.is_due = icmp eq i64 %tiers.less, 0"
        yield f"  br i1 %tiers.is_due, label %{ASKS}, label %{self.GOES_ON}, !prof !0"
        yield f"{ASKS}:"
        yield f"  call void inttoptr (i64 {self.ask} to ptr)()"
        yield f"  br label %{self.GOES_ON}"

    def left(self, signature: Signature, given: Sequence[str], how: str = "") -> Iterator[str]:
        """The lines that call the code, and return what it does, as `returned` has it."""
        return returned(signature, f"inttoptr (i64 {self.code} to ptr)", given, how)


def returned(
    signature: Signature, callee: str, given: Sequence[str], how: str = "", suffix: str = ""
) -> Iterator[str]:
    """The lines of a call whose result is returned.

    Args:
        signature: of the function that returns it.
        callee: what is called.
        given: arguments, as they are written.
        how: the kind of call, such as ``musttail ``.
        suffix: of the result's name.
    """
    called = signature.before.removeprefix("define ")
    call = f"{how}call {called} {callee}({', '.join(given)})"
    if signature.result == "void":
        yield f"  {call}"
        yield "  ret void"
    else:
        yield f"  %tiers.result{suffix} = {call}"
        yield f"  ret {signature.result} %tiers.result{suffix}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of a frame: a variable of the stack, or where an argument is kept.

    Attributes:
        name: of the variable, or of the argument, with its mark.
        kind: its type.
        line: of LLVM's, that makes it; empty for an argument.
        is_private: whether nothing but loads and stores knows of it.
    """

    name: str
    kind: str
    line: str
    is_private: bool


@dataclass(frozen=True)
class Framed:
    """A function whose blocks share nothing but a frame.

    Attributes:
        module: that has it.
        function: itself.
        blocks: its lines by block, the entry first.
        slots: of its frame.
    """

    module: ModuleText = field(repr=False)
    function: Function = field(repr=False)
    blocks: Mapping[str, tuple[str, ...]] = field(repr=False)
    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, text: str, code: str) -> Framed | None:
        """The function of a name, or ``None`` where its blocks share more, or it has one only.

        Args:
            text: assembly of a module, whose values have names, after ``reg2mem``.
            code: the name as it is written.
        """
        module = ModuleText.read(text)
        function = module.functions[code]
        blocks = blocks_of(function)
        signature = Signature.read(function.header)
        entry, *others = blocks.values()
        later = [line for lines in others for line in lines]
        if not others or signature.is_variadic or any(map(_UNFIT.search, function.body)):
            return None
        allocas = {match[1]: match for match in map(_ALLOCA.match, entry) if match}
        used = set(_VALUE.findall("\n".join(later)))
        arguments = [each for each in signature.parameters if each.name in used]
        known = {match[1] for match in map(_MADE.match, later) if match}
        known |= {*allocas, *(each.name for each in arguments), *(f"%{name}" for name in blocks)}
        known |= {line.partition(" = ")[0] for line in module.preamble if line.startswith("%")}
        is_dynamic = any(_DYNAMIC.search(each[2]) for each in allocas.values())
        if used - known or is_dynamic or any(map(_ALLOCA.match, later)):
            return None
        private = _private(function, allocas)
        slots = [Slot(name, m[2], m[0], name in private) for name, m in allocas.items()]
        slots += [Slot(each.name, each.kind, "", True) for each in arguments]
        return cls(module, function, blocks, tuple(slots))

    @cached_property
    def signature(self) -> Signature:
        """Its ``define`` line, taken apart."""
        return Signature.read(self.function.header)

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the blocks that the rest can begin at: all but the entry."""
        return tuple(self.blocks)[1:]

    def revealed(self) -> str:
        """A module with the function, whose code tells where the slots stand in its frame.

        ``llvm.localescape`` defines a symbol for each, an offset from the frame pointer.
        """
        entry, *_ = self.blocks
        lines = [*self.blocks[entry]]
        place = 1 + max((i for i, line in enumerate(lines) if _ALLOCA.match(line)), default=-1)
        names = []
        more = []
        for number, each in enumerate(self.slots):
            name = each.name
            if not each.line:
                name = f"%tiers.argument.{number}"
                more.append(f"  {name} = alloca {each.kind}")
            names.append(name)
        more.append(f"  call void (...) @llvm.localescape({', '.join(f'ptr {n}' for n in names)})")
        more += (
            f"  store {each.kind} {each.name}, ptr {name}"
            for each, name in zip(self.slots, names, strict=True)
            if not each.line
        )
        lines[place:place] = more
        signature = self.signature
        before = self.function.header.removesuffix(signature.behind)
        header = f'{_POINTERS.sub("", before)} "frame-pointer"="all"{signature.behind}'
        body = _joined({**self.blocks, entry: tuple(lines)})
        declared = {**self.module.declarations, "llvm.localescape": _ESCAPES}
        module = replace(
            self.module,
            functions={signature.name: replace(self.function, header=header, body=body)},
            declarations=declared,
            epilogue=[_POINTERS.sub("", line) for line in self.module.epilogue],
        )
        return str(module)

    def rest(self, head: str, offsets: Sequence[int], name: str = "") -> str:
        """A module with the rest of the function from a block on; it takes the frame's address.

        What nothing else can know of is copied out of the frame, as nothing returns into it.

        Args:
            head: the block's name.
            offsets: of the slots in the frame.
            name: as it is written; the function's own if empty.
        """
        lines = ["tiers.rest:"]
        for number, (each, offset) in enumerate(zip(self.slots, offsets, strict=True)):
            at, value = f"%tiers.at.{number}", f"%tiers.value.{number}"
            place = f"getelementptr i8, ptr {_FRAME}, i64 {offset}"
            if not each.is_private:
                lines.append(f"  {each.name} = {place}")
                continue
            loaded = value if each.line else each.name
            lines += (each.line, f"  {at} = {place}") if each.line else (f"  {at} = {place}",)
            lines.append(f"  {loaded} = load {each.kind}, ptr {at}")
            if each.line:
                lines.append(f"  store {each.kind} {value}, ptr {each.name}")
        lines.append(f"  br label %{head}")
        kept = reached(self.blocks, head)
        blocks = {each: self.blocks[each] for each in self.blocks if each in kept}
        body = (*lines, *(each for each in _joined(blocks) if "@llvm.lifetime." not in each))
        signature = self.signature
        header = f"{signature.before} @{name or signature.name}(ptr {_FRAME}){signature.behind}"
        function = Function(name or signature.name, header, body)
        return str(replace(self.module, functions={function.name: function}))

    def leaves(self, kept: Collection[str]) -> bool:
        """Tell whether any block that is kept, or the entry, is followed by one that is not."""
        entry, *_ = self.blocks
        known = {entry, *kept}
        return any(not known.issuperset(following(self.blocks[each])) for each in known)

    def pruned(self, kept: Collection[str], offsets: Sequence[int], size: int, guard: Guard) -> str:
        """A module with the function, where blocks that were not kept are left for code at O0.

        What the slots hold then stands in an image of the frame of that code, which goes on in it.

        Args:
            kept: names of blocks besides the entry.
            offsets: of the slots in the frame, from its pointer.
            size: bytes of the frame below its pointer.
            guard: what is done then; its code takes the frame's pointer and a block's number.
        """
        entry, *_ = self.blocks
        known = {entry, *kept}
        numbers = {name: str(number) for number, name in enumerate(self.heads)}
        image = [
            f"  %tiers.image = alloca [{size} x i8], align 16",
            f"  {_FRAME} = getelementptr i8, ptr %tiers.image, i64 {size}",
        ]
        saved = []
        lines = {each: [*self.blocks[each]] for each in self.blocks if each in known}
        for number, (each, offset) in enumerate(zip(self.slots, offsets, strict=True)):
            at, value = f"%tiers.at.{number}", f"%tiers.value.{number}"
            place = f"getelementptr i8, ptr {_FRAME}, i64 {offset}"
            if not each.is_private:
                image.append(f"  {each.name} = {place}")
                lines[entry].remove(each.line)
                continue
            saved.append(f"  {at} = {place}")
            if each.line:
                saved.append(f"  {value} = load {each.kind}, ptr {each.name}")
            saved.append(f"  store {each.kind} {value if each.line else each.name}, ptr {at}")
        left: list[tuple[str, str]] = []

        def target(match: re.Match[str]) -> str:
            if match[1] in known:
                return match[0]
            left.append((numbers[match[1]], f"tiers.left.{len(left)}"))
            return f"label %{left[-1][1]}"

        blocks = {
            name: [_TARGET.sub(target, line) for line in each if "@llvm.lifetime." not in line]
            for name, each in lines.items()
        }
        blocks[entry][:0] = image
        blocks |= {name: ["  br label %tiers.leave"] for _, name in left}
        origins = ", ".join(f"[ {number}, %{name} ]" for number, name in left)
        signature = self.signature
        given = (f"ptr {_FRAME}", "i64 %tiers.block")
        blocks["tiers.leave"] = [f"  %tiers.block = phi i64 {origins}", *saved, *guard.failed()]
        blocks[guard.GOES_ON] = [*guard.left(signature, given)]
        function = replace(self.function, body=_joined(blocks))
        module = replace(
            self.module, functions={function.name: function}, metadata=dict(guard.METADATA)
        )
        return str(module)


def blocks_of(function: Function) -> dict[str, tuple[str, ...]]:
    """The lines of each block by its name, which all have; empty ones are left out."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in function.body:
        if match := _LABEL.match(line):
            lines = found.setdefault(match[1], [])
        elif line:
            lines.append(line)
    return {name: tuple(each) for name, each in found.items()}


def following(lines: Iterable[str]) -> list[str]:
    """The names of the blocks that may come next, behind a block of these lines."""
    return [name for line in lines for name in _TARGET.findall(line)]


def reached(blocks: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """The names of the blocks that can come from one on, itself included."""
    found, pending = {start}, [start]
    while pending:
        for name in following(blocks[pending.pop()]):
            if name not in found:
                found.add(name)
                pending.append(name)
    return found


def _joined(blocks: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    return tuple(line for name, lines in blocks.items() for line in (f"{name}:", *lines))


def _private(function: Function, allocas: Mapping[str, re.Match[str]]) -> set[str]:
    """Scalars that are loaded and stored as what they are, and whose address nobody takes."""
    found = {name for name, each in allocas.items() if _SCALAR.fullmatch(each[2])}
    for line in function.body:
        if _ALLOCA.match(line) or "@llvm.lifetime." in line:
            continue
        for name in found.intersection(_VALUE.findall(line)):
            kind = re.escape(allocas[name][2])
            plain = rf"(?:= load {kind}|store {kind} (?!{re.escape(name)},)\S.*?), ptr "
            if not re.search(rf"{plain}{re.escape(name)}(?:,|$)", line):
                found.discard(name)
    return found


def watched_arguments(text: str, code: str) -> list[int]:
    """The places of a function's arguments whose values it can be specialised on."""
    function = ModuleText.read(text).functions[code]
    signature = Signature.read(function.header)
    if signature.is_variadic or any(map(_UNWATCHED.search, function.body)):
        return []
    kinds = [each.kind for each in signature.parameters]
    return [place for place, kind in enumerate(kinds) if _INTEGER.fullmatch(kind)]


def watched(text: str, code: str, rows: Iterable[tuple[int, int]], blocks: int) -> str:
    """The module of a function, which notes its arguments' values, and the blocks that it reaches.

    Args:
        text: assembly of a module, whose blocks have names.
        code: the function's name as it is written.
        rows: places of arguments, and the addresses of `ROW_WORDS` words for each.
        blocks: the address of a byte for each block but the entry, which becomes 1.
    """
    module = ModuleText.read(text)
    function = module.functions[code]
    signature = Signature.read(function.header)
    lines = []
    for place, row in rows:
        argument = signature.parameters[place]
        value = argument.name
        if argument.kind != "i64":
            value = f"%tiers.watched.{place}"
            lines.append(f"  {value} = sext {argument.kind} {argument.name} to i64")
        lines.append(f"  call void @{WATCHER}(ptr inttoptr (i64 {row} to ptr), i64 {value})")
    entry, *others = blocks_of(function).items()
    body = [f"{entry[0]}:", *lines, *entry[1]]
    for number, (name, each) in enumerate(others):
        body += (f"{name}:", f"  store i8 1, ptr inttoptr (i64 {blocks + number} to ptr)", *each)
    declared = {**module.declarations, WATCHER: f"declare void @{WATCHER}(ptr, i64)"}
    functions = {**module.functions, code: replace(function, body=tuple(body))}
    return str(replace(module, functions=functions, declarations=declared))


def watcher(log: int, most: int, calls: int) -> str:
    """A module with the function that notes a value, and logs each power of two of later ones.

    Args:
        log: the address of a count of entries, and of the entries behind it.
        most: entries at most; further ones are counted.
        calls: the address of the number of the program's present call.
    """
    counts = (
        _COUNTED.format(
            j=number,
            cached=cached,
            word=1 + CACHED[-1] + number,
            log=log,
            entries=log + 8,
            most=most,
            calls=calls,
        )
        for number, cached in enumerate(CACHED)
    )
    return "".join((_SOUGHT, *counts, "  ret void\n}\n"))


def specialised(text: str, code: str, argument: int, values: Sequence[int], guard: Guard) -> str:
    """The module of a function that has code of its own for values of an argument.

    Args:
        text: assembly of a module, whose values have names.
        code: the function's name as it is written.
        argument: its place.
        values: that it is compared with, in this order.
        guard: what is done with others.
    """
    module = ModuleText.read(text)
    function = module.functions[code]
    signature = Signature.read(function.header)
    parameters = signature.parameters
    kind, name = parameters[argument].kind, parameters[argument].name
    given = [f"{each.written} {each.name}" for each in parameters]
    own = suffixed(code, ".value")
    lines: list[str] = []
    for number, value in enumerate(values):
        now, after = [*given], f"tiers.compare.{number + 1}"
        now[argument] = f"{parameters[argument].written} {value}"
        lines += (
            f"tiers.compare.{number}:",
            f"  %tiers.is.{number} = icmp eq {kind} {name}, {value}",
            f"  br i1 %tiers.is.{number}, label %tiers.value.{number}, label %{after}",
            f"tiers.value.{number}:",
            *returned(signature, f"@{own}", now, suffix=f".{number}"),
        )
    lines += (f"tiers.compare.{len(values)}:", *guard.failed(), f"{guard.GOES_ON}:")
    lines += guard.left(signature, given, "musttail ")
    called = signature.before.removeprefix("define ")
    plain = f"define internal {called} @{own}({', '.join(given)}) alwaysinline{signature.behind}"
    functions = {
        code: replace(function, body=tuple(lines)),
        own: Function(own, plain, function.body),
    }
    return str(replace(module, functions=functions, metadata=dict(guard.METADATA)))
