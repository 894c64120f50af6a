"""The page of bounds, beside the bounds; that they hold is tested where things are read."""

from __future__ import annotations

import re
from pathlib import Path

from corpus_tools import (
    clang,
    launcher,
    object_file,
    package_index,
    profdata,
    reading,
    recipes,
    sdist,
    tables,
    workloads,
)
from corpus_tools.extraction import inputs, static_archive
from mlgo_gym.base import _arrays as arrays
from mlgo_gym.base import _remote as remote
from mlgo_gym.base import _tensor_spec as tensor_spec
from mlgo_gym.cc import _builds, _kept, _prepare, _project, _traces
from mlgo_gym.cli import options as _options
from mlgo_gym.corpus import _corpus
from mlgo_gym.curation import _building
from mlgo_gym.datasets import _episodes, _parts
from mlgo_gym.lab.bench import _archive, _suite
from mlgo_gym.lab.bench import _suite_runs as _run_of_bench
from mlgo_gym.lab.boxes import _box, _described, _tracing
from mlgo_gym.lab.cluster import _cluster, _ray_executor
from mlgo_gym.lab.cluster import _ray_worker as scale_worker
from mlgo_gym.lab.insight import _source, _timeline
from mlgo_gym.lab.programs import _profiles, _running
from mlgo_gym.lab.tiers import _recording
from mlgo_gym.lab.tuning import _seed_vocabulary, _tune
from mlgo_gym.llvm import _compiler as llvm_compiler
from mlgo_gym.llvm import _limits, _request, _site
from mlgo_gym.llvm import _worker_process as _worker
from mlgo_gym.model import (
    _card,
    _elementwise,
    _freeze,
    _graph,
    _model,
    _reductions,
    _tflite_reader,
)
from mlgo_gym.problems import _vocabulary
from mlgo_gym.rollout import _trace
from mlgo_gym.runners import _interactive, _interpreter, _load
from mlgo_gym.runners.grpc import _wire
from mlgo_gym.search import _corpus_search
from mlgo_gym.stream import _training_log
from mlgo_gym.training import _export, _networks, _run, _start

LIMITS = _wire.StreamLimits()
PROGRAM = workloads.Workload(name="", folder=Path(), about="", stdout_sha256="")
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "bounds.md"

