"""The cache: whatever is wrong in it, the right model answers, or plain clang with a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlgo_gym.cc import _prepare
from mlgo_gym.cc._kept import is_kept
from mlgo_gym.cc._prepare import PROGRAMS
from mlgo_gym.cc._prepare import main as prepare
from tests.cc.conftest import (
    MODELS,
    NEVER,
    Driver,
    Objects,
    compile_file,
    elsewhere,
    folder_of,
    only,
    scraps,
)
from tests.conftest import one_in

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root: who else gives files away")


def no_model(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "none"
    folder.mkdir(exist_ok=True)
    (folder / "model.tflite").write_text("this is no model")
    return {"MLGO_INLINING_MODEL": str(folder)}


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip(path: Path, at: int) -> None:
    """In place."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(at % end)
        byte = file.read(1)[0]
        file.seek(at % end)
        file.write(bytes([byte ^ 0x10]))


def flip_unseen(path: Path) -> None:
    """The times are set back."""
    about = path.stat()
    flip(path, -1)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def link(path: Path) -> None:
    target = path.rename(path.parents[2] / "x")
    target.chmod(0o755)
    path.symlink_to(target)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: rewrite(path, lambda _: b""),
    "flipped": lambda path: flip(path, path.stat().st_size // 2),
    "foreign": lambda path: os.chown(path, NOBODY, NOBODY),
    "missing": lambda path: path.unlink(),
    "truncated": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "flipped, and its times set back": flip_unseen,
    "777": lambda path: path.chmod(0o777),
    "a link": link,
    "a folder": make_folder,
}
FILES = ("bin/mlgo-cc", "kept/inlining-*.so", "kept/clang-*", "kept/inside.so")


CASES = [(damage, pattern) for damage in DAMAGES for pattern in FILES]


def damage_it(path: Path, damage: str) -> None:
    if damage == "foreign" and not IS_ROOT:
        pytest.skip("needs root: who else gives files away")
    DAMAGES[damage](path)


@pytest.mark.e2e
@pytest.mark.parametrize("case", one_in(8, CASES), ids=", ".join)
def test_a_damaged_file(own: Driver, work: Path, objects: Objects, case: tuple[str, str]) -> None:
    damage, pattern = case
    path = only(own, pattern)
    damage_it(path, damage)
    made, words = compile_file(own, work, NEVER)
    assert objects.allow(made, words), words
    assert compile_file(own, work, NEVER) == (objects.never, b"")
    assert is_kept(path, is_program="bin" in pattern)


@pytest.mark.parametrize("damage", one_in(4, list(DAMAGES)))
def test_a_damaged_refusal(
    own: Driver, work: Path, tmp_path: Path, plain: bytes, damage: str
) -> None:
    """What others may have written of a model is not believed."""
    settings = no_model(tmp_path)
    expected = compile_file(own, work, settings)
    assert b"not a TFLite file" in expected[1]
    assert expected[0] == plain
    damage_it(path := only(own, "kept/*.error"), damage)
    for _ in range(2):
        assert compile_file(own, work, settings) == expected
    assert is_kept(path)


FOLDERS = [
    (damage, name) for damage in ("777", "foreign", "missing") for name in ("bin", "", "kept")
]


@pytest.mark.e2e
@pytest.mark.parametrize("case", one_in(6, FOLDERS), ids=", ".join)
def test_a_damaged_folder(own: Driver, work: Path, objects: Objects, case: tuple[str, str]) -> None:
    """What was in one that others could write to counts for nothing."""
    damage, name = case
    folder = folder_of(own) / name
    planted = folder / "planted"
    planted.touch()
    if damage == "missing":
        shutil.rmtree(folder)
    else:
        damage_it(folder, damage)
    made, words = compile_file(own, work, NEVER)
    assert objects.allow(made, words), words
    assert compile_file(own, work, NEVER) == (objects.never, b"")
    assert folder.stat().st_mode & 0o7777 == 0o1700
    assert not planted.exists()
    assert not scraps(own)


