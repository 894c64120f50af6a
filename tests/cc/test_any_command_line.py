"""Any command line, made of what people write: what comes of it is what comes of plain clang."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cc.conftest import Argument, Driver
from tests.cc.test_command_lines import compare, fill
from tests.generated import examples

# Without `-fembed-bitcode`, which does without the model: an error, as the tests run the driver.
LEVELS = ["-O0", "-O1", "-O2", "-O3", "-Os", "-Oz", "-O", "-Og"]
ACTIONS = [["-c"], ["-c"], ["-c"], ["-S"], ["-E"], ["-fsyntax-only"], ["-M"], ["-MM"],
           ["-S", "-emit-llvm"], ["-c", "-emit-llvm"], ["-c", "-flto"], ["-c", "-flto=thin"],
           ["-shared", "-fPIC"], []]  # fmt: skip
OUTPUTS = [[], [], [], ["-o", "out"], ["-oout"], ["-o", "-"], ["-o", "no/such/folder"], ["-o"]]
INPUTS = ["one.c", "two.c", "shapes.cpp", "warns.c", "empty.c", "add.s", "macro.S", "wrong.c",
          "missing.c", 'a b\'s "c".c', "new\nline.c"]  # fmt: skip
OTHERS = [["-g"], ["-Wall"], ["-Werror"], ["-w"], ["-fPIC"], ["-D", "X=1"], ["-DY='\"'"], ["-UX"],
          ["-I", "."], ["-I."], ["-MMD"], ["-MD", "-MF", "d e.d"], ["-MD", "-MT", "a b"],
          ["-ffunction-sections"], ["-fdata-sections"], ["-fno-inline"], ["-march=haswell"],
          ["-save-temps"], ["-pipe"], ["-std=c11"], ["-x", "c"], ["-x", "none"],
          ["-include", "two.h"], ["-fvisibility=hidden"], ["-fno-exceptions"], ["-ffast-math"],
          ["-fstack-protector-all"], ["-gsplit-dwarf"], ["-mllvm", "-align-all-functions=4"],
          ["-Xclang", "-disable-llvm-passes"], ["--target=aarch64-linux-gnu"], ["-m32"], ["-flto"],
          ["-fno-lto"], ["-fno-integrated-as"], ["-no-such-option"], ["-fno-such-option"], ["--"],
          ["-###"], ["-Wl,-z,defs"], ["-mcmodel=large"]]  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """One to three inputs, a level or two, what is to be done, and whatever else, in any order."""
    parts = [[each] for each in draw(st.lists(st.sampled_from(INPUTS), min_size=1, max_size=3))]
    parts += [[each] for each in draw(st.lists(st.sampled_from(LEVELS), max_size=2))]
    parts += [draw(st.sampled_from(ACTIONS)), draw(st.sampled_from(OUTPUTS))]
    parts += draw(st.lists(st.sampled_from(OTHERS), max_size=4))
    return [word for part in draw(st.permutations(parts)) for word in part]


def spelled(words: list[str]) -> str:
    """The text of a response file."""
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return "\n".join(f'"{word}"' for word in escaped)


@pytest.mark.hypothesis
def test_as_plain_clang(driver: Driver) -> None:
    @examples(10, is_dear=True)
    @given(lines(), st.booleans(), st.booleans())
    def check(words: list[str], in_file: bool, cxx: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            folders = Path(folder) / "mine" / "work", Path(folder) / "theirs" / "work"
            for each in folders:
                each.parent.mkdir()
                fill(each)
                (each / "line.rsp").write_text(spelled(words))
            line: list[Argument] = ["@line.rsp"] if in_file else [*words]
            compare(driver, folders, line, cxx=cxx)

    check()
