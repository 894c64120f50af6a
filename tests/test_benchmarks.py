"""Every benchmark runs, on corpora of a module or two, and prints what it is there to measure.

How large the numbers are is not looked at, but for those that do not depend on the machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.__main__ import RUNS
from benchmarks.debian_source import DebianSource, fetch_tree
from benchmarks.estimate import read
from benchmarks.meters import ranks
from corpus_tools.build import build_from_sources
from corpus_tools.clang import find_clang
from corpus_tools.compilation import Compilation
from mlgo_gym.corpus import SAMPLE_CORPUS
from tests.conftest import lacking, require

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "mlgo_gym" / "corpus" / "sample" / "src"
CORPORA = {
    "lupa-{}": ("digest.c", "lisp_cells.c"),
    **dict.fromkeys(
        ("lupa-{}-whole", "fasttext-{}", "libsass-{}", "sentencepiece-{}"), ("scene.cpp",)
    ),
    **dict.fromkeys(
        (
            *("box2d-py-{}", "brotli-{}", "cmarkgfm-{}", "lz4-{}", "pycares-{}"),
            *("yara-python-{}", "zstandard-{}"),
        ),
        ("expr_vm.c",),
    ),
}
"""Sources of the sample corpus, under the names that the benchmarks' corpora have."""

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"


@dataclass(frozen=True)
class Tiny:
    """A benchmark at its smallest.

    Attributes:
        lines: what is run, behind `python -m`, one after another.
        says: parts of what is printed; "#" is a number, and any white space is one space.
        needs: programs and the Debian packages of each.
        imports: what else has to be installed.
    """

    lines: tuple[str, ...]
    says: tuple[str, ...]
    needs: tuple[tuple[str, str], ...] = ()
    imports: str = ""