BYTES = {
    "a module of a corpus": _corpus._MAX_MODULE_BYTES,
    "an object file, before bitcode is taken out of it": object_file.LARGEST_BYTES,
    "the names of a static archive's members, all together": static_archive.LARGEST_NAMES,
    "the unpacked members of an archive of sources, all together": sdist.MAX_UNPACKED_BYTES,
    "an ELF file of a build whose sizes are compared": _builds.MAX_BYTES,
    "a command, a list or a manifest": reading.LARGEST_TEXT_BYTES,
    "a recipe": recipes._LARGEST_BYTES,
    "a description of workloads": workloads.LARGEST_BYTES,
    "the memory of a workload's program, unless its description has another (2 GiB more under "
    "valgrind, a quarter of one while it is profiled)": PROGRAM.memory_mib << 20,
    "the output of a workload's program and the files that it writes, each, and all "
    "together": _running.MOST_BYTES,
    "a file that a workload's program reads": workloads.MOST_INPUT_BYTES,
    "a profile of programs": _profiles.LARGEST_BYTES,
    "the hashes of a benchmark's suite": _suite._MAX_SUMS_BYTES,
    "what describes a benchmark's suite, and the best known values": _suite._MAX_JSON_BYTES,
    "a file of a suite": _suite.MAX_FILE_BYTES,
    "a suite's unpacked archive": _archive.MAX_BYTES,
    "a submission, packed or unpacked": _run_of_bench._MAX_BYTES,
    "the card of a submission": _run_of_bench._MAX_CARD_BYTES,
    "a recording of tiers": _recording._LARGEST_BYTES,
    "the arrays of a recording of tiers": _recording._LARGEST_ARRAYS,
    "the description of a program in a recording of tiers, as JSON": _recording._LARGEST_ABOUT,
    "the list of calls that are boxed": _described._LARGEST_BYTES,
    "a program that is saved with boxes": _described._LARGEST_PROGRAM,
    "what LLVM's tools make of a profile, or of a module with one": profdata.LARGEST_OUTPUT_BYTES,
    "the memory of LLVM's tools for profiles": profdata.MEMORY_BYTES,
    "a tensor, by its spec (less than that)": tensor_spec._MAX_BYTES,
    "a vocabulary of IR2Vec": _vocabulary.MAX_BYTES,
    "the triplets that `llvm-ir2vec` prints of a module": _seed_vocabulary.MAX_OUTPUT_BYTES,
    "a line of JSON in a training log or on a channel": _training_log.MAX_LINE_BYTES,
    "an observation in a training log or on a channel, or a score": (
        _training_log.MAX_OBSERVATION_BYTES
    ),
    "the header of a trace": _trace._MAX_HEADER_BYTES,
    "the observations of one episode of a log or dataset": _episodes.MAX_EPISODE_BYTES,
    "the arrays of one episode of a set of Minari": _episodes.MAX_ARRAY_BYTES,
    "a text of the metadata of a part of a dataset, or of a set of Minari": _parts.MAX_TEXT_BYTES,
    "a row group of a part, as far as it is read, by its metadata": _parts.MAX_GROUP_BYTES,
    "the tensors of a trace": _trace._MAX_BODY_BYTES,
    "the sites of a trace": _site.MAX_SITES_LENGTH,
    "one of them": _site.MAX_SITE_LENGTH,
    "a message of a gRPC host, unless told otherwise": _wire.DEFAULT_MAX_MESSAGE_BYTES,
    "a message of a gRPC client that is not an observation": _wire.MAX_HEADER_BYTES,
    "a graph under training, in a child process": _interpreter.MAX_GRAPH_BYTES,
    "all inputs, or all outputs, of such a graph": _interpreter.MAX_TENSORS_BYTES,
    "the memory of the process of a graph under training": _interpreter.MEMORY_BYTES,
    "what one stream sends to a gRPC host, unless told otherwise": LIMITS.total_bytes,
    "the answers of a folder of traces, for `mlgo-cc`": _traces.MAX_BYTES,
    "a token or certificate that an option names": _options.MAX_SMALL_FILE_BYTES,
    "a source file that `explain --source` shows": _source.MAX_SOURCE_BYTES,
    "a request of a worker, as JSON": _request.MAX_JSON_BYTES,
    "a model, as `model.tflite`": _tflite_reader.MAX_FILE_BYTES,
    "the constants of a model": _elementwise.MAX_CONSTANT_BYTES,
    "the intermediate results of a model": _elementwise.MAX_STACK_BYTES,
    "all inputs, or all outputs, of a model": _elementwise.MAX_PORT_BYTES,
    "the memory of the worker that compiles a model": _model._MEMORY_BYTES,
    "the object of a frozen model": _freeze._MAX_OBJECT_BYTES,
    "a file of a model that `mlgo-cc` is given": _kept._MAX_MODEL_FILE_BYTES,
    "`mlgo-cc`'s log of kept objects": _builds.MAX_LOG_BYTES,
    "a file of the compiler driver's cache": _kept.MAX_KEPT_BYTES,
    "an output specification, a card or another JSON file of a model": _card._MAX_BYTES,
    "the weights in a model directory": _export._MAX_WEIGHTS_BYTES,
    "a file of a training run": _run._MAX_BYTES,
    "a JSON file of a training run": _run._MAX_JSON_BYTES,
    "a record of a corpus search": _corpus_search._MAX_RECORD_BYTES,
    "contexts that a training keeps": _start.MAX_BYTES,
    "the file of a tune about its project": _project._MAX_BYTES,
    "the scores of a tune, and a model that it has scored": _tune.MAX_BYTES,
    "the archive of sources, and the bitcode of one, that go to nodes and back": (
        _building._MAX_BYTES
    ),
    "the files of a model that goes to the nodes of a cluster": _load.MAX_SENT_BYTES,
    "modules that are kept on a cluster for another round": _ray_executor.STORED_BYTES,
    "a folder that is copied from a URI": remote.MAX_BYTES,
    "what must stay free where it is (at least)": remote.SPARE_BYTES,
    "what must be free in the temporary folder of a cluster's node (at least)": (
        scale_worker.FREE_BYTES
    ),
    "a worker's memory at any time, and that of `llvm-ir2vec`, unless told otherwise "
    "(`MLGO_MEMORY`)": _limits.DEFAULT_PEAK_BYTES,
    "a worker's memory, unless told otherwise: after a compilation another takes its place": (
        llvm_compiler.DEFAULT_MEMORY_LIMIT_BYTES
    ),
}
NUMBERS = {
    "arrays of a file": arrays.MOST_ARRAYS,
    "files and folders that a workload's program makes": _running.MOST_NAMES,
    "levels of folders that a workload's program makes": _running.MOST_LEVELS,
    "threads of a workload's program at once": _running.MOST_THREADS,
    "open files of a workload's program": launcher._MOST_DESCRIPTORS,
    "functions of a program whose tiers are recorded": _recording._MOST_FUNCTIONS,
    "events of a program whose tiers are recorded": _recording.MOST_EVENTS,
    "characters of a text of a suite or of a submission's card": _suite._MAX_TEXT,
    "files of a suite's archive": _archive._MAX_FILES,
    "levels of folders in a suite's archive": _archive._MAX_LEVELS,
    "files of a submission": _run_of_bench._MAX_FILES,
    "decisions on a recording": _run_of_bench._MAX_DECISIONS,
    "functions of a program that is boxed": _tracing.MOST_FUNCTIONS,
    "instructions of a boxed call that are counted": _box.MOST_STEPS,
    "decisions that `--timeline` draws": _timeline.MOST_DECISIONS,
    "files and folders of an archive of sources": sdist.MAX_MEMBERS,
    "levels of folders in an archive of sources": sdist.MAX_LEVELS,
    "tensors of an observation, by a header": _training_log.MAX_FEATURES,
    "dimensions of a tensor, by its spec": tensor_spec._MAX_DIMENSIONS,
    "characters of a tensor's name": tensor_spec._MAX_NAME_LENGTH,
    "numbers of one vector of a vocabulary": _vocabulary.MAX_DIMENSION,
    "elements of one list of a part's metadata": _parts.MAX_LIST_LENGTH,
    "characters of a dataset's settings": _episodes.MAX_SETTINGS_LENGTH,
    "characters of the sites of an episode of a dataset": _site.MAX_SITES_LENGTH,
    "characters of one site of a dataset": _site.MAX_SITE_LENGTH,
    "layers of a network, by its configuration": _networks.MOST_LAYERS,
    "weights of a network, by its configuration (of one that is read: as many as its file "
    "has)": _networks._MOST_WEIGHTS,
    "levels of JSON": reading.MAX_LEVELS,
    "values of JSON, of which an object counts as five, and a comma in a text as "
    "one": reading.MAX_VALUES,
    "arguments that the response files of a build add": inputs._MOST_OF_ALL,
    "characters that they add": inputs._MOST_CHARACTERS,
    "dots in a line of TOML, outside of strings": tables.MOST_DOTS,
    "patterns of a workload's modules that have wildcards": workloads.MOST_GLOBS,
    "digits of a whole number of JSON": reading.MAX_DIGITS,
    "problems that LLVM asks about in one compilation": _request.MAX_CHANNELS,
    "arguments of one command": inputs._MOST_ARGUMENTS,
    "response files, one in another": inputs._DEEPEST_RESPONSE_FILE,
    "dimensions of a tensor in such a message": _wire._MAX_DIMENSIONS,
    "outputs of one of a model's dense layers": _reductions._MAX_OUTPUTS,
    "elements of a model's tensor": _graph.MAX_ELEMENTS,
    "dimensions of a model's tensor": _graph.MAX_RANK,
    "messages of one stream to a gRPC host, unless told otherwise": LIMITS.messages,
    "contexts of one stream to a gRPC host, unless told otherwise": LIMITS.contexts,
    "streams that a gRPC host serves at once, unless told otherwise": LIMITS.streams,
    "tables of a model's file": _tflite_reader.MAX_TABLES,
    "inputs and outputs of a model's operators, all together": _tflite_reader.MAX_OPERANDS,
    "lines of LLVM IR, or of C, that a model is lowered to": _elementwise.MAX_LINES,
    "the answers of such a folder for one module": _traces.MAX_ANSWERS,
    "files of a folder that is copied from a URI": remote.MAX_FILES,
    "instructions of a lowered model in one evaluation": _elementwise.MAX_INSTRUCTIONS,
}
SECONDS = {
    "LLVM's part of one compilation, unless told otherwise": llvm_compiler.DEFAULT_TIMEOUT_S,
    "the time of a workload's program, unless its description has another (a hundred times as "
    "long under valgrind, twenty times while it is profiled)": PROGRAM.timeout_s,
    "the start of a worker": _worker._START_TIMEOUT_S,
    "the CPU of one request of a worker, beyond twice its deadline": _limits._GRACE_S,
    "a model's way to native code, unless told otherwise": _model.DEFAULT_TIMEOUT_S,
    "TFLite in a child process, to load a graph or to evaluate it once": (
        _interpreter.DEFAULT_TIMEOUT_S
    ),
    "the linker of a frozen model": _freeze._LINK_TIMEOUT_S,
    "the other end of a channel, unless told otherwise": (_interactive.DEFAULT_DEADLINE_S),
    "the header of a stream to a gRPC host, unless told otherwise": LIMITS.header_s,
    "the next word of such a stream, unless told otherwise": LIMITS.idle_s,
    "clang, for one command of a corpus": clang.DEADLINE_S,
    "the compiler that makes the compiler driver, or a policy for it": _prepare._TIMEOUT_S,
    "an address of a Ray cluster": _cluster.ANSWER_S,
    "a free CPU of a cluster, unless told otherwise": _cluster.WAIT_S,
    "a connection to S3": remote.CONNECT_S,
    "more of an object of S3": remote.READ_S,
    "the nodes of a cluster, asked what they run": _cluster.NODES_ANSWER_S,
    "pip, asked for its settings": package_index.PIP_DEADLINE_S,
    "`llvm-ir2vec`, asked for its version and names": _seed_vocabulary.DEADLINE_S,
    "another process that writes to the compiler driver's cache, unless told otherwise": (
        _interactive.DEFAULT_DEADLINE_S
    ),
}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1}


