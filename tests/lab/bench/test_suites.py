"""Suites: folders, archives, and what is wrong with them."""

from __future__ import annotations

import io
import lzma
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.errors import BenchmarkError
from mlgo_gym.lab.bench import Suite, sample_suite
from mlgo_gym.lab.bench._archive import make_suite, pack, unpack
from mlgo_gym.lab.bench._sources import check_differing, function_of, suite_named
from mlgo_gym.lab.bench._suite import SUITE_FILE, SUMS_FILE, read_sums, shipped_suites

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


@pytest.mark.parametrize("name", ["s/../../outside", "/outside", "s/link"])
def test_an_archive_with_other_things_in_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.tar.xz"
    with lzma.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(name)
        if name.endswith("link"):
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member, io.BytesIO(b""))
    with pytest.raises(BenchmarkError, match="expected files of a suite, found"):
        unpack(path, tmp_path / "here")
    assert not (tmp_path / "outside").exists()


def test_an_archive_of_another_suite(tmp_path: Path) -> None:
    with sample_suite(["digest.c"]) as suite:
        pack(suite, tmp_path / "suite.tar.xz")
    expected = replace(suite, sums={**suite.sums, MODULE: "0" * 64})
    message = f"found 1 of {len(suite.sums)} that differ: {MODULE}"
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
