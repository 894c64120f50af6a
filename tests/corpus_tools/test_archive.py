"""Archives made to do harm: refused by name, with nothing left behind."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import pytest

from corpus_tools import sdist
from corpus_tools.errors import SdistError
from corpus_tools.sdist import unpack_sdist

WriteTar = Callable[[Path, Mapping[str, str]], Path]


def _target(tmp_path: Path) -> Path:
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    return target


def _tar(path: Path, member: tarfile.TarInfo) -> Path:
    """Write an archive with a harmless file in front of the hostile member."""
    with tarfile.open(path, "w:gz") as tar:
        good = tarfile.TarInfo("p-1/good.c")
        good.size = 4
        tar.addfile(good, io.BytesIO(b"int;"))
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    member.size = 1 if kind == tarfile.REGTYPE else 0
    return member


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (_member("/etc/evil"), "expected a relative name, found an absolute one"),
        (_member("p-1/../../evil"), "expected a name inside the corpus, found a '..' part"),
        (_member("..\\evil"), "expected a name without NUL and backslash, found one"),
        (
            _member("p-1/link", tarfile.LNKTYPE, "/etc/passwd"),
            "expected a link to a file that comes before it, found none of that name",
        ),
        (
            _member("p-1/link", tarfile.LNKTYPE, "p-1"),
            "expected a link to a file that comes before it, found none of that name",
        ),
        (
            _member("p-1/link", tarfile.LNKTYPE, "../../evil"),
            "expected a link to a file that comes before it, found none of that name",
        ),
        (_member("p-1/good.c"), "expected a file as 'p-1/good.c', found a file there"),
        (_member("p-1/./good.c"), "expected a file as 'p-1/good.c', found a file there"),
        (_member("p-1", tarfile.SYMTYPE, "q"), "expected a link as 'p-1', found a folder there"),
        (_member("p-1/good.c/x"), "expected a folder as 'p-1/good.c', found a file there"),
        (_member("p-1" + "/a" * 100), "expected at most 100 levels of folders, found 101"),
    ],
)
def test_a_hostile_tar_is_refused(tmp_path: Path, member: tarfile.TarInfo, problem: str) -> None:
    hostile = _tar(tmp_path / "p-1.tar.gz", member)
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(hostile, target)
    assert str(caught.value) == f"p-1.tar.gz: member {member.name!r} refused: {problem}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "p-1.tar.gz", "target"]


@pytest.mark.parametrize(
    "member",
    [
        _member("p-1/link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("p-1/link", tarfile.SYMTYPE, "../../../evil"),
        _member("p-1/null", tarfile.CHRTYPE),
        _member("p-1/disk", tarfile.BLKTYPE),
        _member("p-1/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.linkname}",
)
def test_what_the_data_filter_refuses(tmp_path: Path, member: tarfile.TarInfo) -> None:
    hostile = _tar(tmp_path / "p-1.tar.gz", member)
    with pytest.raises(SdistError, match=f"^p-1.tar.gz: member refused: '{member.name}' "):
        unpack_sdist(hostile, _target(tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "p-1.tar.gz", "target"]


def _tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def _chain_of_links() -> list[tarfile.TarInfo]:
    """Folders and links to them, one in the other: the way through the links is short.

    What the links stand for is longer than any path may be, so that ``os.path.realpath`` does not
    see the last one, which leads up as many levels (CVE-2025-4517).
    """
    folder, at, steps = "d" * 247, "p-1", "abcdefghijklmnop"
    members = []
    for step in steps:
        members += [_member(f"{at}/{folder}", tarfile.DIRTYPE)]
        members += [_member(f"{at}/{step}", tarfile.SYMTYPE, folder)]
        at = f"{at}/{folder}"
    last = "p-1/" + "/".join(steps) + "/" + "l" * 254
    members += [_member(last, tarfile.SYMTYPE, "../" * len(steps))]
    members += [_member("p-1/escape", tarfile.SYMTYPE, f"{last[4:]}/../../../../outside")]
    return [*members, _member("p-1/flag", tarfile.LNKTYPE, "p-1/escape/flag"), _member("p-1/flag")]


def test_no_chain_of_links_leads_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "flag").write_text("before")
    hostile = _tar_of(tmp_path / "p-1.tar.gz", *_chain_of_links())
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(hostile, target)
    problem = "refused: expected a folder as 'p-1/a', found a link there"
    assert str(caught.value).endswith(problem)
    assert (tmp_path / "outside" / "flag").read_text() == "before"
    assert list(target.iterdir()) == []


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    link = _member("p-1/a", tarfile.SYMTYPE, "b")
    hostile = _tar_of(tmp_path / "p-1.tar.gz", link, _member("p-1/b/x"), _member("p-1/a/x"))
    with pytest.raises(SdistError) as caught:
        unpack_sdist(hostile, _target(tmp_path))
    problem = "expected a folder as 'p-1/a', found a link there"
    assert str(caught.value) == f"p-1.tar.gz: member 'p-1/a/x' refused: {problem}"


def test_modes_times_and_hard_links(tmp_path: Path) -> None:
    script, data, folder = _member("p-1/run"), _member("p-1/a.c"), _member("p-1", tarfile.DIRTYPE)
    script.mode, data.mode, folder.mode = 0o6777, 0o666, 0o7000
    script.mtime = 1_000_000_000
    hard = _member("p-1/same", tarfile.LNKTYPE, "p-1/run")
    hard.mode, hard.mtime = script.mode, script.mtime
    path = _tar_of(tmp_path / "p-1.tar.gz", folder, script, data, hard)
    root = unpack_sdist(path, _target(tmp_path))
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("run", "a.c")}
    assert modes == {"run": 0o755, "a.c": 0o644}
    assert (root / "run").stat().st_mtime == 1_000_000_000
    assert (root / "same").samefile(root / "run")
    assert stat.S_IMODE(root.stat().st_mode) & 0o7700 == 0o700


@pytest.mark.parametrize("name", ["p-1.tar.gz", "p-1.zip"])
def test_the_number_of_members_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sdist, "MAX_MEMBERS", 2)
    (_big_zip if name.endswith("zip") else _big_tar)(tmp_path / name)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(tmp_path / name, _target(tmp_path))
    problem = "expected at most 2 files and folders in all, found more"
    assert str(caught.value) == f"{name}: member 'p-1/b' refused: {problem}"


@pytest.mark.parametrize("mtime", [10**20, -(10**20)])
def test_a_time_that_there_is_not(tmp_path: Path, mtime: int) -> None:
    member = _member("p-1/a.c")
    member.mtime = mtime
    hostile = _tar_of(tmp_path / "p-1.tar.gz", member)
    with pytest.raises(SdistError, match=r"^p-1.tar.gz: expected a readable archive: "):
        unpack_sdist(hostile, _target(tmp_path))


def test_a_fifo_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p-1.tar.gz")
    with pytest.raises(SdistError) as caught:
        unpack_sdist(tmp_path / "p-1.tar.gz", _target(tmp_path))
    problem = "expected a regular file, found a FIFO"
    assert str(caught.value) == f"p-1.tar.gz: expected a readable archive: {problem}"


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_what_compresses_a_tar_is_seen(
    tmp_path: Path, mode: Literal["w:", "w:gz", "w:bz2", "w:xz"]
) -> None:
    with tarfile.open(tmp_path / "p-1.tar", mode) as tar:
        member = _member("p-1/a.c")
        tar.addfile(member, io.BytesIO(b"x"))
    root = unpack_sdist(tmp_path / "p-1.tar", _target(tmp_path))
    assert (root / "a.c").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (zipfile.ZipInfo(""), "expected a name, found an empty string"),
        (zipfile.ZipInfo("/etc/evil"), "expected a relative name, found an absolute one"),
        (zipfile.ZipInfo("p-1/../../evil"), "expected a name inside the corpus, found a '..' part"),
        (zipfile.ZipInfo("..\\evil"), "expected a name without NUL and backslash, found one"),
        (zipfile.ZipInfo("p-1/good.c"), "expected a file as 'p-1/good.c', found a file there"),
        (zipfile.ZipInfo("p-1/good.c/x"), "expected a folder as 'p-1/good.c', found a file there"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_zip_is_refused(tmp_path: Path, member: zipfile.ZipInfo, problem: str) -> None:
    hostile = tmp_path / "p-1.zip"
    with zipfile.ZipFile(hostile, "w") as zip_file:
        zip_file.writestr("p-1/good.c", "int;")
        zip_file.writestr(member, "x")
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(hostile, target)
    assert str(caught.value) == f"p-1.zip: member {member.filename!r} refused: {problem}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "p-1.zip", "target"]


def _big_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name in ("p-1/a", "p-1/b"):
            member = tarfile.TarInfo(name)
            member.size = 60
            tar.addfile(member, io.BytesIO(b"x" * 60))


def _big_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zip_file:
        zip_file.writestr("p-1/a", "x" * 60)
        zip_file.writestr("p-1/b", "x" * 60)


@pytest.mark.parametrize(("name", "make"), [("p-1.tar.gz", _big_tar), ("p-1.zip", _big_zip)])
def test_a_bomb_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(sdist, "MAX_UNPACKED_BYTES", 100)
    make(tmp_path / name)
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(tmp_path / name, target)
    problem = "expected at most 100 bytes in all, found more"
    assert str(caught.value) == f"{name}: member 'p-1/b' refused: {problem}"
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["p-1.tar.gz", "p-1.zip"])
@pytest.mark.parametrize("keep_bytes", [0, 10, 80])
def test_a_truncated_archive_is_refused(tmp_path: Path, name: str, keep_bytes: int) -> None:
    path = tmp_path / name
    (_big_zip if name.endswith("zip") else _big_tar)(path)
    path.write_bytes(path.read_bytes()[:keep_bytes])
    target = _target(tmp_path)
    with pytest.raises(SdistError, match=f"^{name}: expected a readable archive: "):
        unpack_sdist(path, target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, "nothing"),
        ({"a.c": ""}, "a.c"),
        ({"p-1/a.c": "", "q-1/b.c": ""}, "p-1, q-1"),
        (dict.fromkeys("abcdefg", ""), "a, b, c, d, e, and 2 more"),
    ],
)
def test_an_sdist_has_one_top_folder(
    tmp_path: Path, write_tar: WriteTar, files: dict[str, str], found: str
) -> None:
    path = write_tar(tmp_path / "p-1.tar.gz", files)
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(path, target)
    assert str(caught.value) == f"p-1.tar.gz: expected one top folder, found {found}"
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(("name", "make"), [("p-1.tar.gz", _big_tar), ("p-1.zip", _big_zip)])
def test_a_good_archive_gives_its_top_folder(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    root = unpack_sdist(tmp_path / name, _target(tmp_path))
    assert root.name == "p-1"
    assert (root / "b").read_text() == "x" * 60


def test_a_link_that_stays_inside_is_kept(tmp_path: Path) -> None:
    path = _tar(tmp_path / "p-1.tar.gz", _member("p-1/same.c", tarfile.SYMTYPE, "good.c"))
    root = unpack_sdist(path, _target(tmp_path))
    assert (root / "same.c").read_text() == "int;"