def test_a_folder_without_the_bit_that_scripts_look_for(
    own: Driver, work: Path, objects: Objects
) -> None:
    folder = folder_of(own) / "bin"
    folder.chmod(0o700)
    assert compile_file(own, work, NEVER) == (objects.never, b"")
    assert folder.stat().st_mode & 0o7777 == 0o1700


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_on_the_way_that_others_write_to(
    own: Driver, work: Path, tmp_path: Path, objects: Objects, mode: int
) -> None:
    """In it they could put another cache in this one's place: nothing is used of it, or made."""
    way = tmp_path / "way"
    way.mkdir()
    used = elsewhere(own, way / "own")
    shutil.copytree(tmp_path / "own", way / "own")
    assert compile_file(used, work, NEVER) == (objects.never, b"")
    way.chmod(mode)
    if mode == 0o770:
        os.chown(way, -1, NOBODY if IS_ROOT else os.getgid())
        if way.stat().st_gid == way.stat().st_uid:
            pytest.skip("the only group is the user's own")
    warning = (
        f"mlgo-cc: warning: '{way}': expected a folder that nobody else can write to, found owner "
        f"{os.geteuid()}, mode {mode:04o}; MLGO_CACHE names another; compiled by plain clang\n"
    )
    for driver in (used, elsewhere(own, way / "new")):
        for _ in range(2):
            assert compile_file(driver, work, NEVER) == (objects.plain, warning.encode())
    assert not (way / "new").exists()
    way.chmod(0o1777)  # as /tmp: in it they can replace only what is theirs
    assert compile_file(used, work, NEVER) == (objects.never, b"")


