"""Suites: folders, archives, and what is wrong with them."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.errors import BenchmarkError
from mlgo_gym.lab.bench import Suite, sample_suite
from mlgo_gym.lab.bench._archive import (
    function_of,
    make_suite,
    pack,
    suite_named,
    unpack,
)
from mlgo_gym.lab.bench._suite import (
    SUITE_FILE,
    SUMS_FILE,
    check_differing,
    read_sums,
    shipped_suites,
    sums_text,
)

MODULE = "plain/sample/digest.c.bc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sample_suite(["digest.c"]) as suite:
        pack(suite, tmp_path / "suite.tar.xz")
    return unpack(tmp_path / "suite.tar.xz", tmp_path / "suite").place


def test_suites_that_ship_name_their_modules() -> None:
    for name in shipped_suites():
        suite = Suite.shipped(name)
        assert suite.name == name
        assert suite.sums, name
        for package in suite.packages:
            assert any(f"/{package}" in path for path in suite.sums), package


def test_the_same_suite_makes_the_same_archive(tmp_path: Path) -> None:
    for path in (tmp_path / "a", tmp_path / "b"):
        with sample_suite(["digest.c"]) as suite:
            pack(suite, path)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert unpack(tmp_path / "a", tmp_path / "here") == suite


def test_objects_have_sections_that_a_linker_can_drop(folder: Path) -> None:
    suite = Suite.open(folder)
    for track in suite.tracks:
        packages = suite.modules(track)
        for key in packages:
            assert "-ffunction-sections" in (packages[key].command or ())


@pytest.mark.parametrize("change", ["cut", "other", "gone"])
def test_files_that_are_other_ones(change: str, folder: Path) -> None:
    path = folder / MODULE
    if change == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:100] if change == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    found = "none" if change == "gone" else "[0-9a-f]{12}…"
    with pytest.raises(BenchmarkError, match=f"digest.c.bc: expected a file of .* found {found}"):
        Suite.open(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "version: expected 1"),
        ('{"version": 2}', "version: expected 1, found 2"),
        ('{"version": 1, "name": 3}', "name: expected a text, found 3"),
    ],
)
def test_descriptions_that_are_none(text: str, message: str, folder: Path) -> None:
    (folder / SUITE_FILE).write_text(text)
    with pytest.raises(BenchmarkError, match=message):
        Suite.open(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", "/home/somebody", "name: expected up to 64 letters"),
        ("name", "..", "name: expected up to 64 letters"),
        ("name", "", "name: expected up to 64 letters"),
        ("name", "\ud800", "name: expected at most 2,048 printable characters"),
        ("about", "One.\n| a | row |", "about: expected at most 2,048 printable characters"),
        ("about", "x" * 2049, "about: expected at most 2,048 printable characters"),
        ("split", "test\u00a0", "split: expected at most 2,048 printable characters"),
        ("split", "a: b", "split: expected up to 64 letters"),
        ("packages", ["../elsewhere"], "packages: expected names, each once"),
        ("packages", ["sample", "sample"], "packages: expected names, each once"),
        ("packages", ["sample", ["sample"]], r"packages\[1\]: expected a text"),
        ("packages", [], "packages: expected names, each once"),
        ("tracks", ["/etc"], r"tracks: expected \['plain'\] or \['plain', 'local'\], found"),
        ("tracks", ["local"], r"tracks: expected \['plain'\] or \['plain', 'local'\], found"),
        ("tracks", [], r"tracks: expected \['plain'\] or \['plain', 'local'\], found"),
        ("kind", "tiers", r"tracks: expected \[\], found"),
    ],
)
def test_names_that_can_be_those_of_no_files(
    key: str, value: object, message: str, folder: Path
) -> None:
    described = json.loads((folder / SUITE_FILE).read_text())
    (folder / SUITE_FILE).write_text(json.dumps(described | {key: value}))
    with pytest.raises(BenchmarkError, match=message):
        Suite.open(folder)


def test_files_that_have_no_hash(folder: Path) -> None:
    sums = (folder / SUMS_FILE).read_text().splitlines(keepends=True)
    (folder / SUMS_FILE).write_text("".join(line for line in sums if MODULE not in line))
    with pytest.raises(BenchmarkError, match=f"every file in SHA256SUMS, found none of '{MODULE}'"):
        Suite.open(folder)
    (folder / SUMS_FILE).write_text("".join(sums))
    (folder / "plain" / "more").symlink_to(folder.parent, target_is_directory=True)
    with pytest.raises(BenchmarkError, match="every file in SHA256SUMS, found none of 'plain/mor"):
        Suite.open(folder)


def test_a_file_that_has_two_hashes(folder: Path) -> None:
    sums = (folder / SUMS_FILE).read_text()
    (folder / SUMS_FILE).write_text(f"{'0' * 64}  {MODULE}\n{sums}")
    with pytest.raises(BenchmarkError, match="expected a hash and a path, each once, found"):
        Suite.open(folder)


@pytest.mark.parametrize("line", ["nothing", f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/passwd"])
def test_hashes_that_are_none(line: str, folder: Path) -> None:
    (folder / SUMS_FILE).write_text(f"{line}\n")
    with pytest.raises(BenchmarkError, match="expected a hash and a path"):
        read_sums(folder / SUMS_FILE)


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "suite.tar.xz"
    with sample_suite(["digest.c"]) as suite:
        pack(suite, path)
    data = path.read_bytes()
    middle = len(data) // 2
    for damaged in (b"", b"no archive", data[:middle], data[:middle] + b"x" + data[middle + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(BenchmarkError, match=r"suite\.tar\.xz: expected a suite's archive"):
            unpack(path, tmp_path / "here")
        assert not (tmp_path / "here").exists()


def member(name: str, content: bytes = b"", **others: Any) -> bytes:
    """A file in a tar archive, or something else."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in others.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def named(records: bytes) -> bytes:
    """What stands before a file whose name is long."""
    return member("././@PaxHeader", records, type=tarfile.XHDTYPE)