CLANG = ("clang-22", "clang-22")
OBJCOPY = ("llvm-objcopy-22", "llvm-22")
TINY = {
    "ablation": Tiny(("benchmarks.ablation --vocabulary entities.json",), ()),
    "clang_equality": Tiny(
        ("benchmarks clang_equality",),
        (
            *(
                f"{level}: # decisions; equal to LLVM left alone: 2 of 2 objects; "
                "code equal to clang-22's: 2;"
                for level in ("-Oz", "-O3")
            ),
            "size's text column: # against # bytes (# %)",
            "LLVM left alone #; default answers, limit 2: #; default answers, limit inf: #",
        ),
        (CLANG, ("llvm-size-22", "llvm-22")),
    ),
    "bench_runs": Tiny(
        ("benchmarks.bench_runs build/corpora/lupa-Oz",),
        ("# modules, # decisions: under inlining-for-size # x the time that LLVM takes alone",),
    ),
    "boxes": Tiny(
        ("benchmarks.boxes --functions 1", "benchmarks.boxes --clean", "benchmarks.boxes --mib 2"),
        (
            "json: # functions, # executed, # boxed (#%); # of # candidates have equal effects",
            "a trial: # ms, of a box of # MiB; after # trials its memory is equal",
            "compiled, linked, tried and counted: json_free, # times a minute",
            "call #: # ns in a loop, # ns in a box, #%",
        ),
    ),
    "cluster": Tiny(
        ("benchmarks.cluster --rounds 1 --results 40 --corpus build/corpora/lupa-Oz",),
        (
            "batches of 8, modules are there: # us of the caller's CPU a result,",
            "evaluate, 2 modules, 2 workers, 1 rounds: here # s, on Ray # s: # x",
            "a node: there after # s, its first result # s later",
        ),
        imports="ray",
    ),
    "cluster_simulation": Tiny(
        ("benchmarks.cluster_simulation --corpus build/corpora/lupa-Oz --workers 10",),
        (
            "70 ms, 400 us a call and 40 us a result:",
            "10 workers: #% busy; the schedule # us a result",
        ),
    ),
    "confinement": Tiny(
        ("benchmarks confinement --rounds 1",),
        (
            "limits and sandbox # ms a start",
            "compiling without # s",
            "compiling confined # s # x without",
        ),
    ),
    "driver_modules": Tiny(
        ("benchmarks.driver_modules --rounds 1 --corpus build/corpora/lupa-Oz",),
        tuple(
            f"{model}, {way}: 2 modules, clang # s, mlgo-cc # s, # x; geometric mean # x [#, #]"
            for model, ways in {
                "default": ("in-process", "FIFOs"),
                "inlining-for-size": ("in-process", "FIFOs"),
                "inlining-for-size-derived": ("in-process",),
                "regalloc-eviction": ("in-process", "FIFOs"),
            }.items()
            for way in ways
        ),
        (CLANG,),
    ),
    "embeddings": Tiny(
        ("benchmarks embeddings --rounds 1",),
        tuple(
            f"{way} # s # x 2 of 2 objects as LLVM alone makes them"
            for way in ("38 features", "ones", "one-hot", "seed-75")
        ),
    ),
    "extraction_throughput": Tiny(
        ("benchmarks extraction_throughput --objects 4",),
        ("mlgo-utils # s # objects/s", "mlgo-extract-corpus # s # objects/s", "ratio #"),
        (CLANG, OBJCOPY),
    ),
    "forks": Tiny(
        ("benchmarks forks",),
        ("decision 10: 30 forks, median # ms, at most # ms;", "median # kB, at most # kB"),
    ),
    "minari_sets": Tiny(
        ("benchmarks.minari_sets",),
        (
            "# decisions in # episodes: written in # s, # MB;",
            "read back, equal, in # s; at most # GB",
        ),
        imports="minari",
    ),
    "ml_compiler_opt": Tiny(
        ("benchmarks.ml_compiler_opt --help",), ("--source SOURCE --python PYTHON",)
    ),
    "object_hashes": Tiny(
        (
            "benchmarks.object_hashes --run never --save hashes.json",
            "benchmarks.object_hashes --run never --against hashes.json",
        ),
        ("44 hashes in hashes.json", "44 of 44 equal"),
    ),
    "inline_caches": Tiny(
        ("benchmarks.inline_caches --cases 2",),
        (
            "no cache: # instructions a call",
            "1 type, that: # instructions a call",
        ),
        (CLANG,),
    ),
    "labels": Tiny(
        ("benchmarks labels --modules 1 --rounds 1",),
        (
            "1 modules, # labels, 2 workers",
            *(f"{way} # s # labels a second" for way in ("in the worker", "LLVM by itself")),
        ),
    ),
    "project_file": Tiny(
        ("benchmarks.project_file --corpus build/corpora/libsass-Oz",),
        (
            "package linked plain project file model both",
            *(f"libsass-Oz {way} # # % # % # %" for way in ("text", "gc", "icf")),
        ),
        (("ld.lld-22", "lld-22"), ("clang-22", "clang-22")),
    ),
    "linked_sizes": Tiny(
        ("benchmarks.linked_sizes --corpus build/corpora/libsass-Oz",),
        (
            "package linked default inlining-for-size inlining-for-size-derived lld less ours",
            *(f"libsass-Oz {way} # # % # % 0" for way in ("text", "gc", "icf")),
        ),
        (("ld.lld-22", "lld-22"),),
    ),
    "oracle": Tiny(
        ("benchmarks oracle --seconds 0.5 --modules 1",),
        ("scene.cpp: # bytes, found #: #% less; # compilations", "total: # bytes, found #: #%"),
    ),
    "regalloc_baselines": Tiny(("benchmarks regalloc_baselines",), ("all # (# of score 0) # %",)),
    "regalloc_headroom": Tiny(
        ("benchmarks regalloc_headroom --tries 1",),
        (
            "6 modules, # functions that ask, # searched",
            "no spill code at all: #%",
            "the policy that ships: #%",
            "the best of 2 allocations: #%",
        ),
        imports="tensorflow",
    ),
    "regalloc_priority": Tiny(
        ("benchmarks.regalloc_priority SAMPLE --modules 2 --rules 2 --tries 1",),
        (
            "2 modules of 1 packages; the best of the drawn: rule #",
            *(
                f"{way} #%, packages #%, # worse by 1 %, at most #%"
                for way in (
                    "by size, what was split last",
                    "much used ones first",
                    "the best drawn rule",
                    "the best that a search finds",
                    "eviction: the policy that ships",
                    "eviction: the best that a search finds",
                )
            ),
        ),
    ),
    "regalloc_score": Tiny(
        ("benchmarks regalloc_score",),
        (
            "# functions, # policies",
            "within 0.1 %: 1.0000",
            "mlgo_gym improvements: rank correlation 1.0000, signs agree 1.0000; of the",
            "remarks improvements: rank correlation #, signs agree #; of the # of # that change: #",
        ),
        (("clang++-22", "clang-22"), ("llvm-config-22", "llvm-22-dev")),
    ),
    "regalloc_sweep": Tiny(
        ("benchmarks regalloc_sweep --rounds 1",),
        tuple(f"{way} # s # x replay" for way in ("replay", "whole", "environment")),
    ),
    "meters": Tiny(
        (
            "benchmarks.meters counts SAMPLE --busy 1",
            "benchmarks.meters noise SAMPLE --pairs 1",
            "benchmarks.meters layouts SAMPLE --pairs 2 --pool 32",
            "benchmarks.meters overhead SAMPLE json_read.c --rounds 2",
        ),
        (
            "instructions: 1 programs, # equal to the last digit, at most # % apart",
            "cost: 1 programs, # equal to the last digit, at most # % apart",
            "1 pairs of the same program, # of them different at 95 %",
            "json_read.c: an episode # s, valgrind # s: #",
        ),
        (CLANG, ("valgrind", "valgrind")),
    ),
    "estimate": Tiny(
        (
            "benchmarks.estimate SAMPLE --modules 1 --flips 1 --output rows.jsonl",
            "benchmarks.estimate --read rows.jsonl",
        ),
        (
            "# compilations that differ from LLVM's own, out of 4, of 1 modules in 1",
            "in all # [#, #] within packages # [#, #] within modules # [#, #]",
            "same sign: # of #; compiling with the estimate # s, counting # s in the median",
        ),
        (CLANG, ("llvm-profdata-22", "llvm-22"), ("valgrind", "valgrind")),
    ),
    "hotness": Tiny(
        (
            "benchmarks.hotness SAMPLE --counted counted --output hot.jsonl",
            "benchmarks.hotness --read hot.jsonl",
        ),
        (
            "1 programs of 1 packages, against LLVM without a profile LLVM size +0.00 % [+0.00,",
            "LLVM with the profile size # % [#, #] instructions # % [#, #] sample/json # % # %",
            "by share size # % [#, #] instructions # % [#, #] sample/json # % # %",
            "below 5 in cold callers size # % [#, #] instructions # % [#, #] sample/json # % # %",
        ),
        (CLANG, ("llvm-profdata-22", "llvm-22"), ("valgrind", "valgrind")),
    ),
    "runner_latency": Tiny(
        ("benchmarks.latency_model latency", "benchmarks runner_latency --model latency"),
        (
            "TFLite: invoke alone # us # x TFLite's invoke",
            "release: inputs in place # us # x",
            "TensorFlow: SavedModel from Python # us # x",
            "FIFOs round trip: median # us, 99th percentile #",
            "gRPC, Unix socket round trip: median # us, 99th percentile #",
        ),
        imports="tensorflow",
    ),
    "emitted_c": Tiny(
        ("benchmarks.latency_model latency", "benchmarks emitted_c --model latency"),
        ("object # 1.00", "gcc -O3 # #", "clang-22 -O3 # #"),
        needs=(("clang-22", "clang-22"),),
        imports="tensorflow",
    ),
    "scaling": Tiny(
        ("benchmarks scaling",),
        (
            "a policy for each worker: # episodes a second with one worker, # with two: # x; by",
            "batches: # episodes a second with one worker, # with two: # x; by round #, #, #",
        ),
    ),
    "sites": Tiny(
        ("benchmarks sites --rounds 1",),
        (
            "2 modules, # decisions",
            "objects equal with sites: 2; functions of one size with debug information: 2",
            *(f"{way} # s # x plain" for way in ("plain", "names", "sites", "debug information")),
        ),
    ),
    "soak": Tiny(
        ("benchmarks soak --episodes 10",),
        (
            "10 episodes: parent # MiB, worker at most # MiB",
            "parent after episode 1: # %; workers used: #",
            "left over: processes [], FIFO folders [], descriptors #",
        ),
    ),
    "sweep_overhead": Tiny(
        ("benchmarks sweep_overhead --rounds 1",),
        (
            *(f"{way} # s # x plain" for way in ("bare", "plain", "environment")),
            "environment / bare #",
            "a decision costs # us more than none",
        ),
    ),
    "tiers": Tiny(
        ("benchmarks.tiers --seconds 0.1",),
        tuple(
            f"sample/json, {what}: # steps a second"
            for what in (
                "a replay under ski rental",
                "the environment",
                "gymnasium.make",
                "8 in SyncVectorEnv, all together",
                "256 in make_vec, all together",
            )
        ),
    ),
    "worker_start": Tiny(
        ("benchmarks worker_start --rounds 1",),
        (
            "frame_stream.c, medians of 1: in a worker that has compiled it # ms",
            *(
                f"make_vec and reset, {what}, medians of 1, {way}: one # ms, 16 # ms, # times"
                for what in ("modules as drawn", "frame_stream.c")
                for way in ("fork", "anew")
            ),
            "the zygote # MiB, a fork # MiB, one anew # MiB",
        ),
    ),
    "step_time": Tiny(
        ("benchmarks step_time --rounds 1",),
        (
            "a step: # us, least # us of 10 episodes; in the interpreter # us, in the kernel # us",
            "a round trip: # us, least # us of 10 episodes; in the interpreter # us",
        ),
    ),
}
FROM_PYPI = {
    "driver_builds": Tiny(
        ("benchmarks.driver_builds --project lua --rounds 1 --sources sdists",),
        (
            "lua, clang: # s, 1.00 x; of processors # s, 1.00 x; bytes of code: # in 34 objects, "
            "34 of clang's size, # linked",
            "lua, default: # s, # x; of processors # s, # x; bytes of code: # in 34 objects, "
            "34 of clang's size, # linked",
            "lua, inliner: # s, # x; of processors # s, # x; bytes of code: # in 34 objects, "
            "# of clang's size, # linked",
        ),
        (CLANG, ("make", "make")),
    ),
    "project_builds": Tiny(
        ("benchmarks.project_builds --project double-conversion --way local --sources sdists",),
        tuple(f"double-conversion {way} # #% 0 of 9 tests fail" for way in ("plain", "local")),
        (CLANG, ("ld.lld-22", "lld-22"), ("cmake", "cmake"), ("ninja", "ninja-build")),
    ),
    "real_builds": Tiny(
        ("benchmarks real_builds --build Lua",),
        ("Lua, make 34 34 34 68 of 68",),
        (CLANG, OBJCOPY, ("make", "make")),
    ),
}
"""One of the projects of each: others take many minutes, cmake, meson, Debian's archive."""

