"""LLVM's own opt and llc as peers on the other end of a channel, without the code under test."""

from __future__ import annotations

import os
import struct
import subprocess
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from mlgo_gym.stream._training_log import Header, Observation, StreamDecoder
from tests.conftest import require

_OPTIONS = {
    "opt-22": (
        "-passes=default<O2>",
        "-enable-ml-inliner=release",
        "-inliner-interactive-channel-base={base}",
        "-inliner-interactive-include-default",
        "-disable-output",
    ),
    "llc-22": (
        "-regalloc-enable-advisor=release",
        "-regalloc-evict-interactive-channel-base={base}",
        "-filetype=null",
    ),
}


def captured_stream(tool: str, module: Path, folder: Path) -> bytes:
    """Everything that a tool sends while every observation is answered legally."""
    path = require(tool, "llvm-22")
    if tool == "llc-22":
        module = _optimized(module, folder)
    base = folder / "peer"
    for end in (".in", ".out"):
        os.mkfifo(f"{base}{end}")
    command = [path, *(each.format(base=base) for each in _OPTIONS[tool]), str(module)]
    with subprocess.Popen(command) as process:
        try:
            # LLVM opens .in first; the other order blocks both sides for ever.
            with (
                open(f"{base}.in", "wb", buffering=0) as replies,
                open(f"{base}.out", "rb", buffering=0) as stream,
            ):
                captured = _serve(stream, replies)
            assert process.wait() == 0
        finally:
            process.kill()
    return captured


def _optimized(module: Path, folder: Path) -> Path:
    output = folder / "optimized.bc"
    subprocess.run([require("opt-22", "llvm-22"), "-O2", module, "-o", output], check=True)
    return output


def _serve(stream: BinaryIO | FileIO, replies: BinaryIO | FileIO) -> bytes:
    decoder, captured = StreamDecoder(), b""
    while data := stream.read(1 << 16):
        captured += data
        decoder.feed(data)
        while (event := decoder.next_event()) is not None:
            if isinstance(event, Observation):
                replies.write(_legal(event))
            assert not isinstance(event, Header) or event.advice is not None
    return captured


def _legal(observation: Observation) -> bytes:
    if "mask" not in observation:
        return observation["inlining_default"].tobytes()
    legal = [index for index, value in enumerate(observation["mask"][0]) if value]
    return struct.pack("=q", 32 if 32 in legal else legal[0])
