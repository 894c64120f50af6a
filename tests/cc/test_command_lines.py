"""Every kind of command line: status, output, diagnostics and files are those of plain clang.

The model answers as LLVM's own heuristic does and the advisor's limit is lifted, so objects are
equal byte for byte. ``MLGO_STRICT`` makes whatever fails on our side an error.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cc.conftest import AS_DEFAULT, CHANNEL, MODELS, NOTHING, ROOT, Argument, Driver
from tests.conftest import one_in, require
from tests.folders import tree

SOURCES: dict[Argument, str] = {
    "one.c": """
static int scale(int x) { return x * 3 + x / 7; }
int twice(int);
int one(int x) { return scale(x) + scale(x + 1) + twice(x); }
int main(int count, char **words) { (void)words; return one(count) & 1; }
""",
    "two.c": """
#include "two.h"
static int half(int x) { return x > 3 ? x / 2 : half(x + 1) + 1; }
int twice(int x) { return half(x) * 4 + BIAS; }
""",
    "two.h": "#define BIAS 5\n",
    "shapes.cpp": """
#include <vector>
#include <numeric>
struct Shape { int sides; int area() const { return sides * sides; } };
int total(const std::vector<Shape> &all) {
  return std::accumulate(all.begin(), all.end(), 0,
                         [](int sum, const Shape &each) { return sum + each.area(); });
}
""",
    "warns.c": "int f(int x) { int unused; return x; }\nint g(void) { return f(2); }\n",
    "wrong.c": "int f(int x) { return y; }\n",
    "add.s": ".globl add\nadd: leaq (%rdi,%rsi), %rax\nret\n",
    "macro.S": "#define NAME sub\n.globl NAME\nNAME: movq %rdi, %rax\nret\n",
    "arguments.rsp": "-O2 -c 'one.c' -o from_file.o\n",
    "empty.c": "",
    'a b\'s "c".c': "static int g(int x) { return x; } int f(void) { return g(1); }\n",
    "new\nline.c": "static int g(int x) { return x; } int f(void) { return g(1); }\n",
    b"latin-\xe9.c": "static int g(int x) { return x; } int f(void) { return g(1); }\n",
}

TEMPORARY = re.compile(rb"(?<=-)[0-9a-f]{6}(?=\.o)")
"""What makes the names of clang's temporary files unique."""

LINES: list[list[Argument]] = [
    ["-O2", "-c", "one.c"],
    ["-Oz", "-c", "two.c", "-o", "out.o"],
    ["-O2", "-g", "-c", "one.c"],
    ["-c", "one.c"],
    ["-O0", "-c", "one.c"],
    ["-O1", "-c", "one.c"],
    ["-O3", "-flto", "-c", "one.c"],
    ["-O3", "-flto=thin", "-c", "one.c", "two.c"],
    ["-O2", "-S", "one.c"],
    ["-O2", "-S", "-o", "-", "one.c"],
    ["-O2", "-S", "-emit-llvm", "two.c"],
    ["-O2", "-E", "two.c"],
    ["-M", "two.c"],
    ["-MM", "two.c"],
    ["-O2", "-MMD", "-MF", "two.d", "-MT", "other", "-c", "two.c"],
    ["-O2", "-MD", "one.c", "two.c", "-o", "program"],
    ["-O2", "-c", "one.c", "two.c", "empty.c"],
    ["-O2", "one.c", "two.c", "-o", "program"],
    ["-O2", "one.c", "-o", "program"],  # an undefined symbol
    ["-O2", "-shared", "-fPIC", "two.c", "add.s", "-o", "library.so"],
    ["-O2", "-c", "add.s"],
    ["-O2", "-Werror", "-c", "macro.S"],
    ["@arguments.rsp"],
    ["@missing.rsp"],
    ["-O2", "-c", "empty.c"],
    ["-O2", "-Wall", "-c", "warns.c"],
    ["-O2", "-Wall", "-Werror", "-c", "warns.c"],
    ["-O2", "-c", "wrong.c"],
    ["-O2", "-c", "wrong.c", "warns.c", "-Wall"],
    ["-O2", "-c", "missing.c"],
    ["-O2", "-fsyntax-only", "one.c"],
    ["-O2", "-c", "one.c", "--no-such-option"],
    ["-O2", "--target=aarch64-linux-gnu", "-c", "two.c"],
    ["-O2", "-x", "c-header", "two.h", "-o", "two.h.pch"],
    ["-O2", "-save-temps", "-c", "two.c"],
    ["-O2", "-gsplit-dwarf", "-g", "-c", "two.c"],
    ["-E", "-O2", "-mllvm", "-enable-ml-inliner=default", "two.c"],
    ["-###", "-O2", "-c", "one.c"],
    ["--version"],
    ["-print-resource-dir"],
    ["-dumpmachine"],
    [],
    ["-O2", "-c", 'a b\'s "c".c'],
    ["-O2", "-c", "new\nline.c"],
    ["-O2", "-c", b"latin-\xe9.c"],
]


