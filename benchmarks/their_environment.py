"""Episodes in ml-compiler-opt's own environment; run by `benchmarks.ml_compiler_opt` in its Python.

Prints seconds, episodes and decisions as JSON. Nothing of mlgo_gym is imported.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

import numpy as np


def main(source: str, corpus_folder: str, clang: str, size: str, *names: str) -> None:
    sys.path.insert(0, source)
    importlib.import_module("absl.flags").FLAGS(["benchmark"])
    gin = importlib.import_module("gin")
    inlining = importlib.import_module("compiler_opt.rl.inlining.env")
    gin.bind_parameter("InliningForSizeTask.llvm_size_path", size)
    corpus = importlib.import_module("compiler_opt.rl.corpus").Corpus(data_path=corpus_folder)
    modules = [corpus.load_module_spec(spec) for spec in corpus.module_specs if spec.name in names]
    env = inlining.get_inlining_env(clang_path=clang)
    decisions = 0
    start = time.perf_counter()
    for module in modules:
        step = env.reset(module)
        while step.obs is not None:
            decisions += 1
            step = env.step(np.array(step.obs["inlining_default"], np.int64))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "episodes": len(modules), "decisions": decisions}))


if __name__ == "__main__":
    main(*sys.argv[1:])
