"""Every module that reads files or texts of others has a fuzz target, or a reason not to."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.targets import TARGETS

ROOT: Final = Path(__file__).parents[2]
READING: Final = frozenset({
    *("read_json", "read_bounded", "parse_json", "open_regular", "read_regular", "small_file"),
    *("read_model_json", "read_arrays", "json_of", "read_bytes", "read_text", "json.loads"),
    *("json.load", "np.load", "np.memmap", "tomllib.loads", "zipfile.ZipFile", "tarfile.open"),
    *("open_zip", "configparser.ConfigParser", "h5py.File", "pq.ParquetFile"),
})  # fmt: skip
"""The functions by which files and texts are taken in."""

FUZZED: Final = {
    "corpus_tools/build.py": "corpus info",
    "corpus_tools/extraction/compile_commands.py": "compilation database",
    "corpus_tools/extraction/embedded.py": "build",
    "corpus_tools/extraction/inputs.py": "response file",
    "corpus_tools/extraction/linker_parameters.py": "aquery",
    "corpus_tools/extraction/static_archive.py": "static archive",
    "corpus_tools/manifest.py": "manifest",
    "corpus_tools/object_file.py": "object",
    "corpus_tools/recipes.py": "recipe",
    "corpus_tools/sdist.py": "tar",
    "corpus_tools/staging.py": "corpus info",
    "corpus_tools/tables.py": "recipe",
    "corpus_tools/workloads.py": "workloads",
    "mlgo_gym/base/_arrays.py": "weights",
    "mlgo_gym/cc/_build_commands.py": "CMake's cache",
    "mlgo_gym/cc/_builds.py": "build",
    "mlgo_gym/cc/_project.py": "record of a project",
    "mlgo_gym/cc/_module_sources.py": "record of sources",
    "mlgo_gym/cc/_project_file.py": "object",
    "mlgo_gym/corpus/_corpus.py": "command",
    "mlgo_gym/corpus/_packages.py": "corpus info",
    "mlgo_gym/datasets/_episodes.py": "dataset",
    "mlgo_gym/datasets/_header.py": "dataset",
    "mlgo_gym/datasets/_parts.py": "dataset",
    "mlgo_gym/lab/bench/_archive.py": "archive of a suite",
    "mlgo_gym/lab/bench/_suite_runs.py": "submission",
    "mlgo_gym/lab/bench/_suite.py": "suite",
    "mlgo_gym/lab/bench/_table.py": "best known values",
    "mlgo_gym/lab/boxes/_described.py": "boxes",
    "mlgo_gym/lab/programs/_profiles.py": "profile",
    "mlgo_gym/lab/tiers/_recording.py": "tiers",
    "mlgo_gym/lab/tuning/_tune.py": "record of a tune",
    "mlgo_gym/llvm/_site.py": "trace",
    "mlgo_gym/model/_card.py": "card",
    "mlgo_gym/model/_freeze.py": "frozen model",
    "mlgo_gym/model/_tflite_reader.py": "graph",
    "mlgo_gym/problems/_vocabulary.py": "vocabulary",
    "mlgo_gym/rollout/_trace.py": "trace",
    "mlgo_gym/search/_corpus_search.py": "record",
    "mlgo_gym/stream/_training_log.py": "log",
    "mlgo_gym/training/_export.py": "network",
    "mlgo_gym/training/_advantage.py": "configuration",
    "mlgo_gym/training/_run.py": "checkpoint",
}
"""The module, and a target that reads through it."""

_OWN: Final = "files that this process, or a child of it, has just written"
_PIPE: Final = "what the other end of a worker's pipe, which is ours, has said"
_BYTES: Final = "bytes for a digest, a copy or LLVM, which looks at them in a worker"
_SHIPPED: Final = "files of the package"
_READERS: Final = "the functions by which others read"

ELSEWHERE: Final = {
    "corpus_tools/allowed/driver.py": _SHIPPED,
    "corpus_tools/allowed/llvm.py": _SHIPPED,
    "corpus_tools/extraction/as_llvm.py": "'compilation database' and 'aquery'",
    "corpus_tools/extraction/recompile.py": _OWN,
    "corpus_tools/guardian.py": "what the system says of processes, and numbers from its parent",
    "corpus_tools/make.py": _BYTES,
    "corpus_tools/reading.py": _READERS,
    "corpus_tools/replay.py": _OWN,
    "mlgo_gym/base/_files.py": _READERS,
    "mlgo_gym/base/_tensor_spec.py": "specs in headers: 'log', 'trace' and 'dataset'",
    "mlgo_gym/cc/_kept.py": "files under a checksum, in a folder that others cannot write to",
    "mlgo_gym/cc/_prepare.py": _OWN,
    "mlgo_gym/cc/_traces.py": _OWN,
    "mlgo_gym/cli/_models.py": "'card'",
    "mlgo_gym/cli/_serve.py": _BYTES,
    "mlgo_gym/lab/insight/_source.py": "lines of text, to be shown",
    "mlgo_gym/cli/dataset/_record.py": _BYTES,
    "mlgo_gym/cli/options.py": _BYTES,
    "mlgo_gym/cli/show/_page.py": _SHIPPED,
    "mlgo_gym/cli/show/_output.py": "JSON that it has made itself",
    "mlgo_gym/curation/_building.py": _BYTES,
    "mlgo_gym/curation/_verification.py": _BYTES,
    "mlgo_gym/datasets/_minari.py": "tests/datasets/test_minari.py damages sets; h5py reads them",
    "mlgo_gym/lab/boxes/_image.py": _OWN,
    "mlgo_gym/lab/boxes/_boxed_program.py": _OWN,
    "mlgo_gym/lab/boxes/_tracing.py": "what the system says of a process",
    "mlgo_gym/lab/cluster/_ray_worker.py": _BYTES,
    "mlgo_gym/lab/programs/_meters.py": _OWN,
    "mlgo_gym/lab/programs/_collect.py": _BYTES,
    "mlgo_gym/lab/programs/_measures.py": _OWN,
    "mlgo_gym/lab/programs/_workload_check.py": _BYTES,
    "mlgo_gym/lab/programs/_program.py": _OWN,
    "mlgo_gym/lab/programs/commands/workload/_run.py": _OWN,
    "mlgo_gym/lab/tiers/_host.py": _PIPE,
    "mlgo_gym/lab/tiers/_jit_program.py": _PIPE,
    "mlgo_gym/lab/tuning/commands/_distill.py": _OWN,
    "mlgo_gym/llvm/_request.py": _PIPE,
    "mlgo_gym/llvm/worker/_answers.py": _PIPE,
    "mlgo_gym/llvm/worker/_besides.py": _PIPE,
    "mlgo_gym/llvm/worker/_child.py": _PIPE,
    "mlgo_gym/llvm/worker/_zygote_child.py": _PIPE,
    "mlgo_gym/runners/_interpreter.py": "'graph'",
    "mlgo_gym/runners/_load.py": _BYTES,
    "mlgo_gym/runners/_model_runners.py": "'output spec'",
    "mlgo_gym/testing/_executor.py": _OWN,
    "mlgo_gym/testing/_measure.py": _OWN,
    "mlgo_gym/training/_start.py": "tests/training/test_kept_contexts.py damages one",
    "mlgo_gym/training/_train.py": "words of a command line",
}
"""Modules without a target, and why."""


ARCHIVES: Final = frozenset({"zipfile.ZipFile", "tarfile.open", "np.load"})
"""What unpacks as much as an archive says, or more."""

UNPACKING: Final = {
    "corpus_tools/sdist.py": "a recipe has its hash",
    "mlgo_gym/base/_arrays.py": "the functions by which others read",
}
"""The modules that read by one of these, and why."""


def reads(code: str) -> bool:
    """Whether code calls one of these functions."""
    calls = (node.func for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    for each in calls:
        name = ast.unparse(each)
        if name in READING or name.rpartition(".")[2] in READING:
            return True
    return False


def files_that(fits: Callable[[str], bool]) -> set[str]:
    """The files of the packages whose code fits."""
    return {
        str(path.relative_to(ROOT))
        for top in ("corpus_tools", "mlgo_gym")
        for path in (ROOT / top).rglob("*.py")
        if fits(path.read_text(encoding="utf-8"))
    }


def test_every_reader_is_fuzzed() -> None:
    """A new one gets a row, in `FUZZED` or, with a reason, in `ELSEWHERE`."""
    found = files_that(reads)
    assert not FUZZED.keys() & ELSEWHERE.keys()
    assert found == FUZZED.keys() | ELSEWHERE.keys()
    assert set(FUZZED.values()) <= set(TARGETS)


def unpacks(code: str) -> bool:
    """Whether code reads an archive, and not by `open_zip` or `read_arrays`."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return any(
        ast.unparse(each.func) in ARCHIVES
        and not any(ast.unparse(given) == "'w'" for given in _arguments(each))
        for each in calls
    )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def test_archives_are_read_in_one_place() -> None:
    found = files_that(unpacks)
    assert found == UNPACKING.keys()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("read_json(path, 1)", True),
        ("self._run.read_json(name)", True),
        ("json.loads(text)", True),
        ("json.dumps(value)", False),
        ("loads(text)", False),
        ("path.read_text()", True),
    ],
)
def test_what_counts_as_reading(code: str, expected: bool) -> None:
    assert reads(code) == expected
