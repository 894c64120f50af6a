"""The shell commands that build a project again, by its own build system, with ``mlgo-cc``."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from corpus_tools.reading import own_file
from mlgo_gym.base import OptionsError, read_bounded, read_json, write_atomically

CMAKE_CACHE: Final = "CMakeCache.txt"

_MAX_BYTES: Final = 1 << 26
_DRIVERS: Final = {"CC": "mlgo-cc", "CXX": "mlgo-c++"}
_ENTRY: Final = re.compile(r"^([\w.+-]+):([A-Z]+)=(.*)$", re.MULTILINE)
"""Of names that CMake has to quote, which it writes so, nothing is taken."""
_SET: Final = frozenset({"BOOL", "STRING", "PATH", "FILEPATH"})
"""Kinds of entries that people set, or CMake finds for them; others are its own."""
_TOOL: Final = re.compile(
    r"CMAKE_(\w+_COMPILER(?!_(?:AR|RANLIB)$)\w*|ADDR2LINE|AR|DLLTOOL|\w*LINKER|NM|OBJ\w+|RANLIB|READELF|STRIP|TAPI)"
)
"""Programs that CMake looks for beside the compiler, but for those that it takes for LTO: it would
look for ``mlgo-llvm-ar``, as it would for a cross compiler's."""
_EMBEDDING: Final = re.compile(r"-Xclang\s+-fembed-bitcode=\w+|-fembed-bitcode(?:=\w+)?")
_MESON_LINE: Final = Path("meson-private", "cmd_line.txt")
_MESON_INFO: Final = Path("meson-info", "meson-info.json")
_MESON_OPTIONS: Final = Path("meson-info", "intro-buildoptions.json")
_MESON_ARGUMENTS: Final = re.compile(r"\w+_(link_)?args")
"""Options of Meson that also take the value of ``CFLAGS`` and the like."""
_REWRITTEN: Final = frozenset("$'\"\\;")
"""Characters that make or CMake take for their own, however a shell has them quoted."""
_UNREADABLE: Final = (
    *(configparser.Error, OSError, ValueError, SyntaxError, TypeError, LookupError),
    *(MemoryError, RecursionError),  # of what `ast.literal_eval` is given
)
_CONFIG_STATUS: Final = "config.status"
_WORKSPACES: Final = ("MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel")


def build_commands(
    build: Path | None,
    model: Path | None,
    traces: Path | None = None,
    project: Path | None = None,
    initial_cache: Path | None = None,
    *,
    keeps_smaller: bool = True,
) -> Sequence[str]:
    """The commands that build a project with a model, or plainly.

    They are those of the build system that has made a folder: CMake, Meson, Bazel, or else make.
    With CMake and Meson, another folder gets the settings of the first one.

    Args:
        build: the folder of the build that it was tuned by, or its ``compile_commands.json``.
        model: the model; ``None`` is LLVM's own heuristic.
        traces: the folder with the answers that a search found for its modules.
        project: its project file.
        initial_cache: where the settings of CMake's build are written, for the second one.
        keeps_smaller: with a model, keep LLVM's own object where that has less code.

    Raises:
        OptionsError: they cannot be written, or a path cannot stand in them.
    """
    settings = driver_settings(model, traces, project, keeps_smaller=keeps_smaller)
    _check_words(settings)
    options = shlex.join(settings)
    compilers = {name: f"{driver} {options}".strip() for name, driver in _DRIVERS.items()}
    words = [f"{name}={shlex.quote(text)}" for name, text in compilers.items()]
    wrapped = " ".join(words) if settings else ""
    root = build and (build if build.is_dir() else build.parent)
    if root is None:
        return [f"make {wrapped}".strip()]
    if (root / CMAKE_CACHE).is_file():
        commands = _cmake_commands(root, wrapped, initial_cache)
    elif (root / _MESON_LINE).is_file() and (root / _MESON_INFO).is_file():
        commands = _meson_commands(root, wrapped)
    elif any((root / name).is_file() for name in _WORKSPACES):
        commands = _bazel_commands(settings)
    else:
        commands = _make_commands(root, wrapped)
    _check_lines(commands, root)
    return commands


def driver_settings(
    model: Path | None, traces: Path | None, project: Path | None, *, keeps_smaller: bool = True
) -> list[str]:
    """The options by which ``mlgo-cc`` compiles as was tuned; see `build_commands`."""
    options = [f"--mlgo-project={project.absolute()}"] if project else []
    options += [f"--mlgo-traces={traces.absolute()}"] if traces else []
    if model:
        options += ["--mlgo-keep-smaller"] if keeps_smaller else []
        options += [f"--mlgo-inlining-model={model.absolute()}"]
    return options


def _make_commands(root: Path, wrapped: str) -> list[str]:
    """Build everything again in the folder, since make does not look at ``CC``."""
    make = f"make -C {shlex.quote(str(root.absolute()))}"
    if not wrapped:
        return [make]
    if (root / _CONFIG_STATUS).is_file():
        # With -B, make would run configure again, and automake.
        return [f"{make} clean", f"{make} {wrapped}"]
    return [f"{make} -B {wrapped}"]


def _check_words(words: Iterable[str]) -> None:
    for word in words:
        if not word.isprintable() or not _REWRITTEN.isdisjoint(word):
            raise OptionsError(
                "expected a folder whose path make and CMake leave as it is, without control "
                f"characters and any of {' '.join(sorted(_REWRITTEN))}, found {word!r}"
            )


