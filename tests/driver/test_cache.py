"""The cache: whatever is wrong in it, the right model answers, or plain clang with a warning."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from mlgo_gym import __version__
from mlgo_gym.driver._kept import is_kept
from mlgo_gym.driver._prepare import main as prepare
from tests.conftest import one_in, require
from tests.driver.conftest import MODELS, ROOT, SANITIZED, Driver

NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root: who else gives files away")
PLAIN = b"; compiled by plain clang\n"


def elsewhere(driver: Driver, cache: Path) -> Driver:
    return replace(driver, environment={**driver.environment, "MLGO_CACHE": str(cache)})


def folder_of(driver: Driver) -> Path:
    return driver.program().parents[1]


def only(driver: Driver, pattern: str) -> Path:
    (found,) = folder_of(driver).glob(pattern)
    return found


def scraps(driver: Driver) -> list[str]:
    """What is there besides what is kept."""
    folder = folder_of(driver)
    found = [*folder.iterdir(), *folder.glob("*/*")]
    known = {"bin", "kept", "mlgo-cc", "mlgo-c++"}
    return [each.name for each in found if each.name not in known and not is_kept(each)]


def no_model(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "none"
    folder.mkdir(exist_ok=True)
    (folder / "model.tflite").write_text("this is no model")
    return {"MLGO_INLINING_MODEL": str(folder)}


def compile_file(driver: Driver, work: Path, settings: dict[str, str]) -> tuple[bytes, bytes]:
    """The object and what was said; the driver may not succeed without an object."""
    (work / "f.o").unlink(missing_ok=True)
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    assert done.returncode == 0, done.stderr
    return (work / "f.o").read_bytes(), done.stderr


@pytest.fixture
def plain(driver: Driver, work: Path) -> bytes:
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    return (work / "f.o").read_bytes()


@pytest.fixture
def never(driver: Driver, work: Path, plain: bytes) -> bytes:
    made, words = compile_file(driver, work, NEVER)
    assert (made != plain, words) == (True, b"")
    return made


@pytest.fixture(scope="session")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("used") / "cache"


@pytest.fixture
def own(driver: Driver, cache: Path, used: Path, work: Path, never: bytes) -> Driver:
    """With a copy of a cache that has been used for one model."""
    assert never
    if not used.exists():
        shutil.copytree(cache, used)
        for each in (folder_of(elsewhere(driver, used)) / "kept").iterdir():
            each.unlink()
        compile_file(elsewhere(driver, used), work, NEVER)
    target = work.parent / "own"
    shutil.copytree(used, target)
    return elsewhere(driver, target)


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


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: rewrite(path, lambda _: b""),
    "flipped": lambda path: flip(path, path.stat().st_size // 2),
    "foreign": lambda path: os.chown(path, NOBODY, NOBODY),
    "missing": lambda path: path.unlink(),
    "truncated": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "flipped, and its times set back": flip_unseen,
    "777": lambda path: path.chmod(0o777),
    "a link": lambda path: path.rename(path.parents[2] / "x").chmod(0o755) or path.symlink_to("x"),
    "a folder": lambda path: path.unlink() or path.mkdir(),
}
PLACES = ("bin", "kept")
FILES = ("bin/mlgo-cc", "kept/inlining-*.so", "kept/clang-*")


CASES = [(damage, pattern) for damage in DAMAGES for pattern in FILES]


@dataclass(frozen=True)
class Objects:
    """What the driver may make of the file: with the model, and without."""

    never: bytes
    plain: bytes

    def allow(self, made: bytes, words: bytes) -> bool:
        advised = (made, words) == (self.never, b"")
        return advised or (made == self.plain and words.endswith(PLAIN))


@pytest.fixture
def objects(never: bytes, plain: bytes) -> Objects:
    return Objects(never, plain)


def damage_it(path: Path, damage: str) -> None:
    if damage == "foreign" and not IS_ROOT:
        pytest.skip("needs root: who else gives files away")
    DAMAGES[damage](path)


@pytest.mark.parametrize("case", one_in(4, CASES), ids=", ".join)
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


@pytest.mark.parametrize("case", one_in(3, FOLDERS), ids=", ".join)
def test_a_damaged_folder(own: Driver, work: Path, objects: Objects, case: tuple[str, str]) -> None:
    """What was in one that others could write to counts for nothing."""
    damage, name = case
    folder = folder_of(own) / name
    old = {each.stat().st_ino for each in folder.rglob("*")}
    if damage == "missing":
        shutil.rmtree(folder)
    else:
        damage_it(folder, damage)
    made, words = compile_file(own, work, NEVER)
    assert objects.allow(made, words), words
    assert compile_file(own, work, NEVER) == (objects.never, b"")
    assert folder.stat().st_mode & 0o7777 == 0o1700
    assert damage == "missing" or old.isdisjoint(each.stat().st_ino for each in folder.iterdir())
    assert not scraps(own)


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


@needs_root
def test_a_cache_of_somebody_else(
    own: Driver, work: Path, tmp_path: Path, plain: bytes, never: bytes
) -> None:
    """Not even root runs what it finds there."""
    ran = tmp_path / "ran"
    for each in ("mlgo-cc", "mlgo-c++"):
        program = folder_of(own) / "bin" / each
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
    os.chown(whole, 0, 0)
    for each in whole.glob("cc-*/**/"):
        if each != folder_of(own) and each not in folder_of(own).parents:
            continue
        os.chown(each, 0, 0)
    assert compile_file(own, work, NEVER) == (never, b"")
    assert not ran.exists()


@needs_root
@pytest.mark.e2e
def test_a_cache_that_root_made_for_others(
    own: Driver, work: Path, tmp_path: Path, never: bytes
) -> None:
    """They may use it, and nothing of it is theirs."""
    place = Path("/var/tmp") / tmp_path.name
    shutil.copytree(tmp_path / "own", place / "own")
    try:
        for each in (place, *place.rglob("*")):
            each.chmod(0o755)
        (place / "work").mkdir()
        shutil.copy(work / "f.c", place / "work")
        os.chown(place / "work", NOBODY, NOBODY)
        environment = {**own.environment, **NEVER, "MLGO_CACHE": str(place / "own")}
        done = subprocess.run(
            own.command("-O2", "-c", "f.c"), cwd=place / "work", capture_output=True, check=False,
            env=environment | {"TMPDIR": "/tmp"}, user=NOBODY, group=NOBODY, extra_groups=[],
        )  # fmt: skip
        if b"ermission denied" in done.stderr:
            pytest.skip("this checkout is not for others to read")
        assert (done.returncode, done.stderr) == (0, b"")
        assert (place / "work" / "f.o").read_bytes() == never
    finally:
        shutil.rmtree(place)


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
    ]
    assert prepare(command) == 1
    words = f"model '{MODELS}/never': changed while it was read\n"
    assert capsys.readouterr().err == words
    assert not library.exists()
    assert not refusal.exists()


def kill_when_seen(driver: Driver, work: Path, word: str) -> bytes:
    """Kill a process of a compilation that has a word in its command line; returns what is said."""
    process = psutil.Popen(
        driver.command("-O2", "-c", "f.c"), cwd=work, env={**driver.environment, **NEVER},
        stderr=subprocess.PIPE,
    )  # fmt: skip
    is_killed = False
    while process.poll() is None:
        for each in () if is_killed else process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(word in text for text in each.cmdline()):
                    each.kill()
                    is_killed = True
    _, words = process.communicate()
    assert is_killed, words
    return bytes(words)


def test_a_compiler_that_was_killed_is_not_the_model_s_fault(
    own: Driver, work: Path, never: bytes
) -> None:
    only(own, "kept/inlining-*.so").unlink()
    words = kill_when_seen(own, work, "mlgo_gym.native._compiler")
    assert b"the compiler died with status -9" in words
    assert words.endswith(PLAIN)
    assert compile_file(own, work, NEVER) == (never, b"")


def test_the_process_that_freezes_is_killed(own: Driver, work: Path, never: bytes) -> None:
    only(own, "kept/inlining-*.so").unlink()
    words = kill_when_seen(own, work, "mlgo_gym.driver._prepare")
    expected = b"mlgo-cc: warning: the process that compiles the inlining model was killed"
    assert words == expected + PLAIN
    assert compile_file(own, work, NEVER) == (never, b"")
    assert not scraps(own)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


@pytest.mark.parametrize("pattern", ["bin/mlgo-cc", "kept/inlining-*.so"])
def test_a_lock_is_waited_for_as_long_as_was_said(
    own: Driver, work: Path, plain: bytes, never: bytes, pattern: str
) -> None:
    only(own, pattern).unlink()
    with locked(folder_of(own)):
        found = compile_file(own, work, NEVER | {"MLGO_TIMEOUT": "0.5"})
    words = (
        f"mlgo-cc: warning: '{folder_of(own)}': expected another process to be done with it within "
        "0.5 s; MLGO_TIMEOUT allows more; compiled by plain clang\n"
    )
    assert found == (plain, words.encode())
    assert compile_file(own, work, NEVER) == (never, b"")


@pytest.mark.parametrize("pattern", one_in(2, ["kept/inlining-*.so", "bin/mlgo-cc"]))
def test_files_that_cannot_be_finished(
    own: Driver, work: Path, objects: Objects, pattern: str
) -> None:
    """A limit stands for a full disk: what compilers leave of theirs goes."""
    only(own, pattern).unlink()
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 8 && exec "$@"', "sh", *own.command("-O2", "-c", "f.c")],
        cwd=work, env={**own.environment, **NEVER}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.endswith(PLAIN)
    assert (work / "f.o").read_bytes() == objects.plain
    assert not scraps(own)
    assert compile_file(own, work, NEVER) == (objects.never, b"")


@needs_root
@pytest.mark.e2e
def test_a_full_disk(own: Driver, work: Path, tmp_path: Path, plain: bytes, never: bytes) -> None:
    """Of many sizes: whatever finds no room, nothing is left that is not whole."""
    place, mount = tmp_path / "small", require("mount", "mount")
    place.mkdir()
    full = 0
    for size_kib in range(16, 320, 24):
        options = ["-t", "tmpfs", "-o", f"mode=700,size={size_kib}k"]
        if subprocess.run([mount, *options, "none", place], check=False).returncode:
            pytest.skip("needs leave to mount")
        try:
            driver = elsewhere(own, place)
            made, words = compile_file(driver, work, NEVER)
            assert (made, words) == (never, b"") or (made == plain and words.endswith(PLAIN))
            full += made == plain
            assert not folder_of(driver).exists() or not scraps(driver)
            subprocess.run([mount, "-o", "remount,size=4m", place], check=True)
            assert compile_file(driver, work, NEVER) == (never, b"")
        finally:
            subprocess.run([require("umount", "mount"), place], check=True)
    assert 2 < full < 12


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_many_first_uses_at_once(own: Driver, work: Path, tmp_path: Path, never: bytes) -> None:
    new = elsewhere(own, tmp_path / "new")
    processes = [
        subprocess.Popen(
            new.command("-O2", "-c", "f.c", "-o", f"{number}.o"),
            cwd=work, env={**new.environment, **NEVER}, stderr=subprocess.PIPE,
        )
        for number in range(32)
    ]  # fmt: skip
    said = [each.communicate()[1] for each in processes]
    assert [(each.returncode, words) for each, words in zip(processes, said, strict=True)] == [
        (0, b"")
    ] * 32
    assert {(work / f"{number}.o").read_bytes() for number in range(32)} == {never}
    assert not scraps(new)


def test_a_driver_that_is_empty_is_no_script(own: Driver, work: Path) -> None:
    """A shell would run it and say that all went well."""
    program = own.program()
    rewrite(program, lambda _: b"")
    os.utime(program, (0, 0))
    (work / "f.o").unlink()
    assert own.run("-c", "f.c", cwd=work).returncode == 0
    assert (work / "f.o").stat().st_size


def test_the_place_of_the_driver(own: Driver) -> None:
    assert folder_of(own).name == (ROOT / "scripts").name
    assert f"cc-{__version__}" in folder_of(own).parts
    assert (SANITIZED in os.environ) == (b"__asan_init" in own.program().read_bytes())