PARTS = {
    "__init__": "what the package is about",
    "__main__": "runs the others",
    "recipes": "corpora for the others",
    "measuring": "clocks and statistics of the others",
    "latency_model": "the model of runner_latency",
    "debian_source": "for driver_builds and project_builds, from Debian's archive; below",
    "their_environment": "runs in the Python of ml-compiler-opt, with its packages; imported below",
}
"""What is no benchmark of its own, and who runs it."""


def test_none_is_forgotten() -> None:
    found = {each.stem for each in (ROOT / "benchmarks").glob("*.py")}
    assert found == {*TINY, *FROM_PYPI, *PARTS}
    assert RUNS.keys() <= {*TINY, *FROM_PYPI}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With `build/corpora`, in which the benchmarks find tiny ones by the names of large ones."""
    require(*CLANG)
    folder = tmp_path_factory.mktemp("benchmarks")
    corpora = folder / "build" / "corpora"
    corpora.mkdir(parents=True)
    for level in ("Oz", "O3"):
        compilation = Compilation(
            clang=find_clang(), root=SOURCES, flags=("-std=c++17",), opt_level=level
        )
        for name, sources in CORPORA.items():
            build_from_sources(compilation, sources, corpora / name.format(level))
    return folder


def printed(tiny: Tiny, folder: Path, cache: Path) -> str:
    for tool, package in tiny.needs:
        require(tool, package)
    if tiny.imports and not importlib.util.find_spec(tiny.imports):
        lacking(f"needs {tiny.imports}: pip install 'mlgo-gym[train]'")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLGO_CACHE": str(cache)}
    said = ""
    for line in tiny.lines:
        command = [sys.executable, "-m", *line.replace("SAMPLE", str(SAMPLE_CORPUS)).split()]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return " ".join(said.split())


def pattern(says: str) -> str:
    return re.escape(says).replace(r"\#", NUMBER)


def look(tiny: Tiny, said: str) -> None:
    for part in tiny.says:
        assert re.search(pattern(part), said), (part, said)
    assert "nan" not in said.split()


@pytest.mark.e2e
@pytest.mark.parametrize("name", TINY)
def test_it_runs(name: str, folder: Path, tmp_path: Path) -> None:
    look(TINY[name], printed(TINY[name], folder, tmp_path))


@pytest.mark.network
@pytest.mark.parametrize("name", FROM_PYPI)
def test_it_runs_on_what_pypi_has(name: str, tmp_path: Path) -> None:
    look(FROM_PYPI[name], printed(FROM_PYPI[name], tmp_path, tmp_path))


def test_rank_correlations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of changes; what two policies leave alike counts once in each."""
    seconds = {"LLVM": 1.0, "a": 1.3, "b": 1.1, "c": 0.7, "d": 1.0}
    counts = {"LLVM": 100, "a": 120, "b": 110, "c": 90, "d": 100}
    readings = {
        policy: {
            "instructions": {"value": counts[policy]},
            "cost": {"value": 1 / counts[policy]},
            "size": {"value": 100 + counts[policy] % 7},
            "seconds": {"value": seconds[policy]},
        }
        for policy in seconds
    }
    file = tmp_path / "read.json"
    file.write_text(
        json.dumps(
            {"programs": [{"package": "p", "workload": "w", "error": None, "readings": readings}]}
        )
    )
    ranks([file])
    said = capsys.readouterr().out
    assert "instructions with seconds, all: 4 pairs, 1.000\n" in said
    assert "cost         with seconds, programs that differ: 3 pairs, -1.000\n" in said


