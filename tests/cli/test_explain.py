"""``mlgo-gym explain``: what differs, where, in which functions; pages, tables, bad input."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.lab.insight._decision_changes import LineDecisions
from mlgo_gym.lab.insight._source import MAX_SOURCE_BYTES, SourceFolder
from mlgo_gym.lab.insight.commands._show_decisions import source_listing
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._task import Task
from mlgo_gym.llvm.command._options import CompileOptions
from tests.cli.command import check_refused, run
from tests.conftest import require
from tests.llvm.test_sites import IN_SOURCE

pq = pytest.importorskip("pyarrow.parquet")

NEVER = Path(__file__).parents[1] / "models" / "never"
MODULES = ("--module", "json_read.c", "--module", "digest.c")


def test_a_policy_beside_llvm(tmp_path: Path) -> None:
    files = ("--html", "page.html", "--decisions", "decisions.parquet")
    done = run("explain", "--policy", "never", *MODULES, "--functions", "2", *files, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "where ways part",
        "functions that grew",
        "functions that shrank",
        "│ is_prime at call 0 in next_prime, digest.c │ inline │ leave │",
    ):
        assert text in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Functions that grew</h2>" in page
    assert "<h2>Source</h2>" not in page
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert {row["policy"] for row in rows} == {"LLVM", "never"}


def test_what_a_change_is_made_of(tmp_path: Path) -> None:
    """What it takes to call is most of what it costs to inline nothing; no byte is twice."""
    done = run("explain", "--policy", "never", "--module", "scene.cpp", cwd=tmp_path)
    parts = re.findall(
        r"│ (decisions that \w+|calls, .* them) +│ +\d* │ +([+-][\d,]+) │", done.stdout
    )
    sums = {name: int(text.replace(",", "")) for name, text in parts}
    assert list(sums) == [
        "decisions that cost",
        "decisions that saved",
        "calls, and code around them",
    ]
    (whole,) = re.findall(r"│ all of it +│ +115 │ +\+([\d,]+) │", done.stdout)
    assert int(whole.replace(",", "")) == sum(sums.values())
    assert sums["calls, and code around them"] > sums["decisions that cost"]
    record = json.loads(
        run("explain", "--policy", "never", "--module", "scene.cpp", "--json", cwd=tmp_path).stdout
    )
    assert round(record["modules"][0]["around_bytes"]) == sums["calls, and code around them"]


def test_functions_before_and_after(tmp_path: Path) -> None:
    """Their IR three times, where a click on their names leads to; nothing else is needed."""
    line = ("explain", "--policy", "never", "--module", "json_read.c", "--html", "page.html")
    done = run(*line, "--functions", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    (place,) = re.findall(r'<a href="#([^"]*)">parse_text</a>', page)
    start = page.index(f'<details id="{place}">')
    titles = re.findall(r"<summary>(.*?)</summary><pre>(.*?)</pre>", page[start:], re.DOTALL)[:3]
    assert [title for title, _ in titles] == [
        "parse_text, as the bitcode has it",
        "parse_text, optimised under LLVM",
        "parse_text, optimised under never",
    ]
    plain, before, after = (text for _, text in titles)
    assert "alloca" in plain
    assert "@parse_escape(" in plain
    assert "@parse_escape(" not in before
    assert "@parse_escape(" in after
    lines = html.unescape(plain + before + after).splitlines()
    assert max(len(each) for each in lines) <= 78
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert "<pre>There is none.</pre>" in page  # parse_number, as LLVM's own leaves it


def with_lines(folder: Path) -> Path:
    """A corpus whose bitcode has debug information, and beside it the sources that it names."""
    (folder / "corpus").mkdir()
    with Compiler() as compiler:
        task = Task(optimize=False, product="bitcode")
        made = compiler.produce(Module.from_ir(IN_SOURCE), CompileOptions("Oz"), task)
    (folder / "corpus" / "sum.c.bc").write_bytes(made.data)
    manifest = {"modules": ["sum.c"], "has_thinlto": False}
    (folder / "corpus" / "corpus_description.json").write_text(json.dumps(manifest))
    (folder / "code").mkdir()
    return folder / "corpus"


SUM = "".join(f"line {n}\n" for n in range(1, 10))


def test_source_with_decisions_in_the_margin(tmp_path: Path) -> None:
    corpus = with_lines(tmp_path)
    (tmp_path / "code" / "sum.c").write_text(SUM)
    line = ("explain", "--corpus", corpus, "--policy", "never", "--html", "page.html")
    done = run(*line, "--source", "code", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    listing = page[page.index("<h2>Source</h2>") :]
    rows = re.findall(r"<tr><td[^>]*>([^<]*)</td><td>(\d+)</td><td>(.*?)</td></tr>", listing)
    assert rows == [
        ("", "2", "line 2"),
        ("", "3", "line 3"),
        ("", "4", "line 4"),
        ("add: 1 of 1 → 0 of 1", "5", "line 5"),
        ("", "6", "line 6"),
        ("", "7", "line 7"),
        ("", "8", "line 8"),
    ]
    assert "<p>sum.h: is not in the folder</p>" in page


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../secret.c", "is not in the folder"),
        ("/etc/../etc/passwd", "is not in the folder"),
        ("code/..", "expected a name of a file in the folder"),
        ("/etc/passwd", "is not in the folder"),
        ("out.c", "is not in the folder"),
        ("loop.c", "is not in the folder"),
        ("fifo.c", "is not in the folder"),
        ("", "expected a name of a file in the folder"),
        ("a" * 300, "File name too long"),
        ("large.c", f"expected at most {MAX_SOURCE_BYTES} bytes, found {MAX_SOURCE_BYTES + 1}"),
    ],
    ids=lambda value: value[:20],
)
def test_files_that_are_no_business_of_bitcode_s(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "secret.c").write_text("secret\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "out.c").symlink_to(tmp_path / "secret.c")
    (code / "loop.c").symlink_to("loop.c")
    os.mkfifo(code / "fifo.c")
    with (code / "large.c").open("wb") as file:
        file.truncate(MAX_SOURCE_BYTES + 1)
    with pytest.raises(OSError, match=re.escape(reason)) as raised:
        SourceFolder(code).lines(name)
    assert raised.value.strerror == reason


def test_sources_of_another_folder_are_found_by_the_ends_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_bytes(b"one\n\xfftwo")
    (tmp_path / "a.c").write_text("other")
    folder = SourceFolder(tmp_path)
    assert folder.lines("/build/package/src/a.c") == folder.lines("src/a.c") == ["one", "\ufffdtwo"]
    assert folder.lines("../../package/src/a.c") == folder.lines("src/a.c")
    assert folder.lines("/build/b/a.c") == ["other"]


def test_lines_are_the_compiler_s(tmp_path: Path) -> None:
    """A form feed, as between pages of GNU's sources, ends none."""
    (tmp_path / "a.c").write_text("one\n\f\nthree\vof\x1cthree\u2028\nfour\r\nfive\n", newline="")
    assert SourceFolder(tmp_path).lines("a.c")[3:] == ["four", "five"]


