"""Every option of LLVM's own that a replayed command gives to clang: what it makes clang do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corpus_tools import Clang
from corpus_tools.errors import CompileError
from corpus_tools.replay import replay
from tests.corpus_tools.conftest import Traced

TABLE = Path(__file__).parents[2] / "corpus_tools" / "allowed" / "llvm_options.txt"
VALUES = {"flag": "", "int": "=1024", "number": "=0.5"}
# Of the fast tier is one in 500.
SHARES = [(500, 0), *(pytest.param(20, each, marks=pytest.mark.stress) for each in range(20))]
SOURCE = """
int external(int);
int each(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += external(a[i]); return s; }
"""


@pytest.mark.parametrize(("share", "part"), SHARES)
def test_every_option(
    clang22: Clang, traced: Traced, tmp_path: Path, share: int, part: int
) -> None:
    bitcode = tmp_path / "m.bc"
    (tmp_path / "a.c").write_text(SOURCE)
    own = ["-c", "-emit-llvm", "-O2", "-Xclang", "-disable-llvm-optzns"]
    subprocess.run([clang22.path, *own, tmp_path / "a.c", "-o", bitcode], check=True)
    for row in TABLE.read_text().splitlines()[part::share]:
        name, kind = row.split(" ")
        option = f"-{name}{VALUES.get(kind, '=' + kind.partition('|')[0])}"
        try:
            replay(traced.clang, "m", bitcode, ["-cc1", "-O2", "-mllvm", option])
        except CompileError as error:  # clang knows no such option, takes it for -h, or crashes
            assert error.exit_status or str(error) == "m: expected an object, found none", option
    assert traced.programs() == {str(clang22.path)}
    assert traced.changed() == set()
