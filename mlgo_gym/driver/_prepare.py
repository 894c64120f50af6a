"""Makes what ``mlgo-cc`` needs before it can run without Python: itself, and frozen policies.

::

    python -m mlgo_gym.driver._prepare driver FOLDER
    python -m mlgo_gym.driver._prepare policy PROBLEM MODEL LIBRARY CLANG

A policy is compiled for the least CPU of this machine's architecture, so that machines of
different age may share a cache. A frozen model is run if this user has frozen it on this machine,
or ``MLGO_TRUST_CODE=1`` says that it is trusted. What goes wrong is printed in one line; where a
model is to blame, the line is kept in ``LIBRARY`` with the ending ``.error`` until the model's
files change, unless they could not be read.
"""

from __future__ import annotations

import contextlib
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

from corpus_tools.clang import CANDIDATES
from mlgo_gym import __version__
from mlgo_gym.errors import EnvironmentSetupError, MlgoGymError, ModelError
from mlgo_gym.files import FileError, locked_folder, replacing, write_atomically
from mlgo_gym.model._card import PLACES, read_card
from mlgo_gym.model._output_spec import model_files, parse_output_spec, read_model_json
from mlgo_gym.native._c_header import c_header
from mlgo_gym.native._freeze import find_description, load_frozen
from mlgo_gym.native._model import NativeModel, compile_model, find_outputs
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction

NATIVE: Final = Path(__file__).parent / "native"
PROGRAMS: Final = ("mlgo-cc", "mlgo-c++")

_FOLDERS: Final = ("bin", "clang", "policies")
_TIMEOUT_S: Final = 120.0
_LEAST_CPU: Final = MappingProxyType({"x86_64": "x86-64", "aarch64": "generic"})
_PROBLEMS: Final = MappingProxyType(
    {kind.driver_name: kind for kind in (InliningForSize, RegallocEviction)}
)
"""What the driver in C knows how to ask, by the name that users say."""

_GLUE: Final = """\
#include "{native.name}.h"

const struct mlgo_policy mlgo_policy = {{
    MLGO_POLICY_VERSION, {native.name}_inputs, {inputs}, {native.name}_outputs, {outputs},
    {decision}, "{native.model_sha256}", {native.name}_evaluate,
}};
"""


def build_driver(folder: Path) -> None:
    """Compile the driver into ``FOLDER/bin``, under both of its names; the folder is the user's."""
    with _locked(folder):
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        program = folder / "bin" / PROGRAMS[0]
        if not program.exists():
            texts = {
                "MLGO_PYTHON": sys.executable,
                "MLGO_VERSION": __version__,
                "MLGO_MODELS": str(next(filter(Path.is_dir, PLACES), PLACES[0])),
            }
            defines = [f'-D{name}="{_c_text(text)}"' for name, text in texts.items()]
            # The compiler may be a clang++, to which all sources are C++.
            flags = ["-std=c17", "-O2", *defines, "-ldl", "-x", "c"]
            _compile(_c_compiler(), [*flags, *map(str, sorted(NATIVE.glob("*.c")))], program)
        for name in PROGRAMS[1:]:
            other = folder / "bin" / name
            if not (other.exists() and other.samefile(program)):  # renaming it would do nothing
                with replacing(other) as file:
                    Path(file.name).unlink()
                    Path(file.name).hardlink_to(program)


def build_policy(problem: str, model: Path, library: Path, clang: str) -> None:
    """Freeze a model, or take a frozen one, into the shared library that the driver loads."""
    with _locked(library.parent):
        if library.exists():  # another compilation was first
            return
        native, decision = _load(problem, model)
        with tempfile.TemporaryDirectory(dir=library.parent) as name:
            folder = Path(name)
            (folder / f"{native.name}.o").write_bytes(native.object.data)
            (folder / f"{native.name}.h").write_text(c_header(native), encoding="utf-8")
            glue = _GLUE.format(
                native=native,
                decision=decision,
                inputs=len(native.inputs),
                outputs=len(native.outputs),
            )
            (folder / "glue.c").write_text(glue, encoding="ascii")
            sources = [str(folder / "glue.c"), str(folder / f"{native.name}.o")]
            # The model's own header may be called policy.h, too.
            flags = ["-shared", "-fPIC", "-O2", "-w", "-include", str(NATIVE / "policy.h")]
            _compile(clang, ["--driver-mode=gcc", *flags, *sources], library)


def main(arguments: Sequence[str]) -> int:
    """Run the module's command line; see above."""
    refusal: Path | None = None
    try:
        match arguments:
            case ["driver", folder]:
                build_driver(Path(folder))
            case ["policy", problem, model, library, clang]:
                refusal = Path(library).with_suffix(".error")
                build_policy(problem, Path(model), Path(library), clang)
            case _:
                sys.stderr.write("prepare: expected 'driver' or 'policy' and its arguments\n")
                return 2
    except MlgoGymError as error:
        words = " ".join(str(error).split())
        if refusal and isinstance(error, ModelError) and not _may_pass(error.__cause__):
            with contextlib.suppress(OSError):
                write_atomically(refusal, words.encode("utf-8", "surrogateescape"))
        sys.stderr.write(f"{words}\n")
        return 1
    return 0


def _may_pass(cause: BaseException | None) -> bool:
    """Whether reading again may help."""
    return isinstance(cause, OSError) and not isinstance(cause, FileError)


def _load(problem: str, model: Path) -> tuple[NativeModel, int]:
    """The compiled model and the number of the output that is its decision."""
    source = str(model)
    kind = _PROBLEMS[problem]
    card = read_card(model)
    if card is not None and card.problem != kind.name:
        raise ModelError(source, f"expected a model for {kind.name}, found one for {card.problem}")
    graph, beside = model_files(model)
    if not graph.exists() and find_description(model):
        native, value = load_frozen(model, trusted=os.environ.get("MLGO_TRUST_CODE") == "1")
    else:
        cpu = _LEAST_CPU.get(platform.machine())
        native = compile_model(graph, name="frozen", cpu=cpu)
        value = read_model_json(beside, source) if beside.exists() else None
    specs = None if value is None else parse_output_spec(value, source)
    return native, find_outputs(specs, native.outputs, kind.advice.name, source)[0][1]


def _compile(compiler: str, arguments: list[str], target: Path) -> None:
    """Compile and link to a file that takes its name only when it is whole."""
    with replacing(target) as file:
        try:
            done = subprocess.run(
                [compiler, *arguments, "-o", file.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={**os.environ, "TMPDIR": str(target.parent)},  # the user's may not be writable
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentSetupError(
                f"{compiler}: expected {target.name} within {_TIMEOUT_S:g} s, found none"
            ) from error
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            raise EnvironmentSetupError(f"{compiler} cannot make {target.name}: {words}")


def _c_compiler() -> str:
    # For this machine; the clang that is named may be for another.
    names = (*CANDIDATES, "cc", os.environ.get("MLGO_CLANG"))
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise EnvironmentSetupError("mlgo-cc: expected a C compiler on PATH, found none")
    return found


def _c_text(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(text))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time, of the many compilations that a build starts at once."""
    try:
        with locked_folder(folder, mode=0o700):
            yield
    except OSError as error:
        raise EnvironmentSetupError(f"cannot write to {str(folder)!r}: {error}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