def test_the_page_has_the_bounds() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| (\d[^|]*) \|$", PAGE.read_text(), re.MULTILINE))
    sizes = {name: text.split() for name, text in rows.items() if " " in text}
    found = {name: int(number) * UNITS[unit] for name, (number, unit) in sizes.items()}
    assert found == BYTES | SECONDS
    numbers = {name: int(text.replace(",", "")) for name, text in rows.items() if " " not in text}
    assert numbers == NUMBERS


def test_models_that_ship() -> None:
    for path in sorted((ROOT / "models").glob("*/model.tflite")):
        text, count = _model.lower_and_count(_tflite_reader.read_tflite(path), "f")
        size = f"{path.stat().st_size / 1000:.0f}"
        numbers = (size, f"{len(text.splitlines()):,}", f"{count:,}")
        assert f"| `{path.parent.name}` | {' | '.join(numbers)} |" in PAGE.read_text()


def test_bounds_that_other_pages_name() -> None:
    page = " ".join((PAGE.parent / "native.md").read_text().split())
    files, constants, stack, ports = (
        each >> 20
        for each in (
            _tflite_reader.MAX_FILE_BYTES,
            _elementwise.MAX_CONSTANT_BYTES,
            _elementwise.MAX_STACK_BYTES,
            _elementwise.MAX_PORT_BYTES,
        )
    )
    limits = (
        f"files of {files} MiB, weights of {constants} MiB, {stack} MiB of intermediate results, "
        f"{ports} MiB of inputs or outputs, and {_elementwise.MAX_INSTRUCTIONS:,} instructions"
    )
    assert limits in page
    assert f"of more than {_model.LONG_INSTRUCTIONS:,} instructions lets" in page
    assert f"fixed shapes of up to {_graph.MAX_RANK} dimensions" in page
