"""Frozen models: machine code on disk, and its C header.

`freeze` writes into one folder

- ``NAME.o``: the object for one CPU,
- ``NAME.h``: its C interface,
- ``NAME.so``: the same as a shared library, where the machine has a C compiler's driver and the
  object is for this machine,
- ``NAME.json``: the description, written last::

    {"format": "mlgo-gym native model", "version": 1, "name": NAME,
     "inputs": [{"tensor": "action_callee_users:0", "spec": TensorSpec}, ...],
     "outputs": [...], "operators": ["CAST", ...], "output_spec": [...] or null,
     "cpu": "znver4", "features": "+avx2,...", "triple": "x86_64-unknown-linux-gnu",
     "llvm_version": "22.1.0", "model_sha256": "...", "object_sha256": "...",
     "instructions": 2173, "seal": "..." or null}

A frozen model is code that runs in the process that loads it. What this user froze on this machine
has a seal that says so, and is loaded; of anything else `load_frozen` must be told that it is
trusted, as one trusts a shared library. That is the one gate for all who load machine code. What is
checked besides is that the files are whole, made for this kind of machine and, where they were made
for the CPU that made them, that this CPU has the same features. LLVM does not tell the features of
a CPU that was named; on an older CPU such code may end its process.

The seal is a MAC over the whole description, the object's hash included, under a key that only this
user can read: ``mlgo-gym/key`` in ``$XDG_STATE_HOME`` (``~/.local/state``), made when it is first
needed. Nothing is kept of single models, so they may be moved, copied and removed; one whose code
or description was changed, or that came from elsewhere, has no seal that fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpus_tools.children import run
from corpus_tools.reading import own_file
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import (
    EnvironmentSetupError,
    ModelError,
    OptionsError,
    SpecError,
    TensorSpec,
    read_bounded,
    write_atomically,
    xdg,
)
from mlgo_gym.llvm import NativeObject
from mlgo_gym.model._card import (
    CARD_FILE,
    model_files,
    parse_output_spec,
    read_card,
    read_model_json,
    unreadable,
)
from mlgo_gym.model._emit_c import OBJECT, c_header
from mlgo_gym.model._model import (
    DEFAULT_TIMEOUT_S,
    NativeModel,
    NativePort,
    OperatorCode,
    check_name,
    compile_model,
)
from mlgo_gym.model._saved_model import HOW_TO_TRUST, graph_file
from mlgo_gym.problems import problems

SEAL: Final = "seal"
"""The key of the description that holds it."""

_KEY_BYTES: Final = 32
_FORMAT: Final = "mlgo-gym native model"
_VERSION: Final = 1
_MAX_OBJECT_BYTES: Final = 1 << 28
_LINK_TIMEOUT_S: Final = 60.0
_OBJECT_TEXTS: Final = ("cpu", "features", "triple", "llvm_version")
_TEXTS: Final = ("name", *_OBJECT_TEXTS, "model_sha256")


def seal(description: Mapping[str, Any]) -> str | None:
    """The seal of a description; ``None`` where this user can keep no key."""
    try:
        return _mac(_made_key(_place()), description)
    except OSError:
        return None


def is_sealed(description: Mapping[str, Any]) -> bool:
    """Whether a description has the seal that it would get here."""
    found = description.get(SEAL)
    try:
        return isinstance(found, str) and hmac.compare_digest(
            found.encode("utf-8", "replace"), _mac(_key(_place()), description).encode()
        )
    except OSError:  # no key, so nothing was sealed
        return False


def _mac(key: bytes, description: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in description.items() if name != SEAL}
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _place() -> Path:
    state = xdg("XDG_STATE_HOME")
    if state is None:
        home = Path(os.path.expanduser("~"))  # as it is where nobody knows it  # noqa: PTH111
        if not home.is_dir():  # nothing is to be written there, as where packages are built
            raise FileNotFoundError(f"{home}: expected the home folder, found none")
        state = home / ".local" / "state"
    return state / "mlgo-gym" / "key"


def _key(place: Path) -> bytes:
    """The key, if nobody else can have written or read it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        key = file.read(_KEY_BYTES + 1) if is_own and not found.st_mode & 0o077 else b""
    if len(key) != _KEY_BYTES:
        raise PermissionError(f"{place}: expected {_KEY_BYTES} bytes that only this user can read")
    return key


def _made_key(place: Path) -> bytes:
    """The key, made if there is none; of several processes at once, the first one's."""
    with contextlib.suppress(FileNotFoundError):
        return _key(place)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            place.hardlink_to(new)
    finally:
        new.unlink()
    return _key(place)


