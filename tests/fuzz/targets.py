"""What reads files that anybody may have written: one row for each reader.

A row says which files are sound, where a file lies when it is read, and what the reader is.
Whatever the file holds, the reader takes it or raises one of the project's own errors, which names
it.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpus_tools import load_recipe
from corpus_tools.errors import CorpusToolsError
from corpus_tools.extraction.compile_commands import list_compile_commands
from corpus_tools.extraction.inputs import expand_response_files
from corpus_tools.extraction.linker_parameters import list_aquery, list_parameters
from corpus_tools.extraction.static_archive import list_archive
from corpus_tools.manifest import MANIFEST_NAME, Manifest, read_command, read_description
from corpus_tools.object_file import ObjectFile
from corpus_tools.object_file import read_bounded as read_object
from corpus_tools.sdist import unpack_sdist
from corpus_tools.workloads import DESCRIPTION, load_workloads, shipped_workloads
from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.cc._build_commands import build_commands
from mlgo_gym.cc._builds import read_build, read_kept_log
from mlgo_gym.cc._module_sources import Sources
from mlgo_gym.cc._project import open_project
from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._packages import Packages, join_corpora
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._logs import open_recording
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import (
    CompilationError,
    InputError,
    OptionsError,
    TraceError,
    WorkloadError,
)
from mlgo_gym.lab.bench import Submission, Suite
from mlgo_gym.lab.bench._archive import make_suite, pack, unpack
from mlgo_gym.lab.bench._suite import read_sums, sums_text
from mlgo_gym.lab.bench._table import known_best
from mlgo_gym.lab.boxes._described import saved
from mlgo_gym.lab.programs._profiles import ProfileFile
from mlgo_gym.lab.tiers import SAMPLE_RECORDING, Recording, oracle_s, played, schedule_named
from mlgo_gym.lab.tuning._tune import TuneSetting, Tuning
from mlgo_gym.llvm import embedded_version
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._site import Call, Site
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.model import find_model
from mlgo_gym.model._card import parse_output_spec, read_card, read_model_json
from mlgo_gym.model._freeze import load_frozen
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._vocabulary import Vocabulary
from mlgo_gym.rollout._linked_text import LinkedTextIcf
from mlgo_gym.rollout._replay import options_of_trace, problem_of
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.search._corpus_search import _Record
from mlgo_gym.stream._training_log import Header, StreamDecoder, TrainingLogWriter
from tests.datasets.samples import episode, source
from tests.fuzz import mutators
from tests.model import mutated

OWN = (InputError, CompilationError, CorpusToolsError)
HASH = "0123456789abcdef" * 4


def _nothing(_: Path) -> None:
    """Nothing stands around the file."""


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        name: what the file is called when it is read.
        seeds: sound files, made or read when they are asked for.
        read: the reader, given the file's path.
        mutate: makes another file out of a sound one.
        around: makes what stands around the file, in its folder.
        names_it: an error says the file's name; not so where there is no file.
        whole: how many inputs a whole run tries.
        memory_bytes: how much more than before it may take.
        slow_s: how long of the CPU.
        may_abort: it is a library's, which may abort the process over a damaged file.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]
    mutate: mutators.Mutator = mutators.of_bytes
    around: Callable[[Path], None] = field(default=_nothing)
    names_it: bool = True
    whole: int = 50_000
    memory_bytes: int = 512 << 20
    slow_s: float = 1.0
    may_abort: bool = False


def _as_json(*values: Any) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(value).encode() for value in values]


def _of_file(path: Path) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes()]


def _trace() -> list[bytes]:
    spec = InliningForSize.advice
    made = Trace(
        module="m",
        module_sha256=HASH,
        settings=CompileOptions().settings() | InliningForSize().settings(),
        llvm_version="22.1.0",
        advice_spec=spec,
        advice=spec.encode(1) + spec.encode(0),
        object_sha256=HASH,
        text_size_bytes=12,
        features=InliningForSize().layout.specs,
        observations=bytes(2 * sum(each.size_bytes for each in InliningForSize().layout.specs)),
    )
    call = Call(1, "f", 0, "f.c", 3, 4)
    return [made.to_bytes(), replace(made, sites=2 * (Site("f", "g", (call,)),)).to_bytes()]


def _changed_trace(random: np.random.Generator, data: bytes) -> bytes:
    """A header that says something else, under a hash that is right."""
    if random.random() < 0.2:
        return mutators.of_bytes(random, data)
    line, _, rest = data.partition(b"\n")
    changed = mutators.of_json(random, line).replace(b"\n", b" ") + b"\n" + rest[:-32]
    return changed + hashlib.sha256(changed).digest()


def _read_trace(path: Path) -> None:
    """What has been read is called by its module's name."""
    trace = Trace.load(path)
    try:
        problem_of(trace)
        options_of_trace(trace)
        trace.actions()
    except TraceError as error:
        if error.trace != trace.module:
            raise AssertionError(f"{path.name}: an error of {error.trace!r}") from error
        raise TraceError(path.name, str(error)) from error


