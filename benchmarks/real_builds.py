"""Builds of real projects, extracted, and every module compiled back to the build's object.

- Lua 5.4 with its own Makefile (of the package lupa), the database from clang's own fragments;
- capstone 5 with CMake and Ninja;
- sentencepiece 0.2, C++, with CMake and Ninja;
- capstone once more with ThinLTO, linked by lld.

Code is equal where all code sections have the same names and bytes; the next count asks for the
same relocations too, in which LLVM's own names for constants may differ. Beside each build,
mlgo-utils extracts the same; its files must be the same.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.recipes import FOLDER
from corpus_tools import Manifest, find_clang, load_recipe, read_command
from corpus_tools.code import CodeSection, code_sections, difference
from corpus_tools.replay import replay
from corpus_tools.sdist import fetch_sdist, unpack_sources

EMBED = "-Xclang -fembed-bitcode=all"
# The sdist of capstone lacks its tests.
LIBRARY_ALONE = [f"-DCAPSTONE_BUILD_{part}=OFF" for part in ("TESTS", "CSTOOL", "CSTEST")]
THIN_LINK = "-Wl,--save-temps=import -Wl,--thinlto-emit-index-files"


def run(only: str | None = None) -> None:
    builds: dict[str, Callable[[Path], None]] = {
        "Lua, make": lua,
        "capstone, CMake and Ninja": capstone,
        "sentencepiece, CMake and Ninja": sentencepiece,
        "capstone, ThinLTO and lld": thin_capstone,
    }
    print("build                            modules   equal code   and relocations   as mlgo-utils")
    for title, measure in builds.items():
        if only and only not in title:
            continue
        with tempfile.TemporaryDirectory(prefix="mlgo_gym-") as name:
            print(f"{title:32}", end=" ", flush=True)
            measure(Path(name))


def lua(folder: Path) -> None:
    source = unpacked("lupa", folder) / "third-party" / "lua54"
    fragments = folder / "cdb"
    flags = f"-O2 -DLUA_USE_LINUX {EMBED} -gen-cdb-fragment-path {fragments}"
    link = ("MYLDFLAGS=-Wl,-E", "MYLIBS=-ldl", "AR=llvm-ar-22 rc", "RANLIB=true")
    call("make", "-C", source, "-j2", f"CC={clang()}", f"CFLAGS={flags}", *link)
    entries = [json.loads(path.read_text().rstrip(",\n")) for path in sorted(fragments.iterdir())]
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(entries))
    report(folder, source, ["--input", str(database)])


def capstone(folder: Path) -> None:
    build = cmake(unpacked("capstone", folder) / "src", folder, EMBED, *LIBRARY_ALONE)
    report(folder, build, ["--input", str(build / "compile_commands.json")])


def sentencepiece(folder: Path) -> None:
    build = cmake(unpacked("sentencepiece", folder) / "sentencepiece", folder, EMBED)
    report(folder, build, ["--input", str(build / "compile_commands.json")])


def thin_capstone(folder: Path) -> None:
    source = unpacked("capstone", folder) / "src"
    native = f"-Wl,--lto-obj-path={folder}/native/module.o"
    (folder / "native").mkdir()
    link = f"-fuse-ld=lld-22 {THIN_LINK} {native}"
    options = ["-DBUILD_SHARED_LIBS=ON", "-DBUILD_STATIC_LIBS=OFF", *LIBRARY_ALONE]
    options.append(f"-DCMAKE_SHARED_LINKER_FLAGS={link}")
    build = cmake(source, folder, "-flto=thin", *options)
    commands = call("ninja", "-C", build, "-t", "commands").splitlines()
    linked = next(line for line in commands if THIN_LINK.split(maxsplit=1)[0] in line)
    (folder / "link.txt").write_text(linked)
    arguments = ["--thinlto_build", "local", "--obj_base_dir", str(build)]
    parameters = ["--input", str(folder / "link.txt"), "--input_type", "params"]
    report(folder, folder / "native", arguments, parameters)


def unpacked(recipe_name: str, folder: Path) -> Path:
    recipe = load_recipe(recipe_name)
    cache = FOLDER.parent / "sdists"
    cache.mkdir(parents=True, exist_ok=True)
    return unpack_sources(recipe, fetch_sdist(recipe, cache), folder)


def cmake(source: Path, folder: Path, flags: str, *options: str) -> Path:
    build = folder / "build"
    compilers = [
        f"-DCMAKE_C_COMPILER={clang()}",
        f"-DCMAKE_CXX_COMPILER={shutil.which('clang++-22')}",
    ]
    both = [f"-DCMAKE_{language}_FLAGS={flags}" for language in ("C", "CXX")]
    general = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    call("cmake", "-S", source, "-B", build, "-G", "Ninja", *compilers, *both, *general, *options)
    call("ninja", "-C", build)
    return build


def report(
    folder: Path, objects: Path, arguments: Sequence[str], only_ours: Sequence[str] = ()
) -> None:
    """Extract with both tools, compile back, and print what came of it."""
    ours, theirs = folder / "ours", folder / "theirs"
    theirs.mkdir()
    module = "corpus_tools.extraction.command"
    tool = [sys.executable, "-m", module, *arguments, *only_ours, "--output_dir", str(ours)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    objcopy = ["--llvm_objcopy_path", shutil.which("llvm-objcopy-22") or "llvm-objcopy"]
    peer = ["mlgo.corpus.extract_ir", *objcopy, *arguments, "--output_dir", str(theirs)]
    call(sys.executable, "-m", *peer)
    manifest = Manifest.read(ours)
    back = [compiles_back(ours, manifest, name, objects) for name in manifest.modules]
    equal, relocations = (sum(each[at] for each in back) for at in (0, 1))
    same = compare(ours, theirs)
    print(f"{len(manifest.modules):7} {equal:12} {relocations:17}   {same}")
    if done.returncode:
        print(done.stdout + done.stderr)


def compiles_back(corpus: Path, manifest: Manifest, name: str, objects: Path) -> tuple[bool, bool]:
    """Whether a build's object has the same code, and the same relocations too."""
    command = manifest.global_command_override or read_command(corpus / f"{name}.cmd")
    index = corpus / f"{name}.thinlto.bc" if manifest.has_thinlto else None
    data = replay(find_clang(), name, corpus / f"{name}.bc", command, index=index)
    found = code_sections(data, name)
    candidates = sorted(objects.iterdir()) if index else [objects / name]
    originals = [code_sections(path.read_bytes(), path.name) for path in candidates]
    alike = [each for each in originals if contents(each) == contents(found)]
    return bool(alike), any(difference(each, found) is None for each in alike)


def contents(sections: Sequence[CodeSection]) -> list[tuple[str, bytes]]:
    return [(section.name, section.content) for section in sections]


def compare(ours: Path, theirs: Path) -> str:
    """How many of mlgo-utils' files are the same here; the manifests' modules in any order."""
    names = [path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file()]
    same = sum(
        (ours / name).is_file() and filecmp.cmp(ours / name, theirs / name, shallow=False)
        for name in names
        if name.name != "corpus_description.json"
    )
    listed = [set(Manifest.read(folder).modules) for folder in (ours, theirs)]
    more = len(listed[0] - listed[1])
    return f"{same} of {len(names) - 1}" + (f", {more} modules more" if more else "")


def clang() -> str:
    return str(find_clang(shutil.which("clang-22")).path)


def call(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