@dataclass(frozen=True, slots=True)
class FrozenFiles:
    """The files that `freeze` has written.

    Attributes:
        description: ``NAME.json``.
        object: ``NAME.o``.
        header: ``NAME.h``.
        shared_library: ``NAME.so``; ``None`` where there is no linker, and for other targets.
        is_sealed: whether this user may load it without a word; not where no key can be kept.
        code: the machine code by operators, where a profile was asked for.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     files.header.name
    'inliner.h'
    """

    description: Path
    object: Path
    header: Path
    shared_library: Path | None
    is_sealed: bool
    code: tuple[OperatorCode, ...] = ()


def freeze(
    model: Path | str,
    output_dir: Path | str,
    *,
    name: str,
    cpu: str | None = None,
    target: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    profile: bool = False,
) -> FrozenFiles:
    """Compile a model ahead of time.

    Args:
        model: a model directory with ``model.tflite`` and, if there is one, ``output_spec.json``;
            or a ``.tflite`` file.
        output_dir: where to; made if needed. Each file appears whole or not at all. The card of a
            model that needs a vocabulary is copied, and the vocabulary with it.
        name: a C identifier: the files' name and the prefix of the function's.
        cpu: LLVM's name of a CPU of the target's architecture; ``None`` is this CPU, or of another
            target the generic one.
        target: the triple of another machine, such as ``aarch64-linux-gnu``; its object cannot be
            loaded here, and there is no shared library.
        trusted: compile in this process instead of a worker, and take a SavedModel, too.
        timeout_s: what compiling may take in a worker, in seconds.
        profile: the object says what operator its code is of, to debuggers and profilers (DWARF),
            and `FrozenFiles.code` has it; the code is the same.

    Raises:
        ModelError: the model cannot be used, or LLVM does not know the CPU or the target; or a
            profile is asked for of an object that is not ELF.
        EnvironmentSetupError: the output cannot be written, or the linker fails.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     files.object.name, files.object.stat().st_size > 1000
    ('inliner.o', True)
    """
    path = Path(model)
    specs = model_files(path)[1]
    output_spec = read_model_json(specs, str(model)) if specs.exists() else None
    if output_spec is not None:
        parse_output_spec(output_spec, str(model))
    with graph_file(path, trusted=trusted) as graph:
        native = compile_model(
            graph,
            name=name,
            cpu=cpu,
            target=target,
            trusted=trusted,
            timeout_s=timeout_s,
            profile=profile,
        )
    beside = _beside(path)
    try:
        return _write(native, output_spec, beside, Path(output_dir), links=target is None)
    except OSError as error:
        raise EnvironmentSetupError(f"cannot write to {output_dir}: {error}") from error


def _beside(model: Path) -> dict[str, bytes]:
    """The card, and the files that it names, of a model that needs settings of its problem."""
    card = read_card(model)
    optional = {name for kind in problems().values() for name in kind.optional_names()}
    if card is None or not optional & {*card.features}:
        return {}
    known = {name for kind in problems().values() for name in kind.file_settings}
    files = {f"{name}.json" for name in known if card.settings.get(name) == f"{name}.json"}
    found = {}
    for name in (CARD_FILE, *sorted(files)):
        try:
            found[name] = read_bounded(own_file(model / name, model), _MAX_OBJECT_BYTES)
        except OSError as error:
            raise unreadable(error, str(model), name) from error
    return found


def _write(
    native: NativeModel, output_spec: Any, beside: Mapping[str, bytes], folder: Path, *, links: bool
) -> FrozenFiles:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in beside.items():
        write_atomically(folder / name, data)
    files = {suffix: folder / f"{native.name}{suffix}" for suffix in (".o", ".h", ".so", ".json")}
    write_atomically(files[".o"], native.object.data)
    header = c_header(native.name, native.model_sha256, native.inputs, native.outputs, OBJECT)
    write_atomically(files[".h"], header.encode())
    shared = _link(files[".o"], files[".so"]) if links else None
    described = _describe(native, output_spec)
    described[SEAL] = seal(described)
    write_atomically(files[".json"], (json.dumps(described, indent=1) + "\n").encode())
    return FrozenFiles(
        description=files[".json"],
        object=files[".o"],
        header=files[".h"],
        shared_library=shared,
        is_sealed=described[SEAL] is not None,
        code=native.code,
    )


def load_frozen(model: Path | str, *, trusted: bool = False) -> tuple[NativeModel, Any]:
    """Read a frozen model: its folder or its ``NAME.json``.

    Args:
        model: the folder or file.
        trusted: take machine code of anybody's, not only what this user has frozen here.

    Returns:
        The model, and the parsed ``output_spec.json`` that it was frozen with, or ``None``.

    Raises:
        ModelError: files are missing or damaged, or made for another machine.
        OptionsError: it is somebody else's, and not trusted.

    >>> import tempfile
    >>> from mlgo_gym.model import find_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = freeze(find_model("inlining-for-size"), folder, name="inliner")
    ...     model, _ = load_frozen(folder)
    >>> model.name
    'inliner'
    """
    source = str(model)
    path = find_description(Path(model)) if Path(model).is_dir() else Path(model)
    if path is None:
        raise ModelError(source, "expected one frozen model in the folder")
    description = read_model_json(path, source)
    try:
        native = _parse(description, path, source)
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise ModelError(source, f"{path.name}: not a frozen model: {error!r}") from error
    check_machine(native)
    if not (trusted or is_sealed(description)):
        raise OptionsError(
            f"model {source!r}: expected machine code that this user has frozen on this machine, "
            f"found another's, which would run as this user; {HOW_TO_TRUST}"
        )
    return native, description["output_spec"]