def _log() -> list[bytes]:
    file = io.BytesIO()
    features = (*RegallocPriority().layout.specs, RegallocPriority.advice)
    writer = TrainingLogWriter(file, Header(features, TensorSpec("reward", "float", (1,))))
    size = sum(spec.size_bytes for spec in features)
    for context in ("main", "f"):
        writer.start_context(context)
        for number in range(2):
            writer.log_observation(bytes([number]) * size)
            writer.log_outcome(number)
    return [file.getvalue()]


def _decode(path: Path) -> None:
    """As a channel does, in pieces that end anywhere."""
    data, decoder = path.read_bytes(), StreamDecoder()
    step = 1 + len(data) % 97
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while decoder.next_event() is not None:
            pass


def _dataset() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        with DatasetWriter(folder, DatasetHeader.of(RegallocPriority(), "22.1.0")) as writer:
            for number in range(2):
                made = source(number)
                writer.add(made, [episode(made, 3, seed=number, problem=RegallocPriority())])
        return [path.read_bytes() for path in Path(folder).glob("*.parquet")]


def _read_dataset(path: Path) -> None:
    dataset = Dataset.open(path)
    for each in dataset.episodes():
        len(each)
    dataset.modules  # noqa: B018 - reading it is the test


MANIFEST = {"modules": ["m"], "has_thinlto": False, "global_command_override": ["-cc1", "-O2"]}


def _corpus(folder: Path) -> None:
    (folder / "m.bc").write_bytes(b"BC")
    if not (folder / MANIFEST_NAME).exists():
        (folder / MANIFEST_NAME).write_text('{"modules": ["m"], "has_thinlto": false}')


def _sources(folder: Path) -> None:
    shutil.copytree(
        shipped_workloads("lupa"),
        folder,
        ignore=shutil.ignore_patterns(DESCRIPTION),
        dirs_exist_ok=True,
    )


def _module(folder: Path) -> None:
    (folder / "m.bc").write_bytes(b"BC")


def _read_corpus(path: Path) -> None:
    read_description(path)
    Manifest.read(path.parent)
    corpus = Corpus.load(path.parent, allow_thinlto=True)
    for name in corpus:
        corpus[name]


def _read_command(path: Path) -> None:
    read_command(path)
    Module.from_file(path.with_suffix(".bc"))


def _model(folder: Path) -> None:
    shipped = Path(find_model("inlining-for-size"))
    for name in ("model.tflite", "output_spec.json", "card.json"):
        shutil.copyfile(shipped / name, folder / name)


def _object_beside(folder: Path) -> None:
    (folder / "it.o").write_bytes(b"object")


def _read_output_spec(path: Path) -> None:
    parse_output_spec(read_model_json(path, str(path)), str(path))


@dataclass(frozen=True)
class _Config:
    seed: int = 1


def _training(folder: Path) -> Any:
    from mlgo_gym.training._run import TrainingRun  # noqa: PLC0415 - it loads TensorFlow

    return TrainingRun(folder, "x", InliningForSize(), _Config())


