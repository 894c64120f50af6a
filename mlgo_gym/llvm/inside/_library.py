"""The shared library that holds LLVM: where it is, and its tables where it is loaded."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mlgo_gym.base import EnvironmentSetupError

_RTLD_DI_LINKMAP: Final = 2


class LinkMap(ctypes.Structure):
    """Of what is loaded, as the dynamic linker tells it (``link.h``)."""

    _fields_ = (
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dynamic", ctypes.c_size_t),
    )


def library_path() -> str:
    """Return the path of llvmlite's library; nothing is imported or loaded for it.

    Raises:
        EnvironmentSetupError: llvmlite is not there.
    """
    found = find_spec("llvmlite")
    if found is None or not found.origin:
        raise EnvironmentSetupError("llvmlite: expected the package, found none")
    return str(Path(found.origin).parent / "binding" / "libllvmlite.so")


def loaded_at() -> int:
    """Return the address that llvmlite's library is loaded at; 0 where it is not known."""
    about = link_map()
    return about.base if about else 0


def link_map() -> LinkMap | None:
    """Of llvmlite's library, if the dynamic linker tells it."""
    try:  # it is loaded: under the name that it was loaded by, no file is opened
        library = ctypes.CDLL(library_path())
    except OSError:
        return None
    found = ctypes.POINTER(LinkMap)()
    inform = getattr(ctypes.CDLL(None), "dlinfo", None)
    if inform is None:
        return None
    inform.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    if inform(library._handle, _RTLD_DI_LINKMAP, ctypes.byref(found)):  # noqa: SLF001 - ctypes's
        return None
    return found.contents


def slot_of(table: int, slots: int, function: int, name: str) -> int:
    """Return the address of the slot in which a class's table of virtual functions has one.

    Args:
        table: the table's address.
        slots: how many are looked at.
        function: the function's address.
        name: its symbol, for the error.

    Raises:
        EnvironmentSetupError: none of the slots has it, as in another LLVM.
    """
    found = list((ctypes.c_size_t * slots).from_address(table))
    if function not in found:
        raise EnvironmentSetupError(
            f"expected {name!r} in its class's table, found other functions"
        )
    return table + found.index(function) * ctypes.sizeof(ctypes.c_size_t)


def put(slot: int, address: int) -> None:
    """Write an address into a table, which may have been made read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = libc.getpagesize()
    start = slot // page * page
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(start, page, 3):  # PROT_READ | PROT_WRITE
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.c_size_t.from_address(slot).value = address
