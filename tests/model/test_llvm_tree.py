"""The class that docs/reference/native.md puts into LLVM's tree, compiled and called."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.model import compile_model, emit_c, find_model
from tests.model.agreement import buffers

CXX = shutil.which("c++") or shutil.which("g++")
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "native.md"
MODEL = Path(find_model("inlining-for-size"))

# As ReleaseModeModelRunner does: look up, write in place, run, read in place.
PROGRAM = r"""
#include "InlinerSizeModel.h"
#include <cstdint>
#include <cstdio>

int main() {
  llvm::InlinerSizeModel model;
  for (int i = 0; i < INLINER_INPUT_COUNT; ++i) {
    int at = model.LookupArgIndex(std::string("feed_") + inliner_inputs[i].name);
    *static_cast<int64_t *>(model.arg_data(at)) = at % 7;
  }
  int decision = model.LookupResultIndex(std::string("fetch_") + inliner_outputs[0].name);
  if (!model.Run() || model.LookupArgIndex("feed_never") != -1) return 1;
  return std::fwrite(model.result_data(decision), inliner_outputs[0].size_bytes, 1, stdout) != 1;
}
"""


@pytest.mark.e2e
@pytest.mark.skipif(CXX is None, reason="needs a C++ compiler: apt-get install g++")
def test_the_class_in_the_docs(tmp_path: Path) -> None:
    files = emit_c(MODEL, tmp_path, name="inliner")
    (code,) = re.findall(r"```cpp\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "InlinerSizeModel.h").write_text(files.header.read_text() + code)
    (tmp_path / "main.cpp").write_text(PROGRAM)
    for command in (
        ["cc", "-O3", "-fPIC", "-c", "inliner.c"],
        [str(CXX), "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", "inliner.o", "-lm"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "a.out"], stdout=subprocess.PIPE, check=True)
    native = compile_model(MODEL / "model.tflite", cpu="x86-64")
    given, made = buffers(native.inputs), buffers(native.outputs)
    for number, buffer in enumerate(given):
        buffer[...] = number % 7
    with native.bind(given, made) as bound:
        assert bound.call() == 0
    np.testing.assert_array_equal(np.frombuffer(done.stdout, made[0].dtype), made[0].reshape(-1))