def _run(folder: Path) -> None:
    with _training(folder) as run:
        run.save(1, {"a": np.zeros(3)}, {"b": 2})
        (folder / "progress.jsonl").write_text('{"step": 1, "spent_s": 12.5}\n')


def _read_run(path: Path) -> None:
    _training(path.parent).restore()


def _of_run(name: str) -> Callable[[], list[bytes]]:
    def made() -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            _run(Path(folder))
            return [(Path(folder) / name).read_bytes()]

    return made


RECORD = {
    "default_size_bytes": 10,
    "size_bytes": 9,
    "compilations": 3,
    "spent_s": 1.5,
    "default_score": 10.0,
    "score": 9.0,
    "wrong": 0,
    "choice": {
        "base": "default",
        "limits": [None, 1, None, 2, None, 3],
        "flips": [["call", "00ff", 1]],
    },
}


def _read_record(path: Path) -> None:
    _Record(path, path.with_suffix(".trace"), "m", {}).read()


def _network(folder: Path) -> None:
    shipped = Path(find_model("inlining-for-size"))
    for name in ("network.json", "weights.npz"):
        if not (folder / name).exists():
            shutil.copyfile(shipped / name, folder / name)


def _read_network(path: Path) -> None:
    from mlgo_gym.training import load_network  # noqa: PLC0415 - it loads TensorFlow

    load_network(path.parent)


SOURCES = {
    "files": ["/b/f.c", "/b/f.h"],
    "modules": {"f.o": {"command": 64 * "0", "reads": [0, 1], "stamp": 64 * "1"}},
}
PROJECT = {
    "build": "/b",
    "targets": {"t": ["m"]},
    "failures": ["x: no"],
    "exported": ["t"],
    "objects": {"m": "m.o"},
    "others": ["/b/x.o"],
}


def _project(folder: Path) -> None:
    (folder / "corpus").mkdir()
    _corpus(folder / "corpus")


SCORES: Final[dict[str, Any]] = {
    "models": {},
    "spent_s": 1.5,
    "modules": [
        {
            "package": "",
            "module": "m",
            "language": "C",
            "llvm_version": "22.1.0",
            "module_sha256": HASH,
            "errors": ["no"],
            "decisions": {"LLVM": 2},
            "settings": {"opt_level": "Oz"},
            "code": {"LLVM": {"text_bytes": 10, "comdat_bytes": {"f": 3}}},
        }
    ],
}
TUNE: Final[dict[str, Any]] = {
    "models": [],
    "models_sha256": [],
    "llvm_version": "",
    "problem": {},
    "seed": 0,
    "settings": [],
    "corpus": {},
    "trainer": ["batches=1"],
    "trained": {"budget_s": 2.0, "spent_s": 1.0, "validation": {}},
}


def _tuning(folder: Path) -> Tuning:
    corpus = Packages.of({"": Corpus.load(SAMPLE_CORPUS).only(["bignum.c"])})
    return Tuning(folder, corpus, TuneSetting((), InliningForSize(), 1.0))


def _read_tune(path: Path) -> None:
    _tuning(path.parent)._state()


def _read_scores(path: Path) -> None:
    _tuning(path.parent)._scoring(_tuning(path.parent).packages).scores("start", {}, "")


BOXES: Final[dict[str, Any]] = {
    "version": 1,
    "llvm": embedded_version(),
    "opt_level": None,
    "program_sha256": hashlib.sha256(b"program").hexdigest(),
    "headers": {"f": "define i32 @f()"},
    "boxes": [{"module": "m", "function": "f", "call": 0, "effects": HASH}],
}


