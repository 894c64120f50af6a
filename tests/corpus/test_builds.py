"""Two builds: what is read of them, and what of them is compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlgo_gym.cc._builds import BinaryFile, Change, LeftOut, compare_builds, read_build
from mlgo_gym.errors import InputError


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", None),
        (b"text", None),
        (b"\x7fELF", LeftOut.BROKEN),
        (b"\x7fELF" + b"\0" * 200, LeftOut.BROKEN),
        (b"!<arch>\n", LeftOut.ARCHIVE),
        (b"!<thin>\n", LeftOut.ARCHIVE),
        (b"BC\xc0\xde5\x14\0\0", LeftOut.BITCODE),
    ],
)
def test_what_is_no_object(
    data: bytes, kind: LeftOut | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.o").write_bytes(data)
    assert BinaryFile.read(tmp_path / "a.o") is kind
    with pytest.raises(InputError) as caught:
        read_build(tmp_path)
    found = f"{kind}: 1" if kind else "none"
    assert str(caught.value) == (
        f"build {str(tmp_path)!r}: expected ELF objects or programs, found {found}"
    )
    assert capfd.readouterr() == ("", "")


def test_functions_that_differ_are_named(tmp_path: Path, clang22: str) -> None:
    """Those of one size are not, nor those of files that one build alone has."""
    for build, factor in (("before", "x"), ("after", "x * x * 3 + 7")):
        (tmp_path / build).mkdir()
        text = f"int same(int x) {{ return x + 1; }} int other(int x) {{ return {factor}; }}"
        command = [clang22, "-O1", "-xc", "-c", "-", "-o", str(tmp_path / build / "a.o")]
        subprocess.run(command, input=text.encode(), check=True)
    lone = tmp_path / "after" / "b.o"
    lone.write_bytes((tmp_path / "before" / "a.o").read_bytes())
    found = compare_builds(tmp_path / "before", tmp_path / "after")
    before, after = (BinaryFile.read(tmp_path / each / "a.o") for each in ("before", "after"))
    assert isinstance(before, BinaryFile)
    assert isinstance(after, BinaryFile)
    assert not before.is_linked
    assert found.functions == (
        Change("a.o: other", before.functions["other"], after.functions["other"]),
    )
    assert found.objects == (
        Change("a.o", before.code_bytes, after.code_bytes),
        Change("b.o", None, before.code_bytes),
    )
    assert found.to_json()["total"]["objects"]["after_bytes"] == after.code_bytes