def test_another_source_of_that_name() -> None:
    decided = {7: [LineDecisions("add", (1, 1), (1, 0), (3, 0))]}
    listing = source_listing("sum.c", ["only line"], decided)
    assert [line for *_, line in listing.rows] == [
        "1 lines with decisions are behind the file's end: it is another one"
    ]


def test_bitcode_without_lines(tmp_path: Path) -> None:
    """Sites are there, without lines."""
    files = ("--html", "page.html", "--source", ".", "--decisions", "decisions.parquet")
    line = ("explain", "--policy", "never", "--module", "digest.c")
    done = run(*line, *files, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(*line, "--decisions", "decisions.json", cwd=tmp_path).returncode == 0
    assert "<p>The bitcode has no lines of the source.</p>" in (tmp_path / "page.html").read_text()
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    same = json.loads((tmp_path / "decisions.json").read_text())
    assert [row | {"compiler_s": 0} for row in same] == [row | {"compiler_s": 0} for row in rows]
    assert {call["line"] for row in rows for call in row["calls"]} == {0}
    assert all(row["site"] for row in rows)


def test_two_policies(tmp_path: Path) -> None:
    line = ("explain", "--model", NEVER, "--policy", "always", *MODULES, "--json")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert record["policies"] == ["never", "always"]
    assert [each["module"] for each in record["modules"]] == ["digest.c", "json_read.c"]
    for module in record["modules"]:
        assert module["first"]["answers"] == [0, 1]
        difference = module["text_bytes"][1] - module["text_bytes"][0]
        sizes = [each["bytes"] for each in module["functions"]]
        assert sum((after or 0) - (before or 0) for before, after in sizes) == difference
    assert record["errors"] == []


def test_nothing_differs(tmp_path: Path) -> None:
    done = run("explain", "--policy", "default", *MODULES, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ways part" not in done.stdout
    assert "0.00 %" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--policy", "never", "--module", "no.c"),
            "corpus: expected a module 'no.c', found none among 22",
        ),
        (
            ("--policy", "never", "--policy", "always", "--policy", "default"),
            "expected one or two models or policies, found 3",
        ),
        (
            ("--policy", "never", "--html", "no/page.html"),
            "--html: expected an existing folder, found 'no'",
        ),
        (
            ("--policy", "never", "--decisions", "no/one.json"),
            "--decisions: expected an existing folder, found 'no'",
        ),
        (
            ("--policy", "never", "--source", "no"),
            "--source: expected a folder, found 'no'",
        ),
    ],
)
def test_bad_input(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    check_refused(message, "explain", *options, cwd=tmp_path)


@pytest.mark.smoke
@pytest.mark.e2e
def test_what_is_executed(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    require("valgrind", "valgrind")
    line = ("explain", "--policy", "never", "--module", "json_read.c", "--run")
    done = run(*line, "--decisions", "decisions.parquet", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "functions that execute more" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert sum(row["executed"] or 0 for row in rows if row["policy"] == "LLVM") > 1_000_000
    assert {row["executed"] for row in rows if row["policy"] == "never"} == {0}