def _read_boxes(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        _corpus(Path(folder))
        own = Path(folder, "workloads")
        own.mkdir()
        (own / "program").write_bytes(b"program")
        (own / DESCRIPTION).write_text(
            f'[workload.w]\nmodules = ["*"]\nabout = "x"\nstdout_sha256 = "{HASH}"\n'
        )
        path.rename(own / path.name)
        try:
            saved(Path(folder))
        except InputError as error:  # it names the folder, which is this one's
            raise WorkloadError(f"{path.name}: {error}") from error


BEST: Final[dict[str, Any]] = {
    "version": 1,
    "suite_sha256": HASH,
    "values": {"plain": {"lz4": {"icf": 1.5}}},
}
CACHE = b"""CMAKE_HOME_DIRECTORY:INTERNAL=/s
CMAKE_GENERATOR:INTERNAL=Ninja
CMAKE_BUILD_TYPE:STRING=MinSizeRel
X:BOOL=ON
"""
MESON = b"""[options]
buildtype = minsize

[properties]
cross_file = ['x']
"""


PROFILE = b"\xfflprofi\x81" + (1 << 56 | 12).to_bytes(8, "little") + bytes(64)


def _read_cache(path: Path) -> None:
    build_commands(path.parent, None, initial_cache=path.with_name("settings.cmake"))


def _read_meson(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name in ("meson-private", "meson-info"):
            Path(folder, name).mkdir()
        path.rename(Path(folder, "meson-private", path.name))
        info, own = Path(folder, "meson-info"), [{"name": "c_args", "value": ["-Oz"]}]
        (info / "meson-info.json").write_text('{"directories": {"source": "/s"}}')
        (info / "intro-buildoptions.json").write_text(json.dumps(own))
        try:
            build_commands(Path(folder), None)
        except InputError as error:
            raise OptionsError(f"{path.name}: {error}") from error


COMMANDS = [
    {"directory": "/", "file": "a.c", "command": "clang -c a.c -o a.o"},
    {"directory": ".", "file": "b.c", "arguments": ["clang", "-c", "b.c"], "output": "b.o"},
]
LINKS = {
    "actions": [
        {
            "mnemonic": "CppLink",
            "arguments": ["ld", "@a.params", "b.o", "c.a"],
            "paramFiles": [{"execPath": "a.params", "arguments": ["a.o"]}],
        }
    ]
}


def _tar() -> list[bytes]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, link in (
            ("p-1", tarfile.DIRTYPE, ""),
            ("p-1/a.c", tarfile.REGTYPE, ""),
            ("p-1/b.c", tarfile.SYMTYPE, "a.c"),
            ("p-1/c.c", tarfile.LNKTYPE, "p-1/a.c"),
            (f"p-1/{'é' * 99}", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            member.pax_headers = {"comment": "x"}
            tar.addfile(member, io.BytesIO(b"int;"[: member.size]))
    return [file.getvalue()]


def _zip() -> list[bytes]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("p-1/a.c", "int a;" * 9)
        archive.writestr("p-1/b/", "")
        archive.writestr("p-1/b/c.c", "int c;")
    return [file.getvalue()]


def _unpack(path: Path) -> None:
    """Nothing is left but the archive, or a package beside it."""
    inside = path.parent / "inside"
    inside.mkdir(exist_ok=True)
    try:
        unpack_sdist(path, inside)
    finally:
        there = {each.name for each in path.parent.iterdir()}
        shutil.rmtree(inside)
        if there != {path.name, "inside"}:
            raise AssertionError(f"{path.name}: left {sorted(there)}")


FROZEN = {
    "format": "mlgo-gym native model",
    "version": 1,
    "name": "m",
    "inputs": [{"tensor": "x", "spec": json.loads(InliningForSize.advice.to_json())}],
    "outputs": [{"tensor": "y", "spec": json.loads(InliningForSize.advice.to_json())}],
    "operators": ["ADD"],
    "instructions": 9,
    "output_spec": None,
    "triple": "x",
    "cpu": "y",
    "features": "+z",
    "llvm_version": "22.1.0",
    "model_sha256": HASH,
    "object_sha256": hashlib.sha256(b"object").hexdigest(),
}
ARCHIVE = b"!<arch>\na.o/            0           0     0     644     4         `\nBC\xc0\xde"


def _read_archive(path: Path) -> None:
    list_archive(path.name, path.parent)


def _object() -> list[bytes]:
    module = Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")
    with Compiler() as compiler:
        made = compiler.compile_module(module, keep_object=True)
    return [made.object_bytes or b""]


def _objects_to_link() -> list[bytes]:
    module = Corpus.load(SAMPLE_CORPUS)["interval_tree.cpp"]
    options = options_of(module).with_sections()
    with Compiler() as compiler:
        made = compiler.compile_module(module, options, keep_object=True)
    return [*_object(), made.object_bytes or b""]


def _bitcode() -> list[bytes]:
    return [Path(SAMPLE_CORPUS, f"{name}.bc").read_bytes() for name in ("digest.c", "json_write.c")]


MEMORY_BYTES = 256 << 20


@functools.cache
def limited() -> Compiler:
    """The compiler of what is hostile; its worker goes on to the next input."""
    return Compiler(timeout_s=60, peak_memory_bytes=MEMORY_BYTES)


def _compile(path: Path) -> None:
    """A worker that lives on has taken a fifth more than its limit at most."""
    compiler = limited()
    try:
        compiler.compile_module(Module.from_file(path))
    finally:
        if compiler.worker_pid is not None:
            status = Path(f"/proc/{compiler.worker_pid}/status").read_text()
            (most_kib,) = map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))
            if most_kib << 10 > 1.2 * MEMORY_BYTES:
                raise AssertionError(f"{path.name}: a worker took {most_kib} KiB")


def _tiers() -> list[bytes]:
    return [SAMPLE_RECORDING.read_bytes()]


def _read_tiers(path: Path) -> None:
    """What is read can be played."""
    recording = Recording.load(path)
    played(recording, schedule_named("ski-rental"), 2)
    oracle_s(recording)


SUITE: Final[dict[str, Any]] = {
    "version": 1,
    "name": "own",
    "kind": "size",
    "about": "One.",
    "llvm_version": "22.1.0",
    "problem": "inlining-for-size",
    "opt_level": "Oz",
    "split": "test",
    "tracks": ["plain"],
    "packages": ["lz4"],
}


def _suite_archive() -> list[bytes]:
    """A suite of one recording."""
    described = {key: SUITE[key] for key in SUITE if key != "version"}
    suite = Suite(**described | {"kind": "tiers", "tracks": (), "packages": ("json",)})
    with tempfile.TemporaryDirectory() as scratch:
        make_suite(suite, {"json": SAMPLE_RECORDING}, Path(scratch) / "own")
        pack(Suite.open(Path(scratch) / "own"), Path(scratch) / "own.tar.xz")
        return [(Path(scratch) / "own.tar.xz").read_bytes()]


def _changed_archive(random: np.random.Generator, data: bytes) -> bytes:
    """A header that says something else, in files of xz and tar that are whole."""
    if random.random() < 0.3:
        return mutators.of_bytes(random, data)
    tar = lzma.decompress(data)
    headers = [at for at in range(0, len(tar), 512) if tar[at + 257 : at + 262] == b"ustar"]
    at = headers[int(random.integers(0, len(headers)))]
    header = bytearray(mutators.of_text(random, tar[at : at + 512])[:512].ljust(512, b"\0"))
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * ord(" ") + sum(header[156:]))
    return lzma.compress(tar[:at] + header + tar[at + 512 :], preset=0)


def _submission() -> list[bytes]:
    values = {"plain": {"lz4": {"LLVM": {"icf": 3.0}, "0": {"icf": 2.0}}}}
    suite = Suite(**{key: SUITE[key] for key in SUITE if key != "version"})
    files = {"traces/plain/0/lz4/lz4.c.trace": _trace()[0]}
    made = Submission.of(suite, ("0",), values, files)
    with tempfile.TemporaryDirectory() as scratch:
        made.named("own", "us", "", "https://example.org").save(Path(scratch) / "own.zip")
        return [(Path(scratch) / "own.zip").read_bytes()]


def _changed_members(random: np.random.Generator, data: bytes) -> bytes:
    """A zip file that is whole, in which JSON says something else, or an array's header does."""
    if random.random() < 0.3:
        return mutators.of_bytes(random, data)
    file, method = io.BytesIO(), int(random.choice(METHODS, p=[0.3, 0.6, 0.05, 0.05]))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", method) as new:
        names = old.namelist()
        changed = names[int(random.integers(0, len(names)))]
        for name in names:
            part = old.read(name)
            if name == "card.json":
                part = mutators.of_json(random, part)
            elif name == "about.npy" and random.random() < 0.5:
                about = mutators.of_json(random, np.load(io.BytesIO(part)).tobytes())
                part = _as_array(about)
            elif name == changed:
                at = int(part.startswith(b"\x93NUMPY")) * ARRAY_HEADER
                part = mutators.of_text(random, part[:at]) + part[at:]
            new.writestr(name, part)
    return file.getvalue()


METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
ARRAY_HEADER = 128


def _as_array(data: bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, np.frombuffer(data, np.uint8))
    return file.getvalue()


def _read_object(path: Path) -> None:
    found = ObjectFile.parse(read_object(path))
    found.compiler()
    found.contents(".text")


def _link(path: Path) -> None:
    data = read_object(path)
    LinkedTextIcf({"first": data, "second": data})


TARGETS = {
    "trace": Target("it.trace", _trace, _read_trace, _changed_trace, whole=200_000),
    "log": Target("it.log", _log, open_recording, whole=1_000_000, memory_bytes=64 << 20),
    "channel": Target(
        "it.stream", _log, _decode, names_it=False, whole=1_000_000, memory_bytes=64 << 20
    ),
    "dataset": Target(
        "part-00000.parquet", _dataset, _read_dataset, whole=100_000, may_abort=True
    ),
    "manifest": Target(
        MANIFEST_NAME, _as_json(MANIFEST), _read_corpus, mutators.of_json, around=_module
    ),
    "suite": Target(
        "suite.json",
        _as_json(SUITE),
        lambda path: Suite.read(path, path.with_name("none")),
        mutators.of_json,
    ),
    "hashes of a suite": Target(
        "SHA256SUMS",
        lambda: [sums_text({"plain/lz4/lz4.c.bc": HASH, "packages.json": HASH}).encode()],
        read_sums,
        mutators.of_text,
    ),
    "archive of a suite": Target(
        "own.tar.xz",
        _suite_archive,
        lambda path: unpack(path, path.with_name("own")),
        _changed_archive,
    ),
    "submission": Target("own.zip", _submission, Submission.load, _changed_members),
    "command": Target("m.cmd", lambda: [b"-cc1\0-O2\0x.c"], _read_command, around=_module),
    "corpus info": Target(
        "corpus_info.json",
        _as_json({"package": "lz4", "split": "train", "recipe": "lz4", "modules": 3}),
        lambda path: join_corpora([path.parent]),
        mutators.of_json,
        around=_corpus,
    ),
    "recipe": Target(
        "it.toml",
        _of_file(Path("corpus_tools/recipes/lz4.toml").absolute()),
        load_recipe,
        mutators.of_text,
    ),
    "workloads": Target(
        DESCRIPTION,
        _of_file(Path("corpus_tools/workloads/lupa/workload.toml").absolute()),
        lambda path: load_workloads(path.parent),
        mutators.of_text,
        around=_sources,
    ),
    "graph": Target(
        "it.tflite",
        mutated.seeds,
        mutated.lower,
        mutated.of_graph,
        whole=2_000_000,
        memory_bytes=256 << 20,
        slow_s=0.5,
    ),
    "graph evaluated": Target(
        "it.tflite",
        mutated.seeds,
        mutated.evaluate,
        mutated.of_graph,
        whole=20_000,
    ),
    "frozen model": Target(
        "it.json",
        _as_json(FROZEN),
        load_frozen,
        mutators.of_json,
        around=_object_beside,
    ),
    "output spec": Target(
        "output_spec.json",
        _of_file(Path(find_model("inlining-for-size"), "output_spec.json")),
        _read_output_spec,
        mutators.of_json,
    ),
    "card": Target(
        "card.json",
        _of_file(Path(find_model("inlining-for-size"), "card.json")),
        lambda path: read_card(path.parent, InliningForSize().layout.specs),
        mutators.of_json,
        around=_model,
    ),
    "configuration": Target(
        "config.json", _of_run("config.json"), _read_run, mutators.of_json, around=_run
    ),
    "checkpoint": Target("checkpoint.npz", _of_run("checkpoint.npz"), _read_run, around=_run),
    "progress": Target(
        "progress.jsonl", _of_run("progress.jsonl"), _read_run, mutators.of_json, around=_run
    ),
    "vocabulary": Target(
        "it.json", lambda: [Vocabulary.of("ones").data], Vocabulary.of, mutators.of_json
    ),
    "record": Target("it.search.json", _as_json(RECORD), _read_record, mutators.of_json),
    "network": Target(
        "network.json",
        _of_file(Path(find_model("inlining-for-size"), "network.json")),
        _read_network,
        mutators.of_json,
        around=_network,
        whole=20_000,
    ),
    "weights": Target(
        "weights.npz",
        _of_file(Path(find_model("inlining-for-size"), "weights.npz")),
        _read_network,
        around=_network,
        whole=20_000,
    ),
    "record of a project": Target(
        "project.json",
        _as_json(PROJECT),
        lambda path: open_project(Path("/b"), path.parent, 1, 1.0),
        mutators.of_json,
        around=_project,
    ),
    "record of sources": Target(
        "sources.json",
        _as_json(SOURCES),
        lambda path: Sources(path.parent, path.parent / "corpus", ("mlgo-cc", "mlgo-c++")),
        mutators.of_json,
    ),
    "record of a tune": Target("tune.json", _as_json(TUNE), _read_tune, mutators.of_json),
    "scores of a tune": Target(
        "scores.start.json", _as_json(SCORES), _read_scores, mutators.of_json
    ),
    "boxes": Target("boxes.json", _as_json(BOXES), _read_boxes, mutators.of_json, whole=20_000),
    "log of what was kept": Target(
        "kept.tsv",
        lambda: [b"LLVM\t12\t13\t/b/a.o\nmine\t1\t2\t/b/b.o\n"],
        read_kept_log,
        mutators.of_text,
    ),
    "CMake's cache": Target("CMakeCache.txt", lambda: [CACHE], _read_cache, mutators.of_text),
    "Meson's command line": Target("cmd_line.txt", lambda: [MESON], _read_meson, mutators.of_text),
    "profile": Target("it.profdata", lambda: [PROFILE], ProfileFile.read, whole=10_000),
    "best known values": Target(
        "best.json", _as_json(BEST), known_best, mutators.of_json
    ),
    "compilation database": Target(
        "compile_commands.json", _as_json(COMMANDS), list_compile_commands, mutators.of_json
    ),
    "aquery": Target(
        "it.json", _as_json(LINKS), lambda path: list_aquery(path, path.parent), mutators.of_json
    ),
    "parameters": Target(
        "it.params",
        lambda: [b"-o\nx\na.o\n'b c.o'\nlib.a\n"],
        lambda path: list_parameters(path, path.parent),
        mutators.of_text,
    ),
    "response file": Target(
        "it.rsp",
        lambda: [b'-c "a b.c" -DX=\'1\' \\\n -o a.o @none'],
        lambda path: expand_response_files([f"@{path.name}"], path.parent, source=path),
        mutators.of_text,
    ),
    "tar": Target("p-1.tar.gz", _tar, _unpack, mutators.of_bytes),
    "tar.gz": Target("p-1.tar.gz", lambda: [gzip.compress(_tar()[0])], _unpack),
    "zip": Target("p-1.zip", _zip, _unpack),
    "static archive": Target("it.a", lambda: [ARCHIVE], _read_archive, whole=500_000),
    "build": Target("it.o", _object, read_build, whole=100_000),
    "tiers": Target("it.npz", _tiers, _read_tiers, _changed_members, whole=200_000),
    "object": Target("it.o", _object, _read_object, names_it=False, whole=400_000),
    "linked objects": Target("it.o", _objects_to_link, _link, names_it=False, whole=100_000),
    "bitcode": Target("it.bc", _bitcode, _compile, whole=20_000),
}  # fmt: skip