def find_description(folder: Path) -> Path | None:
    """The description of the one frozen model in a folder, if there is exactly one."""
    found = [path for path in sorted(folder.glob("*.json")) if path.with_suffix(".o").is_file()]
    return found[0] if len(found) == 1 else None


def _describe(model: NativeModel, output_spec: Any) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "name": model.name,
        "inputs": [_describe_port(port) for port in model.inputs],
        "outputs": [_describe_port(port) for port in model.outputs],
        "operators": list(model.operators),
        "output_spec": output_spec,
        **{name: getattr(model.object, name) for name in _OBJECT_TEXTS},
        "model_sha256": model.model_sha256,
        "object_sha256": hashlib.sha256(model.object.data).hexdigest(),
        "instructions": model.instructions,
    }


def _describe_port(port: NativePort) -> dict[str, Any]:
    return {"tensor": port.tensor, "spec": json.loads(port.spec.to_json())}


def _parse(value: dict[str, Any], path: Path, source: str) -> NativeModel:
    if value["format"] != _FORMAT or value["version"] != _VERSION:
        raise ModelError(
            source,
            f"{path.name}: expected format {_FORMAT!r} {_VERSION}, "
            f"found {value['format']!r} {value['version']}",
        )
    texts = {key: value[key] for key in _TEXTS}
    if not all(isinstance(text, str) for text in (*texts.values(), *value["operators"])):
        raise ModelError(source, f"{path.name}: expected texts, found {texts}")
    if type(value["instructions"]) is not int:
        found = f"found {value['instructions']!r}"
        raise ModelError(source, f"{path.name}: expected a number of instructions, {found}")
    object_path = path.with_suffix(".o")
    try:
        data = read_bounded(object_path, _MAX_OBJECT_BYTES)
    except OSError as error:
        raise unreadable(error, source, object_path.name) from error
    if hashlib.sha256(data).hexdigest() != value["object_sha256"]:
        raise ModelError(source, f"{path.stem}.o: not the object that {path.name} describes")
    return NativeModel(
        name=_named(texts["name"], path, source),
        source=source,
        inputs=tuple(_parse_port(each) for each in value["inputs"]),
        outputs=tuple(_parse_port(each) for each in value["outputs"]),
        operators=tuple(value["operators"]),
        object=NativeObject(data, *(texts[key] for key in _OBJECT_TEXTS)),
        model_sha256=texts["model_sha256"],
        instructions=value["instructions"],
    )


def _named(name: str, path: Path, source: str) -> str:
    try:
        return check_name(name)
    except ModelError as error:
        raise ModelError(source, f"{path.name}: {error}") from error


def _parse_port(value: dict[str, Any]) -> NativePort:
    return NativePort(TensorSpec.from_value(value["spec"]), str(value["tensor"]))


def check_machine(model: NativeModel) -> None:
    """See that code can run on this machine.

    Raises:
        ModelError: it is for another kind, or this CPU lacks some of its instructions.
    """
    from mlgo_gym.llvm import default_triple, host_features  # noqa: PLC0415 - loads LLVM

    triple = default_triple()
    if model.object.triple != triple:
        raise ModelError(
            model.source, f"expected an object for {triple}, found one for {model.object.triple}"
        )
    wanted = {each[1:] for each in model.object.features.split(",") if each.startswith("+")}
    missing = sorted(wanted - host_features())
    if missing:
        raise ModelError(
            model.source,
            f"made for {model.object.cpu}: this CPU lacks {', '.join(missing)}",
        )


def _link(source: Path, target: Path) -> Path | None:
    driver = shutil.which("cc") or shutil.which("clang") or shutil.which("gcc")
    if driver is None:
        return None
    with scratch_folder() as folder:  # linkers replace what is there
        linked = folder / target.name
        done = run(
            [driver, "-shared", "-o", str(linked), str(source)],
            env={**os.environ, "TMPDIR": str(folder)},  # what it leaves when it is killed goes
            timeout=_LINK_TIMEOUT_S,
        )
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            raise EnvironmentSetupError(f"{driver} cannot link {source.name}: {words}")
        write_atomically(target, read_bounded(linked, _MAX_OBJECT_BYTES))
    return target