@pytest.mark.e2e
def test_rank_correlations_of_the_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of changes in number; what makes the default's object is left out."""
    rows = [
        {"package": package, "module": module, "policy": policy, "object": policy}
        | {"estimate": 100 + sign * change, "instructions": 1000 + change}
        | {"compiled_s": 1.0, "counted_s": 2.0}
        for package, module, sign in (("p", "a", 1), ("p", "b", 1), ("q", "c", -1))
        for policy, change in (("default", 0), ("always", 5), ("never", 7), ("other", -9))
    ]
    rows += [{**row, "policy": "same", "object": "default"} for row in rows[::4]]
    (tmp_path / "rows").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    read([tmp_path / "rows"])
    said = " ".join(capsys.readouterr().out.split())
    assert "9 compilations that differ from LLVM's own, out of 12, of 3 modules in 2" in said
    assert "p 1.000 q -1.000 in all" in said
    assert "within packages 0.000 [-1.000, 1.000] within modules 0.000 [-1.000, 1.000]" in said
    assert "same sign: 0.667 of 9; compiling with the estimate 1.00 s, counting 2.00 s" in said


def test_it_can_be_imported_where_it_runs() -> None:
    """In a Python that has little."""
    command = [sys.executable, "-c", "import benchmarks.their_environment"]
    subprocess.run(command, cwd=ROOT, check=True)


def test_a_tree_of_debian_is_the_one_that_was_recorded(tmp_path: Path) -> None:
    tree = tmp_path / "tree.tar.xz"
    tree.write_bytes(b"a tree")
    source = DebianSource("tree=1", tree.name, hashlib.sha256(b"a tree").hexdigest())
    assert fetch_tree(source, tmp_path) == tree
    tree.write_bytes(b"another")
    found = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(RuntimeError) as raised:
        fetch_tree(source, tmp_path)
    assert str(raised.value) == f"{tree}: expected sha256 {source.sha256}, found {found}"