@pytest.mark.parametrize(
    "data",
    [
        member("s/../../outside"),
        member("/outside"),
        member("alone"),
        member("s/"),
        member("s/\x1b[31m"),
        member("s/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("s/sparse", type=tarfile.GNUTYPE_SPARSE),
        member("s/a", size=-1),
        member("././@LongLink", b"s/a\0", type=tarfile.GNUTYPE_LONGNAME) + member("s/a"),
        member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME, size=1 << 32),
        member("././@PaxHeader", type=tarfile.XHDTYPE, size=1 << 32),
        named(b"9" * 4096) + member("s/a"),
        named(b"19 GNU.sparse.size=4000000000\n") + member("s/a"),
        named(b"14 path=s/a\n") * 2 + member("s/a"),
        named(b"15 path=../a\n") + member("s/a"),
        named(f"999 path=s/{'a/' * 101}a\n".encode()) + member("s/a"),
    ],
)
def test_an_archive_with_other_things_in_it(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "suite.tar.xz"
    path.write_bytes(lzma.compress(data + bytes(1024)))
    with pytest.raises(BenchmarkError, match="expected files of a suite, found"):
        unpack(path, tmp_path / "here")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (member("s/a") * 2, "'a': cannot be unpacked: File exists"),
        (member("s/a") + member("s/a/b"), "'a/b': cannot be unpacked: File exists"),
        (member("s/a/b") + member("s/a"), "'a': cannot be unpacked: File exists"),
        (member("s/a", size=(1 << 30) + 1), "a: expected a file of at most 1,073,741,824 bytes"),
        (member("s/suite.json", b"{}") + bytes(512), "/"),
        (member("s/a", size=9), "expected a suite's archive, found: the end, in the middle of a"),
        (b"x" * 512, "expected a suite's archive, found: "),
        (member("s/a") + b"\xff" * 512, "expected a suite's archive, found: "),
        (b"", "expected a suite's archive, found: the end, in the middle of a"),
    ],
)
def test_files_that_cannot_be_unpacked(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.tar.xz"
    path.write_bytes(lzma.compress(data))
    with pytest.raises(BenchmarkError) as caught:
        unpack(path, tmp_path / "here")
    assert f"{path}: {message}" in str(caught.value)


def test_names_that_are_long(tmp_path: Path) -> None:
    """They do not fit into a header, nor do those that are no ASCII."""
    name = f"{'é' * 60}/{'b' * 90}"
    with sample_suite(["digest.c"]) as suite:
        (suite.place / "plain" / name).parent.mkdir()
        (suite.place / "plain" / name).write_bytes(b"x" * 512)
        sums = {**suite.sums, f"plain/{name}": hashlib.sha256(b"x" * 512).hexdigest()}
        (suite.place / SUMS_FILE).write_text(sums_text(sums))
        pack(replace(suite, sums=sums), tmp_path / "a.tar.xz")
    assert unpack(tmp_path / "a.tar.xz", tmp_path / "here").sums == sums
    assert (tmp_path / "here" / "plain" / name).read_bytes() == b"x" * 512


def test_an_archive_of_another_suite(tmp_path: Path) -> None:
    with sample_suite(["digest.c"]) as suite:
        pack(suite, tmp_path / "suite.tar.xz")
    expected = replace(suite, sums={**suite.sums, MODULE: "0" * 64})
    message = f"the {len(suite.sums)} files that it names, found 1 that differ: {MODULE}"
    with pytest.raises(BenchmarkError, match=message):
        unpack(tmp_path / "suite.tar.xz", tmp_path / "here", expected)
    with pytest.raises(BenchmarkError, match="found 1 that differ"):
        check_differing(expected, [MODULE])


def test_corpora_that_do_not_fit(tmp_path: Path) -> None:
    suite = Suite.shipped("size-v1-mini")
    with pytest.raises(BenchmarkError, match="expected 6 packages, found no 'faust-cchardet'"):
        make_suite(suite, {}, tmp_path / "here")
    sources = dict.fromkeys(suite.packages, SAMPLE_CORPUS)
    with pytest.raises(BenchmarkError, match="expected a corpus of split 'test'"):
        make_suite(suite, sources, tmp_path / "here")
    with pytest.raises(BenchmarkError, match=r"expected LLVM 99\.0, found"):
        make_suite(replace(suite, llvm_version="99.0"), sources, tmp_path / "here")
    with pytest.raises(BenchmarkError, match="'mlgo-gym bench fetch size-v1-mini"):
        _ = suite.place


def test_names(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="expected one of .*size-v1.*, found 'size-v9'"):
        suite_named("size-v9")
    (tmp_path / "rule.py").write_text("def rule(observation):\n    return 0\nother = 1\n")
    assert callable(function_of(f"{tmp_path}/rule.py:rule"))
    for given in ("rule", f"{tmp_path}/none.py:rule", f"{tmp_path}/rule.py:other"):
        with pytest.raises(Exception, match="--function: expected"):
            function_of(given)
