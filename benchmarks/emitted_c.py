"""What an evaluation costs as an object and as C, side by side, by compiler.

``python -m benchmarks emitted_c --model FOLDER``; `latency_model` makes the folder. All are
called by one loop in C, in turns, on inputs that stay; the least of 200 rounds each.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.model import emit_c, freeze, load_frozen

_CALLER: Final = r"""
#include <stdint.h>
#include <time.h>

typedef int32_t evaluate(const void *const *inputs, void *const *outputs);

double nanoseconds(evaluate *function, const void *const *inputs, void *const *outputs,
                   long calls) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (long i = 0; i < calls; ++i) function(inputs, outputs);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls;
}
"""
_FLAGS: Final = {
    "-O3": ("-O3", "-march=native"),
    "-O2": ("-O2", "-march=native"),
    "-O3, vectors of 512 bits": ("-O3", "-march=native", "-mprefer-vector-width=512"),
}
_ROUNDS, _CALLS = 200, 1_000


def run(model: Path) -> None:
    compilers = [name for name in ("gcc", "clang-22") if shutil.which(name)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        freeze(model, folder / "object", name="policy")
        source = emit_c(model, folder, name="policy").source
        (folder / "caller.c").write_text(_CALLER)
        caller = ctypes.CDLL(str(_shared(compilers[0], folder / "caller.c", ("-O2",))))
        caller.nanoseconds.restype = ctypes.c_double
        libraries = {"object": folder / "object/policy.so"}
        for compiler in compilers:
            for title, flags in _FLAGS.items():
                libraries[f"{compiler} {title}"] = _shared(compiler, source, flags)
        native, _ = load_frozen(folder / "object")
        buffers = [np.zeros(port.spec.shape, port.spec.dtype) for port in native.inputs]
        for number, buffer in enumerate(buffers):
            buffer[...] = number
        room = [np.zeros(port.spec.shape, port.spec.dtype) for port in native.outputs]
        pointers = (_pointers(buffers), _pointers(room))
        timed = {title: _timer(caller, path, pointers) for title, path in libraries.items()}
        best = {title: each() for title, each in timed.items()}
        for _ in range(_ROUNDS):
            for title, each in timed.items():
                best[title] = min(best[title], each())
    print(f"{'':40} {'ns':>9} {'x object':>9}    {native.object.cpu}")
    for title, each_ns in best.items():
        print(f"{title:40} {each_ns:9.1f} {each_ns / best['object']:9.2f}")


def _shared(compiler: str, source: Path, flags: tuple[str, ...]) -> Path:
    target = source.with_name(f"{source.stem}-{compiler}{len(list(source.parent.iterdir()))}.so")
    command = [compiler, *flags, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-fPIC", "-shared"]
    subprocess.run([*command, str(source), "-o", str(target), "-lm"], check=True)
    return target


def _pointers(arrays: list[np.ndarray[Any, Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _timer(caller: Any, path: Path, pointers: tuple[Any, Any]) -> Callable[[], float]:
    function = ctypes.CDLL(str(path)).policy_evaluate
    return lambda: caller.nanoseconds(function, *pointers, ctypes.c_long(_CALLS))