def _check_lines(commands: Iterable[str], build: Path) -> None:
    """See that nothing that a build's files say ends a line, or is not seen when it is printed."""
    for each in commands:
        if not each.isprintable():
            expected = "expected settings without control characters"
            raise OptionsError(f"build {str(build)!r}: {expected}, found {each!r}")


def _cmake_commands(root: Path, wrapped: str, initial_cache: Path | None) -> list[str]:
    entries = _entries(root)
    known = {name: value for name, _, value in entries}
    source, target = known.get("CMAKE_HOME_DIRECTORY", "."), f"{root.absolute()}-tuned"
    first = ["cmake", "-S", shlex.quote(source), "-B", shlex.quote(target)]
    if generator := known.get("CMAKE_GENERATOR"):
        first += ["-G", shlex.quote(generator)]
    if initial_cache is not None:
        _write_settings(initial_cache, root, entries)
        first += ["-C", shlex.quote(str(initial_cache.absolute()))]
    return [f"{wrapped} {' '.join(first)}".strip(), f"cmake --build {shlex.quote(target)}"]


def _entries(root: Path) -> list[tuple[str, str, str]]:
    cache = root / CMAKE_CACHE
    try:
        text = read_bounded(own_file(cache, root), _MAX_BYTES).decode("utf-8", "replace")
        return _ENTRY.findall(text)
    except OSError as error:
        raise OptionsError(f"{str(cache)!r}: cannot be read: {error.strerror}") from error


def _write_settings(path: Path, build: Path, entries: Iterable[tuple[str, str, str]]) -> None:
    """Write a script for ``cmake -C`` by which another folder has the settings of a build.

    Left out are the compiler and its tools, what was not found, and places in the build's folder.
    """
    kept = [
        (name, kind, _EMBEDDING.sub("", value).strip())
        for name, kind, value in entries
        if kind in _SET and not _TOOL.fullmatch(name) and not value.endswith("-NOTFOUND")
        if str(build.absolute()) not in value
    ]
    lines = [
        f"set({name} [==[{value}]==] CACHE {kind} [==[]==])\n"
        for name, kind, value in kept
        if "]==]" not in f"{value}]"
    ]
    try:
        write_atomically(path, "".join(lines).encode())
    except OSError as error:
        raise OptionsError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _meson_commands(root: Path, wrapped: str) -> list[str]:
    """Set up another folder by the options that the first one was set up with.

    Compilers that a cross file names are the user's to replace, which a comment says.
    """
    try:
        places = (_MESON_LINE, _MESON_INFO, _MESON_OPTIONS)
        set_up, info, known = (own_file(root / each, root) for each in places)
        options, files = _meson_line(set_up)
        source = read_json(info, _MAX_BYTES)["directories"]["source"]
        for each in read_json(known, _MAX_BYTES):
            if _MESON_ARGUMENTS.fullmatch(each["name"]) and each["value"]:
                options[each["name"]] = str(_unembedded(each["value"]))
    except _UNREADABLE as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise OptionsError(
            f"build {str(root)!r}: expected Meson's options, found {text}"
        ) from error
    target = f"{root.absolute()}-tuned"
    line = ["meson", "setup", source, target]
    line += [f"--{kind}={path}" for kind, path in files]
    line += [f"-D{name}={value}" for name, value in options.items()]
    commands = [f"{wrapped} {shlex.join(line)}".strip(), f"ninja -C {shlex.quote(target)}"]
    crossed = [path for kind, path in files if kind == "cross-file"]
    if crossed and wrapped:
        commands.insert(
            0, f"# let c and cpp of {shlex.join(crossed)} be the commands of CC and CXX"
        )
    return commands


def _meson_line(path: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The options of ``meson setup`` by name, and its native and cross files."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(read_bounded(path, _MAX_BYTES).decode("utf-8", "replace"))
    files = [
        (kind.replace("_", "-"), str(each))
        for kind in ("native_file", "cross_file")
        for each in ast.literal_eval(parser.get("properties", kind, fallback="[]"))
    ]
    return dict(parser["options"]), files


def _unembedded(arguments: Any) -> Any:
    """Without the option that puts bitcode into objects."""
    if not isinstance(arguments, list):
        return arguments
    text = shlex.join(map(str, arguments))
    return shlex.split(_EMBEDDING.sub("", text))


def _bazel_commands(settings: Sequence[str]) -> list[str]:
    """Let Bazel's actions see the settings, whose fingerprint is a part of their keys."""
    if not settings:
        return ["bazel build //..."]
    variables = {"MLGO_CACHE": '"${MLGO_CACHE:-$HOME/.cache/mlgo-gym}"'}
    for each in settings:
        name, _, value = each.removeprefix("--").partition("=")
        variables[name.replace("-", "_").upper()] = shlex.quote(value or "1")
    exported = " ".join(f"{name}={value}" for name, value in variables.items())
    passed = " ".join(f"--action_env={name}" for name in variables)
    key = '--action_env=MLGO_KEY="$(mlgo-cc --mlgo-fingerprint | sha256sum)"'
    place = '--sandbox_writable_path="$MLGO_CACHE"'
    return [
        f"export {exported}",
        f'bazel build --repo_env=CC="$(command -v mlgo-cc)" {passed} {key} {place} //...',
    ]