def fill(folder: Path) -> Path:
    """The sources, as old as each other: clang keeps their times in a precompiled header."""
    folder.mkdir()
    for name, text in SOURCES.items():
        path = folder / os.fsdecode(name)
        path.write_text(text)
        os.utime(path, (0, 1_000_000_000))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of one name, since objects may hold the name of where they were compiled."""
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    return fill(tmp_path / "mine" / "work"), fill(tmp_path / "theirs" / "work")


def compare(
    driver: Driver,
    folders: tuple[Path, Path],
    arguments: list[Argument],
    *,
    stdin: bytes = b"",
    cxx: bool = False,
    way: Mapping[str, str] = NOTHING,
) -> None:
    """In one folder after the other, moved to the same place."""
    mine, theirs = folders
    place = mine.parent.parent / "place"
    results = []
    for folder, is_mine in ((mine, True), (theirs, False)):
        folder.rename(place)
        if is_mine:
            settings = {**AS_DEFAULT, **way}
            done = driver.run(*arguments, cwd=place, stdin=stdin, cxx=cxx, settings=settings)
        else:
            done = driver.plain(*arguments, cwd=place, stdin=stdin, cxx=cxx)
        words = TEMPORARY.sub(b"", done.stderr)
        results.append((done.returncode, done.stdout, words, tree(place)))
        place.rename(folder)
    assert results[0][0] == results[1][0], results[0][2]
    for found, expected in zip(*results, strict=True):
        assert found == expected


@pytest.mark.parametrize("arguments", LINES, ids=lambda line: repr(line)[:60])
def test_as_plain_clang(
    driver: Driver, folders: tuple[Path, Path], arguments: list[Argument]
) -> None:
    compare(driver, folders, arguments)


@pytest.mark.parametrize("arguments", one_in(5, LINES), ids=lambda line: repr(line)[:60])
def test_as_plain_clang_over_fifos(
    driver: Driver, folders: tuple[Path, Path], arguments: list[Argument]
) -> None:
    compare(driver, folders, arguments, way=CHANNEL)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-O2", "-c", "shapes.cpp"],
        ["-O2", "-shared", "-fPIC", "shapes.cpp", "-o", "shapes.so"],
        ["-O2", "-x", "c++", "-", "-c", "-o", "stdin.o"],
    ],
    ids=repr,
)
def test_cxx_as_plain_clang(
    driver: Driver, folders: tuple[Path, Path], arguments: list[Argument]
) -> None:
    stdin = str(SOURCES["shapes.cpp"]).encode()
    compare(driver, folders, arguments, stdin=stdin, cxx=True)


def test_standard_input(driver: Driver, folders: tuple[Path, Path]) -> None:
    source = str(SOURCES["one.c"]).encode()
    compare(driver, folders, ["-O2", "-x", "c", "-", "-S", "-o", "-"], stdin=source)


def test_standard_input_is_left_alone_where_it_is_no_input(driver: Driver, tmp_path: Path) -> None:
    """A terminal, or a pipe that nobody closes: reading it would wait for ever."""
    folder = fill(tmp_path / "work")
    read, write = os.pipe()
    try:
        done = subprocess.run(
            driver.command("-O2", "-S", "two.c", "-o", "-"),
            cwd=folder, env={**driver.environment, **AS_DEFAULT}, stdin=read,
            capture_output=True, check=False,
        )  # fmt: skip
    finally:
        os.close(read)
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"twice:" in done.stdout


def test_precompiled_header(driver: Driver, folders: tuple[Path, Path]) -> None:
    compare(driver, folders, ["-O2", "-x", "c-header", "two.h", "-o", "two.h.pch"])
    compare(driver, folders, ["-O2", "-include-pch", "two.h.pch", "-c", "two.c"])


@pytest.mark.parametrize("kind", ["full", "thin"])
def test_lto(driver: Driver, way: Mapping[str, str], folders: tuple[Path, Path], kind: str) -> None:
    require("ld.lld-22", "lld-22")
    lto = [f"-flto={kind}", "-O2", "--ld-path=/usr/bin/ld.lld-22"]
    for name in ("one", "two"):
        compare(driver, folders, [*lto, "-c", f"{name}.c"])
    arguments = [*lto, "one.o", "two.o", "-o", "program"]
    done = driver.run(*arguments, cwd=folders[0], settings={**AS_DEFAULT, **way})
    warning = b"mlgo-cc: warning: ThinLTO's back ends share one channel: linking with one thread\n"
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == (warning if kind == "thin" and way else b"")
    assert driver.plain(*arguments, cwd=folders[1]).returncode == 0
    programs = [(folder / "program").read_bytes() for folder in folders]
    assert programs[0] == programs[1]


@pytest.mark.parametrize(
    ("words", "is_thin"),
    [
        (["-flto=thin", "-flto-jobs=1"], True),
        (["-flto=thin", "-fno-lto", "-flto=thin", "-flto-jobs=1"], True),
        (["-flto=thin", "-flto"], False),
        (["-flto=thin", "-flto=full"], False),
        (["-flto", "-flto=thin"], True),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_the_last_word_on_lto_counts(
    driver: Driver, folders: tuple[Path, Path], words: list[str], is_thin: bool
) -> None:
    """And what only sounds like it says nothing of ThinLTO."""
    require("ld.lld-22", "lld-22")
    arguments = [*words, "-O2", "--ld-path=/usr/bin/ld.lld-22", "one.c", "two.c", "-o", "program"]
    done = driver.run(*arguments, cwd=folders[0], settings=AS_DEFAULT | CHANNEL)
    assert done.returncode == 0
    assert (b"linking with one thread" in done.stderr) == is_thin


@pytest.mark.parametrize("word", ["--compile", "--assemble", "-emit-llvm"])
def test_nothing_is_said_of_a_link_that_is_none(
    driver: Driver, folders: tuple[Path, Path], word: str
) -> None:
    arguments: list[Argument] = ["-flto", "-O2", "-fuse-ld=lld", word]
    compare(driver, folders, [*arguments, *(["-c"] if word == "-emit-llvm" else []), "two.c"])


@pytest.mark.parametrize(
    "option",
    ["-enable-ml-inliner=default", "-regalloc-enable-advisor=release"],
)
def test_an_advisor_of_the_command_line_is_not_the_model(
    driver: Driver, folders: tuple[Path, Path], option: str
) -> None:
    """Plain clang compiles, with a word of it; where that counts, it is an error."""
    mine, theirs = folders
    line: list[Argument] = ["-O2", "-mllvm", option, "-c", "two.c"]
    found = f"found '{option.partition('=')[0]}'; one of the two must go"
    strict = driver.run(*line, cwd=mine, settings=AS_DEFAULT)
    assert (strict.returncode, (mine / "two.o").exists()) == (1, False)
    assert strict.stderr.startswith(b"mlgo-cc: error: expected no advisor on the command line")
    assert found in strict.stderr.decode()
    done = driver.run(*line, cwd=mine, settings=AS_DEFAULT | {"MLGO_STRICT": "0"})
    assert f"{found}; compiled by plain clang" in done.stderr.decode()
    assert driver.plain(*line, cwd=theirs).returncode == done.returncode
    assert tree(mine) == tree(theirs)
    alone = driver.run(*line, cwd=mine)
    assert b"mlgo-cc" not in alone.stderr


@pytest.mark.e2e
def test_a_long_response_file_is_read_to_its_end(
    driver: Driver, folders: tuple[Path, Path]
) -> None:
    """It says that somebody else advises, and this side must not."""
    for folder in folders:
        words = [f"-DNAME_{number}={'1' * 100}" for number in range(20_000)]
        text = " ".join(["-O2 -c two.c", *words, "-mllvm -enable-ml-inliner=default -v"])
        (folder / "long.rsp").write_text(text)
    assert (folders[0] / "long.rsp").stat().st_size > 2 << 20
    done = driver.run("@long.rsp", cwd=folders[0], settings=AS_DEFAULT | {"MLGO_STRICT": "0"})
    assert done.returncode == 0
    assert b"found '-enable-ml-inliner'" in done.stderr
    assert done.stderr.count(b"-enable-ml-inliner=") == 1


def test_a_response_file_that_names_itself(driver: Driver, folders: tuple[Path, Path]) -> None:
    """Clang says so; a driver that read it over and over would not end."""
    (folders[0] / "self.rsp").write_text("@self.rsp " * 20 + "-O2 -c two.c")
    plain = driver.plain("@self.rsp", cwd=folders[0])
    done = subprocess.run(
        driver.command("@self.rsp"), cwd=folders[0], env={**driver.environment, **AS_DEFAULT},
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert plain.returncode == done.returncode == 1
    assert plain.stderr in done.stderr


def test_one_thread_links_whatever_the_command_line_says(
    driver: Driver, folders: tuple[Path, Path]
) -> None:
    """Objects say themselves that they are ThinLTO's; threads would mix up a channel's answers."""
    require("ld.lld-22", "lld-22")
    for name in ("one", "two"):
        compare(driver, folders, ["-flto=thin", "-O2", "-c", f"{name}.c"])
    arguments = ["-flto", "-O2", "--ld-path=/usr/bin/ld.lld-22", "-Wl,--thinlto-jobs=2", "-v"]
    done = driver.run(
        *(*arguments, "-o", "program", "--", "one.o", "two.o"),
        cwd=folders[0],
        settings=AS_DEFAULT | CHANNEL,
    )
    assert done.returncode == 0
    command = done.stderr.decode().splitlines()[-1]
    assert command.rindex("--thinlto-jobs=1") > command.rindex("--thinlto-jobs=2")
    assert "-enable-ml-inliner=" in command


def test_thinlto_s_cache_is_of_use(driver: Driver, folders: tuple[Path, Path]) -> None:
    """What LLVM is told of the channel is among its keys: the model counts, the run does not."""
    require("ld.lld-22", "lld-22")
    lto = ["-flto=thin", "-O2"]
    compare(driver, folders, [*lto, "-c", "one.c", "two.c"])
    cache = "-Wl,--thinlto-cache-dir=cache"
    link = [*lto, "--ld-path=/usr/bin/ld.lld-22", cache, "one.o", "two.o", "-o", "program"]
    entries = []
    for model in ("default", "default", "never"):
        settings = AS_DEFAULT | {"MLGO_INLINING_MODEL": str(MODELS / model)}
        assert driver.run(*link, cwd=folders[0], settings=settings).returncode == 0
        entries.append(len(list((folders[0] / "cache").glob("llvmcache-*"))))
    assert entries == [2, 2, 4]


@pytest.mark.parametrize("option", ["-grecord-command-line", "-frecord-command-line"])
def test_an_object_that_holds_the_command_line_can_be_made_again(
    driver: Driver, folders: tuple[Path, Path], option: str
) -> None:
    command = ("-O2", "-g", option, "-MJ", "one.json", "-c", "one.c")
    made = []
    for _ in range(2):
        done = driver.run(*command, cwd=folders[0], settings=AS_DEFAULT)
        assert (done.returncode, done.stderr) == (0, b"")
        made.append([(folders[0] / f"one.{kind}").read_bytes() for kind in ("o", "json")])
    assert made[0] == made[1]
    assert b"-enable-ml-inliner=" in made[0][0]


def test_many_open_files_are_none_of_ours(driver: Driver, folders: tuple[Path, Path]) -> None:
    """The channel's name is then another; and where no number is free, the folder's."""
    clang = ["-O2", "-c", "one.c"]
    for limits in ("exec 100<one.c", "ulimit -n 64"):
        done = subprocess.run(
            ["/bin/bash", "-c", f'{limits}; exec "$@"', "bash", *driver.command(*clang)],
            cwd=folders[0], env={**driver.environment, **AS_DEFAULT}, check=False,
            capture_output=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_temporary_folder_with_a_comma(
    driver: Driver, folders: tuple[Path, Path], own_temporary_folder: Path
) -> None:
    require("ld.lld-22", "lld-22")
    (own_temporary_folder / "a,b").mkdir()
    settings = AS_DEFAULT | {"TMPDIR": str(own_temporary_folder / "a,b")}
    arguments = ["-flto", "-O2", "--ld-path=/usr/bin/ld.lld-22", "one.c", "two.c", "-o", "program"]
    done = driver.run(*arguments, cwd=folders[0], settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    (own_temporary_folder / "a,b").rmdir()  # it is empty


def test_advice_is_taken(driver: Driver, tmp_path: Path) -> None:
    """With a model that inlines nothing the code is another, with several inputs in each."""
    folder = fill(tmp_path / "work")
    lines: list[list[Argument]] = [["-O2", "-c", "one.c", "two.c"], ["-O2", "-c", "shapes.cpp"]]
    for arguments in lines:
        sources = [str(each) for each in arguments if str(each).endswith((".c", ".cpp"))]
        objects = [folder / Path(each).with_suffix(".o") for each in sources]
        assert driver.plain(*arguments, cwd=folder).returncode == 0
        plain = [each.read_bytes() for each in objects]
        settings = {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1"}
        done = driver.run(*arguments, cwd=folder, settings=settings)
        assert (done.returncode, done.stderr) == (0, b"")
        assert plain != [each.read_bytes() for each in objects]


def test_no_function_is_inlined_into_itself(driver: Driver, tmp_path: Path) -> None:
    """LLVM's advisors for models do not ask; its own heuristic may do it (MLInlineAdvisor.cpp)."""
    (tmp_path / "f.c").write_text("""
        int table(int);
        static int price(int x, int level) {
          if (x == 100) return 7 + price(99, level);
          return level ? table(x) * 3 : table(x + 1);
        }
        int f(int x, int level) { return price(x, level) + price(x + 1, level); }
    """)
    line: list[Argument] = ["-O2", "-c", "f.c", "-Rpass=inline"]
    plain = driver.plain(*line, cwd=tmp_path)
    assert b"'price' inlined into 'price'" in plain.stderr
    expected = (tmp_path / "f.o").read_bytes()
    done = driver.run(*line, cwd=tmp_path, settings=AS_DEFAULT)
    assert done.returncode == 0
    assert b"inlined into 'price'" not in done.stderr
    assert (tmp_path / "f.o").read_bytes() != expected


