"""Archives made to do harm: refused by name, with nothing left behind."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from corpus_tools import archive
from corpus_tools.archive import unpack_sdist
from corpus_tools.errors import SdistError

WriteTar = Callable[[Path, Mapping[str, str]], Path]

_OUTSIDE = "expected a link that stays inside the archive, found one that leads out"
_SPECIAL = "expected a file, folder or link, found a device or pipe"


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
        (_member("p-1/link", tarfile.SYMTYPE, "/etc/passwd"), _OUTSIDE),
        (_member("p-1/link", tarfile.SYMTYPE, "../../../evil"), _OUTSIDE),
        (_member("p-1/link", tarfile.LNKTYPE, "../../evil"), _OUTSIDE),
        (_member("p-1/null", tarfile.CHRTYPE), _SPECIAL),
        (_member("p-1/disk", tarfile.BLKTYPE), _SPECIAL),
        (_member("p-1/pipe", tarfile.FIFOTYPE), _SPECIAL),
    ],
)
def test_a_hostile_tar_is_refused(tmp_path: Path, member: tarfile.TarInfo, problem: str) -> None:
    hostile = _tar(tmp_path / "p-1.tar.gz", member)
    target = _target(tmp_path)
    with pytest.raises(SdistError) as caught:
        unpack_sdist(hostile, target)
    assert str(caught.value) == f"p-1.tar.gz: member {member.name!r} refused: {problem}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "p-1.tar.gz", "target"]


def _zip_member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    return member


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (_zip_member("/etc/evil"), "expected a relative name, found an absolute one"),
        (_zip_member("p-1/../../evil"), "expected a name inside the corpus, found a '..' part"),
        (_zip_member("..\\evil"), "expected a name without NUL and backslash, found one"),
        (
            _zip_member("p-1/link", stat.S_IFLNK | 0o777),
            "expected a file or folder, found a link or device",
        ),
        (
            _zip_member("p-1/pipe", stat.S_IFIFO | 0o644),
            "expected a file or folder, found a link or device",
        ),
    ],
)
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
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 100)
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
