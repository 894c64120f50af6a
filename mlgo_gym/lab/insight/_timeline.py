"""Timelines: compilations and their decisions in the lanes of workers, for Perfetto's viewer.

https://ui.perfetto.dev opens the file: a Perfetto trace of track events. A lane is a worker, here
or on a node, in it are compilations, and in these their decisions, each from the question to the
next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic_ns
from typing import Any, BinaryIO, Final

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.llvm import Answered, Ended, Site, watching

MOST_DECISIONS: Final = 1_000_000
"""How many are drawn; of later compilations there is the number of theirs alone."""

_SEQUENCE: Final = 1
_ROOT: Final = 1
_THOUSAND: Final = 1000


class Timeline:
    """Writes what has ended to a file, compilation by compilation, from any thread.

    Attributes:
        left_out: how many decisions are not in it, since there were too many.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            from perfetto.protos.perfetto.trace import (  # noqa: PLC0415 - an extra
                perfetto_trace_pb2,
            )
            from perfetto.trace_builder.proto_builder import (  # noqa: PLC0415
                StreamingTraceProtoBuilder,
            )
        except ImportError as error:
            raise EnvironmentSetupError(
                "timelines: need perfetto; run: pip install 'mlgo-gym[timeline]'"
            ) from error
        self.left_out = 0
        self._left = MOST_DECISIONS
        self._builder: Final = StreamingTraceProtoBuilder(file)
        self._kinds: Final = perfetto_trace_pb2.TrackEvent
        self._start_ns: Final = monotonic_ns()
        self._lock: Final = Lock()
        self._lanes: Final[dict[tuple[str, int], int]] = {}
        packet = self._packet()
        packet.track_descriptor.uuid = _ROOT
        packet.track_descriptor.process.pid = os.getpid()
        packet.track_descriptor.process.process_name = "mlgo-gym"
        self._builder.write_packet(packet)

    def add(self, ended: Ended) -> None:
        """Draw a compilation."""
        with self._lock:
            self._draw(ended)

    def _draw(self, ended: Ended) -> None:
        lane = self._lane(ended.node, ended.worker_pid)
        notes: dict[str, int | str] = {"decisions": ended.decisions}
        if not ended.is_whole:
            notes["ended"] = "given up"
        answers = ended.answers
        if len(answers) > self._left:
            self.left_out += len(answers)
            notes["left out"] = f"{len(answers)} decisions"
            answers = ()
        self._left -= len(answers)
        self._begin(lane, ended.start_ns, ended.module, notes)
        ends = [each.asked_ns for each in answers[1:]] + [ended.end_ns]
        for index, (answer, end_ns) in enumerate(zip(answers, ends, strict=False)):
            name, about = _described(index, answer)
            self._begin(lane, answer.asked_ns, name, about)
            self._end(lane, end_ns)
        self._end(lane, ended.end_ns)

    def _lane(self, node: str, worker_pid: int) -> int:
        lane = self._lanes.get((node, worker_pid))
        if lane is None:
            lane = self._lanes[node, worker_pid] = _ROOT + 1 + len(self._lanes)
            packet = self._packet()
            packet.track_descriptor.uuid = lane
            packet.track_descriptor.parent_uuid = _ROOT
            where = f"{node}: " if node else ""
            packet.track_descriptor.name = _text(f"{where}worker {worker_pid}")
            self._builder.write_packet(packet)
        return lane

    def _begin(self, lane: int, moment_ns: int, name: str, notes: dict[str, int | str]) -> None:
        packet = self._event(lane, moment_ns, self._kinds.TYPE_SLICE_BEGIN)
        packet.track_event.name = _text(name)
        for key, value in notes.items():
            note = packet.track_event.debug_annotations.add()
            note.name = key
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = _text(value)
        self._builder.write_packet(packet)

    def _end(self, lane: int, moment_ns: int) -> None:
        self._builder.write_packet(self._event(lane, moment_ns, self._kinds.TYPE_SLICE_END))

    def _event(self, lane: int, moment_ns: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = max(0, moment_ns - self._start_ns)
        packet.track_event.track_uuid = lane
        packet.track_event.type = kind
        return packet

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet


@contextmanager
def drawing(file: BinaryIO) -> Iterator[Timeline]:
    """Write a timeline of all that is compiled in the block by workers of this process.

    Those of nodes that it has are its own, too.
    """
    timeline = Timeline(file)
    with watching(timeline.add):
        yield timeline


def _described(index: int, answer: Answered) -> tuple[str, dict[str, int | str]]:
    """A decision's name, and what is shown when it is clicked."""
    notes: dict[str, int | str] = {
        "answer": answer.action if isinstance(answer.action, int) else f"{answer.action:g}",
        "answered after": f"{(answer.answered_ns - answer.asked_ns) / _THOUSAND:.1f} us",
    }
    if (site := Site.of_context(answer.context)) is not None:
        return f"{site.callee} in {site.caller}", notes | {"site": str(site)}
    if answer.context:
        return answer.context.replace("\0", " calls "), notes
    return f"decision {index}", notes


def _text(text: str) -> str:
    """As protobuf takes it: names of modules need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
