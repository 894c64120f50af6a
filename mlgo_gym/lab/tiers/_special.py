"""Code for the values that an argument has had so far, behind a guard, and the watch for them.

A function is specialised on the first values of one of its arguments, as an inline cache is on
types (Hölzle, Chambers and Ungar, Optimizing Dynamically-Typed Object-Oriented Languages With
Polymorphic Inline Caches, ECOOP 1991): it compares the argument with one value after the other,
each has code of its own, and where all fail the call goes on in the function's code at O0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from mlgo_gym.lab.tiers._recording import CACHED
from mlgo_gym.lab.tiers._rest import Guard, blocks_of, returned
from mlgo_gym.lab.tiers._units import suffixed
from mlgo_gym.llvm import Function, ModuleText, Signature

WATCHER: Final = "tiers.watch"
ROW_WORDS: Final = 1 + CACHED[-1] + len(CACHED)
"""Words of what is known of an argument: how many values, the values, and calls with later ones."""
LOG_WORDS: Final = 4
"""Words of an entry of the log: an argument's row, a place in `CACHED`, a count, and a call."""

_INTEGER: Final = re.compile(r"i([1-9]|[1-5]\d|6[0-4])")
_UNFIT: Final = re.compile(
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


def watched_arguments(text: str, code: str) -> list[int]:
    """The places of a function's arguments whose values it can be specialised on."""
    function = ModuleText.read(text).functions[code]
    signature = Signature.read(function.header)
    if signature.is_variadic or any(map(_UNFIT.search, function.body)):
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
