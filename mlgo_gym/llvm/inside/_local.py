"""Inline functions of a module become local, as ``mlgo-cc --mlgo-project`` makes them in clang.

Which ones, is said in ``cc/native/local.c``, whose rules these are: all that others share stay, and
so does all whose address or name somebody may need. llvmlite has no names for COMDATs and uses, so
LLVM's C interface is called (``llvm-c/Core.h``, ``llvm-c/Comdat.h``).
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_LINK_ONCE_ODR, _INTERNAL = 3, 8  # LLVMLinkage
_HIDDEN: Final = 1  # LLVMVisibility
_GLOBAL_UNNAMED_ADDRESS: Final = 2  # LLVMUnnamedAddr
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_ASKED: Final[Mapping[str, tuple[Any, ...]]] = {
    "LLVMGetFirstFunction": (_POINTER, _POINTER),
    "LLVMGetNextFunction": (_POINTER, _POINTER),
    "LLVMGetFirstGlobal": (_POINTER, _POINTER),
    "LLVMGetNextGlobal": (_POINTER, _POINTER),
    "LLVMGetFirstGlobalAlias": (_POINTER, _POINTER),
    "LLVMGetNextGlobalAlias": (_POINTER, _POINTER),
    "LLVMAliasGetAliasee": (_POINTER, _POINTER),
    "LLVMGetModuleInlineAsm": (_POINTER, _POINTER, _POINTER),
    "LLVMGetTarget": (ctypes.c_char_p, _POINTER),
    "LLVMGetValueName2": (_POINTER, _POINTER, _POINTER),
    "LLVMIsDeclaration": (_INT, _POINTER),
    "LLVMGetLinkage": (_INT, _POINTER),
    "LLVMSetLinkage": (None, _POINTER, _INT),
    "LLVMGetVisibility": (_INT, _POINTER),
    "LLVMGetUnnamedAddress": (_INT, _POINTER),
    "LLVMGetComdat": (_POINTER, _POINTER),
    "LLVMSetComdat": (None, _POINTER, _POINTER),
    "LLVMGetFirstUse": (_POINTER, _POINTER),
    "LLVMGetNextUse": (_POINTER, _POINTER),
    "LLVMGetUser": (_POINTER, _POINTER),
    "LLVMIsAConstant": (_POINTER, _POINTER),
    "LLVMIsAFunction": (_POINTER, _POINTER),
    "LLVMIsAGlobalAlias": (_POINTER, _POINTER),
    "LLVMIsAGlobalVariable": (_POINTER, _POINTER),
    "LLVMIsABlockAddress": (_POINTER, _POINTER),
    "LLVMIsACallInst": (_POINTER, _POINTER),
    "LLVMIsAInvokeInst": (_POINTER, _POINTER),
    "LLVMGetCalledValue": (_POINTER, _POINTER),
    "LLVMGetNumArgOperands": (ctypes.c_uint, _POINTER),
    "LLVMGetOperand": (_POINTER, _POINTER, ctypes.c_uint),
}
"""The type that each function returns, and those of its arguments."""
SYMBOLS: Final = tuple(_ASKED)

_HASH_BYTES: Final = 6
_TABLES: Final = (b"_ZTV", b"_ZTC")
"""Tables of virtual functions: whose copy of one is called, nobody can tell."""
_DEVICES: Final = (b"nvptx", b"amdgcn", b"spir", b"bpf")
"""Targets whose code has a linker of its own."""

_Value = int


def name_hash(name: str) -> str:
    """Return the hash that stands for a function's name.

    >>> name_hash("_Z1fv")
    'Mt_ecDe4'
    """
    return _hash(name.encode("utf-8", "surrogateescape"))


def _hash(name: bytes) -> str:
    digest = hashlib.blake2b(name, digest_size=32).digest()
    return base64.urlsafe_b64encode(digest[:_HASH_BYTES]).decode()


@dataclass(frozen=True, slots=True)
class _Member:
    value: _Value
    is_function: bool
    can_be_local: bool


class Localizer:
    """Makes functions local by LLVM's C interface.

    Args:
        addresses: where each of `SYMBOLS` is.
        shared: hashes (`name_hash`) of the functions that other modules have or need.
        is_exported: whether the link says what is exported; then only hidden functions change.
    """

    def __init__(
        self, addresses: Mapping[str, int], shared: Collection[str], *, is_exported: bool
    ) -> None:
        self._llvm: Final[dict[str, Callable[..., Any]]] = {
            name.removeprefix("LLVM"): ctypes.CFUNCTYPE(*kinds)(addresses[name])
            for name, kinds in _ASKED.items()
        }
        self._shared: Final = frozenset(shared)
        self._is_exported: Final = is_exported

    def make_local(self, module: int) -> int:
        """Make functions of a module local, at its address; returns how many."""
        if self._llvm["GetTarget"](module).startswith(_DEVICES):
            return 0
        count = 0
        for members in self._comdats(module).values():
            if not all(each.can_be_local for each in members):
                continue
            for each in members:
                if each.is_function:
                    self._llvm["SetComdat"](each.value, None)
                    count += 1
                self._llvm["SetLinkage"](each.value, _INTERNAL)
        return count

    def _comdats(self, module: int) -> Mapping[int, list[_Member]]:
        """Return the members of each COMDAT, an alias's being its function's."""
        llvm, assembly = self._llvm, self._text("GetModuleInlineAsm", module)
        found: defaultdict[int, list[_Member]] = defaultdict(list)
        for each in self._all("Function", module):
            if not llvm["IsDeclaration"](each) and (comdat := llvm["GetComdat"](each)):
                found[comdat].append(_Member(each, True, self._can_be_local(each, assembly)))
        for each in self._all("Global", module):
            if comdat := llvm["GetComdat"](each):
                found[comdat].append(_Member(each, False, False))
        for each in self._all("GlobalAlias", module):
            of = llvm["AliasGetAliasee"](each)
            if llvm["IsAFunction"](of) and (comdat := llvm["GetComdat"](of)):
                found[comdat].append(_Member(each, False, self._can_be_local(each, assembly)))
        return found

    def _all(self, kind: str, module: int) -> Iterator[_Value]:
        value = self._llvm[f"GetFirst{kind}"](module)
        while value:
            yield value
            value = self._llvm[f"GetNext{kind}"](value)

    def _text(self, function: str, value: _Value) -> bytes:
        """Return what a function that tells a text and its length tells of a value."""
        length = ctypes.c_size_t()
        text = self._llvm[function](value, ctypes.addressof(length))
        return ctypes.string_at(text, length.value) if length.value else b""

    def _name(self, value: _Value) -> bytes:
        return self._text("GetValueName2", value).removeprefix(b"\1")

    def _can_be_local(self, value: _Value, assembly: bytes) -> bool:
        llvm = self._llvm
        if llvm["GetLinkage"](value) != _LINK_ONCE_ODR:
            return False
        if self._is_exported and llvm["GetVisibility"](value) != _HIDDEN:
            return False
        name = self._name(value)
        if _hash(name) in self._shared or (assembly and name in assembly):
            return False
        has_address = llvm["GetUnnamedAddress"](value) != _GLOBAL_UNNAMED_ADDRESS
        return self._is_free(value, value, has_address=has_address)

    def _is_free(self, used: _Value, function: _Value, *, has_address: bool) -> bool:
        """Whether no use of a value keeps the function, which it is or is made of, as it is."""
        llvm = self._llvm
        use = llvm["GetFirstUse"](used)
        while use:
            user = llvm["GetUser"](use)
            if not self._is_good_user(user, function, has_address=has_address):
                return False
            use = llvm["GetNextUse"](use)
        return True

    def _is_good_user(self, user: _Value, function: _Value, *, has_address: bool) -> bool:
        llvm = self._llvm
        if llvm["IsAGlobalVariable"](user):
            name = self._name(user)
            is_llvms = len(name) > 5 and name.startswith(b"llvm.")
            return not is_llvms and (not has_address or self._is_table(name))
        if llvm["IsAGlobalAlias"](user) or llvm["IsABlockAddress"](user):
            return True  # an alias has uses of its own
        if llvm["IsAFunction"](user):
            return False
        if llvm["IsAConstant"](user):
            return self._is_free(user, function, has_address=has_address)
        return not has_address or self._is_only_called(user, function)

    @staticmethod
    def _is_table(name: bytes) -> bool:
        return len(name) > 4 and name.startswith(_TABLES)

    def _is_only_called(self, call: _Value, function: _Value) -> bool:
        llvm = self._llvm
        is_call = llvm["IsACallInst"](call) or llvm["IsAInvokeInst"](call)
        if not is_call or llvm["GetCalledValue"](call) != function:
            return False
        count = llvm["GetNumArgOperands"](call)
        return all(llvm["GetOperand"](call, index) != function for index in range(count))
