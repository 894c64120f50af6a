"""Makes what ``mlgo-cc`` needs before it can run without Python: itself, and frozen policies.

::

    python -m mlgo_gym.cc._prepare driver FOLDER
    python -m mlgo_gym.cc._prepare policy PROBLEM MODEL LIBRARY REFUSAL CLANG VOCABULARY

A policy is compiled for the least CPU of this machine's architecture, so that machines of
different age may share a cache. A frozen model is run if this user has frozen it on this machine,
or ``MLGO_TRUST_CODE=1`` says that it is trusted. What goes wrong is printed in one line; where the
model is to blame, the line is kept as REFUSAL. What may pass is not: files that cannot be read, a
compiler that was killed or took too long.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.children import receive_statuses, run
from corpus_tools.clang import CANDIDATES
from mlgo_gym import __version__
from mlgo_gym.base import (
    PARTIAL,
    SHIPPED,
    CompilationError,
    EnvironmentSetupError,
    FileError,
    MlgoGymError,
    ModelError,
    OptionsError,
    check_way,
    claim,
    locked_folder,
    read_bounded,
    remove,
)
from mlgo_gym.cc._kept import (
    MAX_KEPT_BYTES,
    copy_model,
    is_kept,
    keep,
    named_file,
    read_kept,
)
from mlgo_gym.llvm import (
    CALL_SITE_SYMBOLS,
    CALL_SITE_WRITERS,
    HOTNESS_FEATURES,
    LLVM_MAJOR,
    call_site_code,
    call_site_groups,
)
from mlgo_gym.model import (
    OBJECT,
    NativeModel,
    c_header,
    compile_model,
    find_description,
    find_outputs,
    graph_file,
    load_frozen,
    model_files,
    parse_output_spec,
    read_card,
    read_model_json,
)
from mlgo_gym.problems import MAX_BYTES, PRESETS, InliningForSize, RegallocEviction, Vocabulary
from mlgo_gym.runners import DEFAULT_DEADLINE_S, check_files, settings_of_models

_TIMEOUT_S: Final = 120.0
_LED_BACK: Final = 110
"""The exit status of an ``mlgo-cc`` whose clang starts ``mlgo-cc`` again."""
_NEEDED: Final = ("MLGO_CACHE", "MLGO_NESTING")

NATIVE: Final = Path(__file__).parent / "native"
PROGRAMS: Final = ("mlgo-cc", "mlgo-c++", "mlgo-launch")

_FOLDERS: Final = ("bin", "kept")
_SCRATCH: Final = ".new-"
_STAMP: Final = "sources"
_LEAST_CPU: Final = MappingProxyType({"x86_64": "x86-64", "aarch64": "generic"})
_PROBLEMS: Final = MappingProxyType(
    {kind.driver_name: kind for kind in (InliningForSize, RegallocEviction)}
)
"""The questions that the driver in C knows, by the name that users say."""
_ONLY_INSIDE: Final = ("inside.c", "forked.c", "local.c")
_INSIDE: Final = (
    *_ONLY_INSIDE, "answers.c", "call_site.c", "digest.c", "policy.c", "stream.c",
)  # fmt: skip
"""The sources of the library that clang's process loads; the driver has the rest of them, too."""
_LIBRARY_FLAGS: Final = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,now")
_LIBRARIES: Final = ("-ldl", "-pthread")

_GLUE: Final = """\
#include "{native.name}.h"

const struct mlgo_policy mlgo_policy = {{
    MLGO_POLICY_VERSION, {native.name}_inputs, {inputs}, {native.name}_outputs, {outputs},
    {decision}, "{sha256}", {vocabulary}, sizeof {vocabulary} - 1, {call_site},
    {native.name}_evaluate,
}};
"""
_CALL_SITE: Final = """\
extern void *mlgo_llvm[], *mlgo_asks;
void mlgo_take_call(void);
{declared}
static int32_t put_features(int64_t *values) {{
  return {put};
}}
static const char *const FEATURES[] = {{{features}}}, *const SYMBOLS[] = {{{symbols}}};
static const struct mlgo_call_site CALL_SITE = {{
    FEATURES, {feature_count}, SYMBOLS, {symbol_count}, {llvm_major},
    mlgo_llvm, &mlgo_asks, mlgo_take_call, (int32_t (*)(void *))put_features,
}};
"""


