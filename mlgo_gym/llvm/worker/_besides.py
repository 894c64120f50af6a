"""Features and contexts that are told besides what LLVM sends, in its form, as if it sent them.

Whoever hears a channel (`mlgo_gym.stream`, a policy in the worker) need not know: they are in the
header, and in each observation behind LLVM's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mlgo_gym.llvm._task import Task
from mlgo_gym.llvm.inside._call_site import CallSite, call_site_groups
from mlgo_gym.llvm.inside._live_range import FEATURE, LiveRanges
from mlgo_gym.llvm.inside._sites import Sites
from mlgo_gym.llvm.worker._tensors import laid_out

CONTEXT: Final = b'{"context":'
OBSERVATION: Final = b'{"observation":'
"""How LLVM begins a context and an observation."""


def _nothing() -> None:
    return None


class Knows:
    """Readers of the call or live range that LLVM asks about, made when first needed."""

    def __init__(self) -> None:
        self.call_site: CallSite | None = None
        self.sites: Sites | None = None
        self.live_ranges: LiveRanges | None = None


class Besides:
    """Adds features of one ``int64_t``, and contexts, to what LLVM writes to one channel.

    Args:
        names: the features.
        values: their raw values, for what LLVM asks about at that moment.
        context: likewise the context of each observation; where it is ``None``, LLVM's own stays.

    >>> besides = Besides(["size"], lambda: (7).to_bytes(8, "little"))
    >>> header = b'{"features":[{"name":"x","port":0,"shape":[1],"type":"int64_t"}],"advice":{}}'
    >>> b'"size"' in besides.told(header + bytes([10]))
    True
    >>> observation = b'{"observation":0}' + bytes([10]) + bytes(8) + bytes([10])
    >>> int.from_bytes(besides.told(observation)[-9:-1], "little")
    7
    """

    def __init__(
        self,
        names: Sequence[str],
        values: Callable[[], bytes],
        context: Callable[[], str | None] = _nothing,
    ) -> None:
        self._described = [
            {"name": name, "port": 0, "shape": [1], "type": "int64_t"} for name in names
        ]
        self._values, self._context = values, context
        self._unread = bytearray()
        self._size_bytes = 0

    def begin(self) -> None:
        """LLVM has opened the channel anew."""
        self._unread.clear()
        self._size_bytes = 0

    def told(self, data: bytes) -> bytes:
        """Return the whole messages that are sent when LLVM has written this."""
        self._unread += data
        told = bytearray()
        while (end := self._unread.find(b"\n") + 1) > 0:
            if self._unread.startswith(OBSERVATION):
                end += self._size_bytes + 1
                if len(self._unread) < end:
                    break
                if (context := self._context()) is not None:
                    told += CONTEXT + json.dumps(context).encode() + b"}\n"
                told += self._unread[: end - 1] + self._values() + b"\n"
            elif self._unread.startswith(CONTEXT):
                told += self._unread[:end]
            else:
                told += self._wider(bytes(self._unread[:end]))
            del self._unread[:end]
        return bytes(told)

    def _wider(self, header: bytes) -> bytes:
        value = json.loads(header)
        self._size_bytes = laid_out(value)[1]
        value["features"] += self._described
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def besides_of(knows: Knows, derives: Sequence[str], task: Task) -> Besides | None:
    """Return what adds to the questions of a problem, if anything does."""
    call_site, sites, live_ranges = knows.call_site, knows.sites, knows.live_ranges
    if FEATURE in derives and live_ranges:
        return Besides((FEATURE,), live_ranges.value)
    if call_site is None or not (derives or task.knows_calls):
        return None
    context: Callable[[], str | None] = _nothing
    if task.sites and sites:
        context = partial(_site, call_site, sites)
    elif task.names:
        context = call_site.names
    if derives:
        groups = call_site_groups(derives)
        names = [name for group in groups for name in group]
        return Besides(names, partial(call_site.features, groups), context)
    return Besides((), bytes, context)


def _site(call_site: CallSite, sites: Sites) -> str | None:
    names = call_site.names()
    return names and f"{names}\0{sites.site(call_site.call)}"