def test_remarks_are_those_of_the_advisor(driver: Driver, tmp_path: Path) -> None:
    """LLVM's heuristic tells cost and threshold, its advisor for models the features."""
    folder = fill(tmp_path / "work")
    line: list[Argument] = ["-O2", "-c", "one.c", "-Rpass=inline", "-fsave-optimization-record"]
    plain = driver.plain(*line, cwd=folder)
    assert b"(cost=" in plain.stderr
    done = driver.run(*line, cwd=folder, settings=AS_DEFAULT)
    assert done.returncode == 0
    assert done.stderr.count(b"[-Rpass=inline-ml]") == plain.stderr.count(b"[-Rpass=inline]")
    assert b"[-Rpass=inline]" not in done.stderr
    assert "Pass:            inline-ml\n" in (folder / "one.opt.yaml").read_text()


def test_both_problems_at_once(driver: Driver, tmp_path: Path) -> None:
    folder = fill(tmp_path / "work")
    settings = {
        "MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density"),
        "MLGO_INLINING_MODEL": str(MODELS / "never"),
        "MLGO_STRICT": "1",
    }
    done = driver.run("-O2", "-o", "program", "one.c", "two.c", cwd=folder, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (folder / "program").is_file()


VALUED = re.compile(r"VALUED(?:_PREFIXES)?\[\] = \{(.*?)\};", re.DOTALL)
# With one of these clang does not look for its inputs.
ANSWERED = (
    *("-print", "--print", "-help", "--help", "--version", "-dump", "-cc1", "--autocomplete"),
    *("-###", "--driver-mode", "--config", "-V", "-specs", "--specs", "-ccc-"),
)


def take_no_value(clang: str, options: list[str], folder: Path) -> set[str]:
    """Options for which the word behind is an input; of others clang makes files in the folder."""
    words = [word for pair in enumerate(options) for word in (pair[1], f"missing-{pair[0]}")]
    done = subprocess.run(
        [clang, "-###", "-c", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    found = re.findall(r"no such file or directory: 'missing-(\d+)'", done.stderr)
    return {options[int(each)] for each in found}


def test_options_with_a_value_are_those_of_clang(clang22: str, tmp_path: Path) -> None:
    source = (ROOT / "mlgo_gym" / "cc" / "native" / "arguments.c").read_text()
    words, prefixes = (re.findall('"([^"]+)"', each) for each in VALUED.findall(source))
    asked = [each for each in words if not each.startswith(ANSWERED)]
    assert take_no_value(clang22, [*asked, "-Wall"], tmp_path) == {"-Wall"}
    listed: set[str] = set()
    for start in ("-", "--"):
        done = subprocess.run(
            [clang22, f"--autocomplete={start}"], capture_output=True, text=True, check=True
        )
        listed |= {line.split("\t")[0] for line in done.stdout.splitlines()}
    others = sorted(
        each
        for each in listed - {"-", "--", *words}
        if each.startswith("-") and not each.endswith(("=", ",")) and not each.startswith(ANSWERED)
    )
    assert len(others) > 1000
    suspects = sorted(set(others) - take_no_value(clang22, others, tmp_path))
    # Lines of many may be torn.
    missing = set(suspects) - take_no_value(clang22, suspects, tmp_path)
    assert missing <= {each for each in missing if each.startswith(tuple(prefixes))}