@pytest.mark.e2e
@needs_root
def test_a_cache_of_somebody_else(
    own: Driver, work: Path, tmp_path: Path, plain: bytes, never: bytes
) -> None:
    """Not even root runs what it finds there."""
    ran = tmp_path / "ran"
    for name in PROGRAMS:
        program = folder_of(own) / "bin" / name
        program.write_text(f"#!/bin/sh\ntouch {ran}\n")
        os.utime(program, (0, 0))
    whole = tmp_path / "own"
    for each in (whole, *whole.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    warning = (
        f"mlgo-cc: warning: '{whole}': expected a folder that nobody else can write to, found "
        f"owner {NOBODY}, mode {whole.stat().st_mode & 0o7777:04o}; MLGO_CACHE names another; "
        "compiled by plain clang\n"
    )
    assert compile_file(own, work, NEVER) == (plain, warning.encode())
    for each in (whole, *folder_of(own).parents):
        if each.is_relative_to(whole):
            os.chown(each, 0, 0)
    assert compile_file(own, work, NEVER) == (never, b"")
    assert not ran.exists()


@needs_root
@pytest.mark.e2e
def test_a_cache_that_root_made_for_others(
    own: Driver, work: Path, tmp_path: Path, never: bytes
) -> None:
    """They may use it, and nothing of it is theirs."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="mlgo-"))
    shutil.copytree(tmp_path / "own", place / "own")
    try:
        for each in (place, *place.rglob("*")):
            each.chmod(0o755)
        (place / "work").mkdir()
        shutil.copy(work / "f.c", place / "work")
        os.chown(place / "work", NOBODY, NOBODY)
        # The script would ask Python first, which may not be for others.
        command = [str(elsewhere(own, place / "own").program()), "-O2", "-c", "f.c"]
        done = subprocess.run(
            command, cwd=place / "work", capture_output=True, check=False,
            env={**own.environment, **NEVER, "TMPDIR": str(place / "work")},
            user=NOBODY, group=NOBODY, extra_groups=[],
        )  # fmt: skip
        if b"cannot be read: Permission denied" in done.stderr:
            pytest.skip("this checkout is not for others to read")
        assert (done.returncode, done.stderr) == (0, b"")
        assert (place / "work" / "f.o").read_bytes() == never
    finally:
        shutil.rmtree(place)


@pytest.mark.e2e
def test_the_cache_s_files_are_the_user_s_alone(own: Driver, work: Path, tmp_path: Path) -> None:
    """Whatever the umask is."""
    new = elsewhere(own, tmp_path / "new")
    mask = os.umask(0)
    try:
        compile_file(new, work, NEVER)
    finally:
        os.umask(mask)
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert [each for each in found if each.stat().st_mode & 0o077] == []
    assert not scraps(new)


@pytest.mark.parametrize("swaps", [10, pytest.param(100, marks=pytest.mark.e2e)])
def test_models_of_one_size_time_and_inode(
    driver: Driver, work: Path, tmp_path: Path, objects: Objects, swaps: int
) -> None:
    """What is in a file counts, not when it was written."""
    folder = tmp_path / "model"
    shutil.copytree(MODELS / "never", folder, ignore=shutil.ignore_patterns("card.json"))
    graph = folder / "model.tflite"
    graphs = [(MODELS / name / graph.name).read_bytes() for name in ("never", "default")]
    size = max(map(len, graphs))
    graph.write_bytes(bytes(size))
    about = graph.stat()
    settings = {"MLGO_INLINING_MODEL": str(folder), "MLGO_SIZE_INCREASE_THRESHOLD": "1e9"}
    for number in range(swaps):
        with graph.open("r+b") as file:
            file.write(graphs[number % 2].ljust(size, b"\0"))
        os.utime(graph, ns=(about.st_atime_ns, about.st_mtime_ns))
        found = graph.stat()
        assert (found.st_ino, found.st_size, found.st_mtime_ns) == (
            about.st_ino, size, about.st_mtime_ns,
        )  # fmt: skip
        expected = objects.plain if number % 2 else objects.never
        assert compile_file(driver, work, settings) == (expected, b""), number


def test_a_model_that_changes_while_it_is_compiled(
    own: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy is kept under the key of what it was made of, or not at all."""
    library = folder_of(own) / "kept" / f"inlining-{'0' * 32}.so"
    refusal = library.with_suffix(".error")
    command = [
        "policy",
        "inlining",
        str(MODELS / "never"),
        *map(str, (library, refusal)),
        own.clang,
        "",
    ]
    assert prepare(command) == 1
    words = f"model '{MODELS}/never': changed while it was read\n"
    assert capsys.readouterr().err == words
    assert not library.exists()
    assert not refusal.exists()


@pytest.mark.e2e
def of_an_installation(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Driver, Path]:
    """A driver that was made of another folder's sources, and that folder."""
    new = elsewhere(driver, tmp_path / "cache")
    older = shutil.copytree(_prepare.NATIVE, tmp_path / "native")
    os.utime(older, (1, 1))
    monkeypatch.setattr(_prepare, "NATIVE", older)
    (tmp_path / "cache").mkdir(mode=0o700)
    _prepare.build_driver(folder_of(new))
    return new, older


@pytest.mark.e2e
def test_an_installation_over_the_same_version(
    driver: Driver, work: Path, never: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver sees that its sources are others now; all that was made of them is made anew."""
    new, older = of_an_installation(driver, tmp_path, monkeypatch)
    assert compile_file(new, work, NEVER) == (never, b"")

    def made() -> dict[str, int]:
        return {each.name: each.stat().st_ino for each in folder_of(new).glob("*/*")}

    before = made()
    compile_file(new, work, NEVER)
    assert made() == before
    os.utime(older, (2, 2))
    line = ("-O2", "-x", "c++", "-c", "f.c", "-o", "g.o")
    done = new.run(*line, cwd=work, cxx=True, settings=NEVER)
    assert (done.returncode, done.stderr) == (0, b"")
    after = made()
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in after if not name.startswith("clang"))
    compile_file(new, work, NEVER)
    assert made() == after
    assert not scraps(new)


@pytest.mark.e2e
def test_many_compilations_right_after_an_installation(
    driver: Driver, work: Path, never: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, older = of_an_installation(driver, tmp_path, monkeypatch)
    os.utime(older, (2, 2))

    def compile_as(name: str) -> tuple[int, bytes]:
        done = new.run("-O2", "-c", "f.c", "-o", name, cwd=work, settings=NEVER)
        return done.returncode, done.stderr

    names = [f"{number}.o" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        assert set(pool.map(compile_as, names)) == {(0, b"")}
    assert {(work / name).read_bytes() for name in names} == {never}
    assert not scraps(new)


def test_a_driver_that_is_empty_is_no_script(own: Driver, work: Path) -> None:
    """A shell would run it and say that all went well."""
    program = own.program()
    rewrite(program, lambda _: b"")
    os.utime(program, (0, 0))
    (work / "f.o").unlink()
    assert own.run("-c", "f.c", cwd=work).returncode == 0
    assert (work / "f.o").stat().st_size