def compile_c(compilers: Sequence[str], arguments: list[str], target: Path) -> bytes:
    """Compile and link by the first compiler that is none of ours; returns the file.

    Args:
        compilers: names or paths, at least one.
        arguments: all but the output.
        target: a file in a folder that goes with all that a compiler leaves.
    """
    for compiler in compilers:
        done = _run(compiler, arguments, target)
        if done.returncode != _LED_BACK:
            break
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise EnvironmentSetupError(f"{compiler} cannot make {target.name}: {words}")
    return read_bounded(target, MAX_KEPT_BYTES)


def _run(compiler: str, arguments: list[str], target: Path) -> subprocess.CompletedProcess[bytes]:
    # Clang writes to names that it makes of the output's, with digits in place of each "%": so the
    # folder is not named. Temporary files go there as well; the user's folder may not be writable.
    try:
        return run(
            [str(Path(compiler).absolute()), *arguments, "-o", target.name],
            env={**_environment(), "TMPDIR": "."},
            cwd=target.parent,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentSetupError(
            f"{compiler}: expected {target.name} within {_TIMEOUT_S:g} s, found none"
        ) from error


def _environment() -> dict[str, str]:
    """The user's, without settings for ``mlgo-cc``, which may be what is called clang."""
    theirs = {name: text for name, text in os.environ.items() if not name.startswith("MLGO_")}
    needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    return {**theirs, **needed, "MLGO_CONFIG": os.devnull}


def c_compilers() -> list[str]:
    """The paths of those on PATH, at least one."""
    # For this machine; the clang that is named may be for another.
    names = (*CANDIDATES, "cc", os.environ.get("MLGO_CLANG"))
    found = [path for name in names if name and (path := shutil.which(name))]
    if not found:
        raise EnvironmentSetupError("mlgo-cc: expected a C compiler on PATH, found none")
    return found


def build_driver(folder: Path) -> None:
    """Compile the driver into ``FOLDER/bin``, under each of `PROGRAMS`; the folder is the user's.

    Beside it, ``FOLDER/kept`` has the library that it lets clang load.
    """
    program, *others = (folder / "bin" / name for name in PROGRAMS)
    library = folder / "kept" / "inside.so"
    with _cache(folder), contextlib.ExitStack() as undo:
        _forget_others(folder)
        if not is_kept(library):  # before the program, which then has it
            flags = [*_LIBRARY_FLAGS, *_LIBRARIES]
            keep(library, _compile_c(folder, flags, _INSIDE, library.name))
        if not is_kept(program, is_program=True):
            texts = {
                "MLGO_PYTHON": sys.executable,
                "MLGO_VERSION": __version__,
                "MLGO_MODELS": str(SHIPPED),
                "MLGO_NATIVE": str(NATIVE),
            }
            defines = [f'-D{name}="{_c_text(text)}"' for name, text in texts.items()]
            defines.append(f"-DMLGO_NATIVE_S={_time_s()}")
            sources = {each.name for each in NATIVE.glob("*.c")} - {*_ONLY_INSIDE}
            made = _compile_c(folder, [*defines, *_LIBRARIES], sorted(sources), program.name)
            undo.callback(program.unlink, missing_ok=True)  # who has it does not ask for the others
            keep(program, made, is_program=True)
        for other in others:
            if not (other.exists() and other.samefile(program)):
                remove(other)
                other.hardlink_to(program)
        undo.pop_all()


def _forget_others(folder: Path) -> None:
    """Remove what an installation of the same version before this one has left there."""
    stamp, text = folder / "kept" / _STAMP, f"{_time_s()}\n".encode()
    if read_kept(stamp) == text:
        return
    for name in _FOLDERS:
        for each in (folder / name).iterdir():
            remove(each)
    keep(stamp, text)


def _time_s() -> int:
    """When the driver's sources were installed; in seconds, since archives keep no less."""
    return int(NATIVE.stat().st_mtime)


def _compile_c(folder: Path, flags: Sequence[str], sources: Sequence[str], name: str) -> bytes:
    """Some of the driver's sources, for this machine."""
    # The compiler may be a clang++, to which all sources are C++.
    arguments = ["-std=c17", "-O2", *flags, "-x", "c", *(str(NATIVE / each) for each in sources)]
    with _scratch(folder) as place:
        return compile_c(c_compilers(), arguments, place / name)


def build_policy(problem: str, model: Path, library: Path, clang: str, named: str) -> None:
    """Freeze a model, or take a frozen one, into the shared library that the driver loads.

    The vocabulary is the one that the model's card names, unless another is named here.
    """
    folder = library.parents[1]
    given, more = _given(named)
    with _cache(folder):
        if is_kept(library):  # another compilation was first
            return
        with _scratch(folder) as place:
            copy = place / "model"
            if library.stem != f"{problem}-{copy_model(model, copy, more)}":
                raise EnvironmentSetupError(f"model {str(model)!r}: changed while it was read")
            try:
                native, decision = _load(problem, copy)
                vocabulary = given or _vocabulary(problem, copy)
            except (ModelError, OptionsError) as error:
                raise _moved(error, copy, model) from error.__cause__
            sources = _sources(native, decision, vocabulary, place)
            # The model's own header may be called policy.h, too.
            flags = ["-shared", "-fPIC", "-O2", "-w", "-include", str(NATIVE / "policy.h")]
            arguments = ["--driver-mode=gcc", *flags, *sources]
            made = compile_c([clang], arguments, place / library.name)
        keep(library, made)


def _given(named: str) -> tuple[Vocabulary | None, bytes]:
    """The vocabulary of a name, if there is one, and what it is in a model's key."""
    if not named:
        return None, b""
    data = None
    with contextlib.suppress(OSError):
        data = read_bounded(Path(named), MAX_BYTES)
    if data is None or named in PRESETS:
        return Vocabulary.of(named), named_file(named, data)
    return Vocabulary.parse(data, named), named_file(named, data)


def _vocabulary(problem: str, model: Path) -> Vocabulary | None:
    named = settings_of_models([str(model)], _PROBLEMS[problem])
    if "ir2vec" not in named:
        return None
    vocabulary = Vocabulary.of(named["ir2vec"])
    check_files(model, InliningForSize(ir2vec=vocabulary))
    return vocabulary


def _sources(
    native: NativeModel, decision: int, vocabulary: Vocabulary | None, folder: Path
) -> list[str]:
    (folder / f"{native.name}.o").write_bytes(native.object.data)
    header = c_header(native.name, native.model_sha256, native.inputs, native.outputs, OBJECT)
    (folder / f"{native.name}.h").write_text(header, encoding="utf-8")
    sha256, text = native.model_sha256, ""
    if vocabulary:
        text = vocabulary.data.decode("ascii")
        sha256 = hashlib.sha256(sha256.encode() + vocabulary.data).hexdigest()
    site = _call_site(native)
    glue = _GLUE.format(
        native=native,
        sha256=sha256,
        vocabulary=json.dumps(text),  # of ASCII, which C reads as JSON does
        decision=decision,
        call_site="&CALL_SITE" if site else "0",
        inputs=len(native.inputs),
        outputs=len(native.outputs),
    )
    (folder / "glue.c").write_text(site + glue, encoding="ascii")
    sources = [folder / "glue.c", folder / f"{native.name}.o"]
    if site:
        sources.append(folder / "call_site.ll")
        sources[-1].write_text(call_site_code(has_threads=True), encoding="ascii")
    return [str(each) for each in sources]


def _call_site(native: NativeModel) -> str:
    groups = call_site_groups([each.spec.name for each in native.inputs])
    if not groups:
        return ""
    features = [name for group in groups for name in group]
    calls = [f"{CALL_SITE_WRITERS[group]}(values + {features.index(group[0])})" for group in groups]
    return _CALL_SITE.format(
        declared="\n".join(f"int32_t {CALL_SITE_WRITERS[group]}(int64_t *);" for group in groups),
        put=" & ".join(calls),
        features=", ".join(map(json.dumps, features)),
        feature_count=len(features),
        symbols=", ".join(map(json.dumps, CALL_SITE_SYMBOLS)),
        symbol_count=len(CALL_SITE_SYMBOLS),
        llvm_major=LLVM_MAJOR if HOTNESS_FEATURES in groups else 0,
    )


def _moved(error: ModelError | OptionsError, copy: Path, model: Path) -> MlgoGymError:
    """The error of a copy as that of the model."""
    here, there = str(copy), str(model)
    if isinstance(error, OptionsError):
        return OptionsError(str(error).replace(here, there))
    return ModelError(error.model.replace(here, there), error.reason.replace(here, there))


def main(arguments: Sequence[str]) -> int:
    """Run the module's command line; see above."""
    receive_statuses()
    refusal: Path | None = None
    mask = os.umask(0o077)
    try:
        match arguments:
            case ["driver", folder]:
                build_driver(Path(folder))
            case ["policy", problem, model, library, refused, clang, named]:
                refusal = Path(refused)
                build_policy(problem, Path(model), Path(library), clang, named)
            case _:
                sys.stderr.write("prepare: expected 'driver' or 'policy' and its arguments\n")
                return 2
    except MlgoGymError as error:
        words = " ".join(str(error).split())
        if refusal and isinstance(error, ModelError) and not _may_pass(error.__cause__):
            with contextlib.suppress(OSError):
                keep(refusal, words.encode("utf-8", "surrogateescape"))
        sys.stderr.write(f"{words}\n")
        return 1
    finally:
        os.umask(mask)
    return 0


def _may_pass(cause: BaseException | None) -> bool:
    """Whether trying again may help: not every time can a file be read, or does a process last."""
    may_help = isinstance(cause, OSError | subprocess.SubprocessError | CompilationError)
    return may_help and not isinstance(cause, FileError)


def _load(problem: str, model: Path) -> tuple[NativeModel, int]:
    """The compiled model and the number of the output that is its decision."""
    source = str(model)
    kind = _PROBLEMS[problem]
    card = read_card(model)
    if card is not None and card.problem != kind.name:
        raise ModelError(source, f"expected a model for {kind.name}, found one for {card.problem}")
    graph, beside = model_files(model)
    trusted = os.environ.get("MLGO_TRUST_CODE") == "1"
    if not graph.exists() and find_description(model):
        native, value = load_frozen(model, trusted=trusted)
    else:
        cpu = _LEAST_CPU.get(platform.machine())
        with graph_file(model, trusted=trusted) as file:
            native = compile_model(file, name="frozen", cpu=cpu)
        value = read_model_json(beside, source) if beside.exists() else None
    specs = None if value is None else parse_output_spec(value, source)
    return native, find_outputs(specs, native.outputs, kind.advice.name, source)[0][1]


def _c_text(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(text))


@contextlib.contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """The driver's folder, nobody else's, for one at a time of the many that a build starts."""
    try:
        check_way(folder.parent)
        folder.parent.mkdir(parents=True, exist_ok=True)
        check_way(folder.parent)
        claim(folder)
        with locked_folder(folder, patience_s=_patience_s()):
            for name in _FOLDERS:
                claim(folder / name)
            _tidy(folder)
            yield
    except BlockingIOError as error:
        raise EnvironmentSetupError(
            f"{str(folder)!r}: expected another process to be done with it within "
            f"{_patience_s():g} s; MLGO_TIMEOUT allows more"
        ) from error
    except OSError as error:
        raise EnvironmentSetupError(f"cannot write to {str(folder)!r}: {error}") from error


def _patience_s() -> float:
    """The user's, where it is a number; what is none, the driver will say."""
    with contextlib.suppress(ValueError):
        wish = float(os.environ.get("MLGO_TIMEOUT", ""))
        return wish if wish > 0 else DEFAULT_DEADLINE_S
    return DEFAULT_DEADLINE_S


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as name:
        yield Path(name)


def _tidy(folder: Path) -> None:
    """Remove what was left by processes that were killed: nobody else works here now."""
    for each in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(each, ignore_errors=True)
    for each in folder.glob(f"*/*{PARTIAL}"):
        each.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
