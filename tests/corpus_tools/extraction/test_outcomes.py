"""Every input ends somewhere: a table of inputs, outcomes and exact messages."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus_tools.bitcode import MAGIC
from corpus_tools.extraction import (
    Extraction,
    ExtractionReport,
    Status,
    extract_corpus,
    list_compile_commands,
    list_folder,
    list_parameters,
)
from corpus_tools.extraction.command import main
from corpus_tools.object_file import LARGEST_BYTES, ObjectFile
from tests.conftest import require
from tests.corpus_tools.extraction.conftest import EMBED, run, tree

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory, clang: str) -> dict[str, bytes]:
    """Objects of two sources, made in different ways."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "a.c").write_text("int f(int x) { return x + 1; }\n")
    (folder / "b.c").write_text("int g(int x) { return x * 3; }\n")
    (folder / "c.s").write_text("nop\n")
    embed = EMBED.split()
    flags: dict[str, list[str]] = {
        "a.o": [*embed, "a.c"],
        "b.o": [*embed, "b.c"],
        "plain.o": ["a.c"],
        "marker.o": ["-Xclang", "-fembed-bitcode=marker", "a.c"],
        "assembly.o": ["c.s"],
        "lto.o": ["-flto", "a.c"],
    }
    for output, arguments in flags.items():
        run(clang, "-O2", "-c", *arguments, "-o", output, cwd=folder)
    run(require("gcc", "gcc"), "-c", "a.c", "-o", "gcc.o", cwd=folder)
    run(require("ld.lld-22", "lld-22"), "-r", "a.o", "b.o", "-o", "merged.o", cwd=folder)
    run(require("llvm-ar-22", "llvm-22"), "rcs", "both.a", "a.o", "b.o", cwd=folder)
    objects = [*flags, "gcc.o", "merged.o", "both.a"]
    return {name: (folder / name).read_bytes() for name in objects}


@pytest.fixture
def build(tmp_path: Path, compiled: dict[str, bytes]) -> Build:
    """A build's folder with some of these objects in it, under any names."""

    def make(**objects: str | bytes) -> Path:
        folder = tmp_path / "build"
        for name, content in objects.items():
            path = folder / name.replace("__", "/").replace("_o", ".o").replace("_a", ".a")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(compiled[content] if isinstance(content, str) else content)
        return folder

    return make


def only(report: ExtractionReport) -> tuple[Status, str]:
    assert len(report.outcomes) == 1
    return report.outcomes[0].status, report.outcomes[0].reason


SKIPPED, FAILED = Status.SKIPPED, Status.FAILED
HINT = "built without -Xclang -fembed-bitcode=all"


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        ("plain.o", SKIPPED, f"no section .llvmcmd: {HINT}"),
        ("assembly.o", SKIPPED, f"no section .llvmcmd: assembly, or {HINT}"),
        (
            "marker.o",
            SKIPPED,
            "section .llvmbc is only a marker; build with -Xclang -fembed-bitcode=all",
        ),
        (
            "lto.o",
            SKIPPED,
            "bitcode (built with -flto?): its command takes --input_type json, or --default_args",
        ),
        (b"", SKIPPED, "empty file"),
        (b"no object", FAILED, "expected an object file, found one that starts with b'no o'"),
        (b"BC\xc0\xdebad", FAILED, "expected a block at byte 4, found something else"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_objects(
    content: str | bytes, status: Status, reason: str, build: Build, tmp_path: Path
) -> None:
    report = extract_corpus(list_folder(build(x_o=content)), tmp_path / "corpus")
    assert only(report) == (status, reason)
    assert report.modules == ()


def test_an_object_of_another_compiler(build: Build, tmp_path: Path) -> None:
    status, reason = only(extract_corpus(list_folder(build(x_o="gcc.o")), tmp_path / "corpus"))
    assert status is SKIPPED
    assert reason.startswith("no section .llvmcmd: not built by clang but by GCC: (")


def test_truncated_object(build: Build, compiled: dict[str, bytes], tmp_path: Path) -> None:
    folder = build(x_o=compiled["a.o"][:2000])
    status, reason = only(extract_corpus(list_folder(folder), tmp_path / "corpus"))
    assert (status, reason.split(":")[0]) == (FAILED, "truncated")


def test_huge_object(build: Build, tmp_path: Path) -> None:
    folder = build(x_o="a.o")
    with (folder / "x.o").open("r+b") as stream:
        stream.truncate(LARGEST_BYTES + 1)
    assert only(extract_corpus(list_folder(folder), tmp_path / "corpus")) == (
        FAILED,
        f"cannot be read: expected at most {LARGEST_BYTES} bytes, found {LARGEST_BYTES + 1}",
    )


def changed_section(data: bytes, section: str, content: bytes) -> bytes:
    """An object with other bytes where a section starts."""
    offset = next(at for name, at, _ in ObjectFile.parse(data).sections if name == section)
    return data[:offset] + content + data[offset + len(content) :]


@pytest.mark.parametrize(
    ("section", "content", "reason"),
    [
        (".llvmbc", b"garbage!", "expected bitcode at byte 0, found 67 61 72 62"),
        (".llvmbc", b"BC\xc0\xde\0\0\0\0", "expected a block at byte 4, found something else"),
        (
            ".llvmcmd",
            b"garbage!",
            "command: expected '-cc1' as the first argument, found b'garba'",
        ),
    ],
)
def test_sections_with_garbage(
    section: str, content: bytes, reason: str, build: Build, tmp_path: Path
) -> None:
    path = build(x_o="a.o") / "x.o"
    path.write_bytes(changed_section(path.read_bytes(), section, content))
    found = only(extract_corpus(list_folder(path.parent), tmp_path / "corpus"))
    assert found == (FAILED, reason)


def test_a_command_that_is_no_utf8(
    build: Build, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    data = compiled["a.o"].replace(b"-main-file-name\0a.c", b"-main-file-name\0\xff.c")
    extraction = Extraction(cmd_filter=re.compile("^-O2$"))
    report = extract_corpus(list_folder(build(x_o=data)), tmp_path / "corpus", extraction)
    assert report.modules == ("x.o",)
    assert b"\0-main-file-name\0\xff.c\0" in (tmp_path / "corpus" / "x.o.cmd").read_bytes()


def test_merged_objects_are_split(build: Build, tmp_path: Path) -> None:
    folder = build(merged_o="merged.o", a_o="a.o", b_o="b.o")
    report = extract_corpus(list_folder(folder), tmp_path / "corpus")
    assert report.modules == ("a.o", "b.o", "merged.o.1", "merged.o.2")
    files = tree(tmp_path / "corpus")
    for part, whole in (("merged.o.1", "a.o"), ("merged.o.2", "b.o")):
        assert [files[part + end] for end in (".bc", ".cmd")] == [
            files[whole + end] for end in (".bc", ".cmd")
        ]


def test_merged_objects_that_do_not_add_up(
    build: Build, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    before, first_argument, after = compiled["merged.o"].rpartition(b"\0-cc1\0-triple")
    data = before + first_argument.replace(b"1", b"2") + after
    assert only(extract_corpus(list_folder(build(x_o=data)), tmp_path / "corpus")) == (
        FAILED,
        "several objects were merged: expected a command for each module, found 1 and 2",
    )


def test_members_of_archives(build: Build, tmp_path: Path) -> None:
    report = extract_corpus(list_folder(build(x_a="both.a")), tmp_path / "corpus")
    assert report.modules == ("x.a/a.o", "x.a/b.o")
    report = extract_corpus(list_folder(build(x_a="both.a", b_o="b.o")), tmp_path / "corpus")
    assert report.modules == ("b.o", "x.a/a.o")
    assert report.outcomes[2].input == "x.a(b.o)"
    assert report.outcomes[2].reason == "the same as b.o"


def archive(*members: tuple[bytes, bytes], thin: bool = False) -> bytes:
    """An archive of BSD's kind, whose names may be of any length."""
    data = b"!<thin>\n" if thin else b"!<arch>\n"
    for name, content in members:
        size = len(name) + len(content)
        header = b"#1/%-13d%-12d%-6d%-6d%-8o%-10d`\n" % (len(name), 0, 0, 0, 0o644, size)
        data += header + name + content + b"\n" * (size % 2)
    return data


@pytest.mark.parametrize(
    ("content", "label", "reason"),
    [
        (
            archive((b"/etc/passwd.o", b"x")),
            "x.a(/etc/passwd.o)",
            "member refused: expected a relative name, found an absolute one",
        ),
        (
            archive((b"../../a.o", b"x")),
            "x.a(../../a.o)",
            "member refused: expected a name inside the corpus, found a '..' part",
        ),
        (
            archive((b"a.o", b"x"))[:-3],
            "x.a",
            "archive cannot be read: member at byte 8 ends at byte 72 of 69",
        ),
        (
            archive((b"a.o", b"x")).replace(b"4         `", b"-60       `"),
            "x.a",
            "archive cannot be read: member at byte 8 has size -63",
        ),
        (
            archive((b"a.o", b"x")).replace(b"`\n", b"__"),
            "x.a",
            "archive cannot be read: file header magic doesn't match",
        ),
        (b"no archive", "x.a", "archive cannot be read: file is missing the global header"),
    ],
    ids=["absolute", "dots", "truncated", "negative", "magic", "none"],
)
def test_broken_archives(
    content: bytes, label: str, reason: str, build: Build, tmp_path: Path
) -> None:
    report = extract_corpus(list_folder(build(x_a=content)), tmp_path / "corpus")
    assert only(report) == (FAILED, reason)
    assert report.outcomes[0].input == label
    assert {path.name for path in tmp_path.iterdir()} == {"build", "corpus"}


def test_members_of_one_name(build: Build, compiled: dict[str, bytes], tmp_path: Path) -> None:
    content = archive((b"a.o", compiled["a.o"]), (b"a.o", compiled["b.o"]))
    report = extract_corpus(list_folder(build(x_a=content)), tmp_path / "corpus")
    assert report.modules == ("x.a/a.o", "x.a/a.o.2")


def test_thin_archives(build: Build, tmp_path: Path) -> None:
    folder = build(a_o="a.o", b_o="b.o")
    run(require("llvm-ar-22", "llvm-22"), "rcsT", "thin.a", "a.o", "b.o", cwd=folder)
    (folder / "params").write_text("thin.a\n")
    report = extract_corpus(list_parameters(folder / "params", folder), tmp_path / "corpus")
    assert report.modules == ("a.o", "b.o")


def entry(folder: Path, output: str, **more: Any) -> dict[str, Any]:
    return {
        "directory": str(folder),
        "file": "a.c",
        "arguments": ["clang", "-c", "a.c", "-o", output],
        **more,
    }


def database(folder: Path, *entries: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"directory": "/no/such"}, FAILED, "the build's directory /no/such is gone"),
        ({"directory": 3}, FAILED, "key 'directory': expected a string, found 3"),
        (
            {"directory": ["x" * 5000] * 5000},
            FAILED,
            "key 'directory': expected a string, found ['xxxxxxxxxxxx...xxxxxxxxxxxxx', "
            "'xxxxxxxxxxxx...xxxxxxxxxxxxx', 'xxxxxxxxxxxx...xxxxxxxxxxxxx', "
            "'xxxxxxxxxxxx...xxxxxxxxxxxxx', 'xxxxxxxxxxxx...xxxxxxxxxxxxx', "
            "'xxxxxxxxxxxx...xxxxxxxxxxxxx', ...]",
        ),
        ({"arguments": "x"}, FAILED, "key 'arguments': expected a list of strings"),
        ({"arguments": ["clang", "-E", "a.c"]}, SKIPPED, "makes no object (-E)"),
        ({"arguments": ["clang", "a.c"]}, SKIPPED, "names no object (no -o and no -c)"),
        ({"file": "a.S"}, SKIPPED, "assembly, which has no bitcode"),
        ({}, SKIPPED, "not built: there is no such object"),
        (
            {"arguments": ["clang", "-c", "a.c", "-o", "/elsewhere/a.o"]},
            FAILED,
            "lies outside {}; name a folder above it with --obj_base_dir",
        ),
        (
            {"arguments": ["clang", "-c", "a.c", "-o", "a\\b.o"]},
            FAILED,
            "module 'a\\\\b.o': expected a name without NUL and backslash, found one",
        ),
    ],
)
def test_entries_of_databases(
    change: dict[str, Any], status: Status, reason: str, tmp_path: Path
) -> None:
    folder = tmp_path / "build"
    path = database(folder, entry(folder, "a.o", **change))
    report = extract_corpus(list_compile_commands(path), tmp_path / "corpus")
    assert only(report) == (status, reason.format(folder))


def test_entries_that_are_none(tmp_path: Path) -> None:
    bad_quotes = {"directory": str(tmp_path), "command": "clang 'a.c"}
    path = database(tmp_path, 7, {"file": "a.c"}, {"directory": "."}, bad_quotes)
    report = extract_corpus(list_compile_commands(path), tmp_path / "corpus")
    assert [(each.input, each.status, each.reason) for each in report.outcomes] == [
        ("entry 0", FAILED, "expected an object, found int"),
        ("entry 1", FAILED, "key 'directory': expected a string, found none"),
        ("entry 2", FAILED, "expected 'arguments' or 'command', found neither"),
        ("entry 3", FAILED, "key 'command': expected shell words: No closing quotation"),
    ]


@pytest.mark.parametrize(
    "command",
    [
        "clang -c a.c -o 'out dir/a b.o'",
        'clang -c a.c -o "out dir/a b.o"',
        r"clang -c a.c -oout\ dir/a\ b.o",
        "clang -c a.c @args",
        "clang -c a.c -o first.o --output='out dir/a b.o'",
        "clang -Xclang -o -c a.c -o 'out dir/a b.o'",
        "clang-cl -c a.c '/Foout dir/a b.o'",
    ],
)
def test_outputs_of_commands(command: str, build: Build, tmp_path: Path) -> None:
    folder = build(**{"out dir__a b_o": "a.o"})
    (folder / "args").write_text("-o 'out dir/a b.o'\n")
    given = {"directory": str(folder), "file": "a.c", "command": command}
    report = extract_corpus(list_compile_commands(database(folder, given)), tmp_path / "corpus")
    assert report.modules == ("out dir/a b.o",)


def test_outputs_that_the_command_does_not_name(build: Build, tmp_path: Path) -> None:
    folder = build(a_o="a.o", b_o="b.o")
    given = [
        {"directory": ".", "file": "src/a.c", "arguments": ["clang", "-c", "src/a.c"]},
        {"directory": ".", "file": "x.c", "output": "b.o", "arguments": ["clang", "x.c"]},
    ]
    path = database(folder, *given)
    assert extract_corpus(list_compile_commands(path), tmp_path / "c").modules == ("a.o", "b.o")


def test_absolute_outputs_are_named_by_the_folders_above(build: Build, tmp_path: Path) -> None:
    folder = build(sub__a_o="a.o", other__b_o="b.o")
    inside = entry(folder, str(folder / "sub" / "a.o"))
    outside = entry(folder / "sub", "../other/b.o")
    path = database(folder, inside, outside)
    report = extract_corpus(list_compile_commands(path, folder), tmp_path / "corpus")
    assert report.modules == ("sub/a.o", "other/b.o")


def test_two_inputs_of_one_name(build: Build, tmp_path: Path) -> None:
    folder = build(one__x_o="a.o", two__x_o="b.o")
    same = entry(folder / "one", "x.o")
    path = database(folder, same, entry(folder / "two", "x.o"), same)
    report = extract_corpus(list_compile_commands(path), tmp_path / "corpus")
    assert [(each.status.value, each.reason) for each in report.outcomes] == [
        ("extracted", ""),
        (
            "failed",
            f"module 'x.o': expected a name of its own, found that of {folder}/one/x.o; "
            "name a folder above both with --obj_base_dir",
        ),
        ("skipped", "listed twice"),
    ]


def test_two_inputs_of_one_name_below_one_folder(build: Build, tmp_path: Path) -> None:
    folder = build(one__x_o="a.o", two__x_o="b.o", two__y_o="a.o")
    given = [entry(folder / where, name) for where, name in (("one", "x.o"), ("two", "x.o"))]
    path = database(folder, *given, entry(folder / "two", "y.o"))
    report = extract_corpus(list_compile_commands(path, folder), tmp_path / "corpus")
    assert report.modules == ("one/x.o", "two/x.o", "y.o")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"arguments": ["clang", "-c", "a.c", "-o", "x" * 300]}, "File name too long"),
        ({"directory": "x" * 300}, "File name too long"),
        ({"directory": "a\0b"}, "the build's directory {}/a\0b is gone"),
        ({"arguments": ["clang", "@fifo", "-o", "a.o"]}, "expected a regular file"),
        ({"arguments": ["clang", "@bomb", "-o", "a.o"]}, "expected at most 262144 arguments"),
    ],
    ids=["object", "directory", "nul", "fifo", "bomb"],
)
def test_entries_that_the_system_has_no_file_for(
    given: dict[str, Any], reason: str, build: Build, tmp_path: Path
) -> None:
    folder = build(good_o="b.o")
    os.mkfifo(folder / "fifo")
    (folder / "bomb").write_text("@deeper " * 1000)
    (folder / "deeper").write_text("x " * 1000)
    path = database(folder, entry(folder, "a.o", **given), entry(folder, "good.o"))
    report = extract_corpus(list_compile_commands(path), tmp_path / "corpus")
    assert report.modules == ("good.o",)
    assert report.outcomes[0].status is FAILED
    assert reason.format(folder) in report.outcomes[0].reason


def test_pipes_are_not_waited_for(build: Build, tmp_path: Path) -> None:
    folder = build(a_o="a.o")
    for name in ("x.a", "x.o", "x.lo"):
        os.mkfifo(folder / name)
    report = extract_corpus(list_folder(folder), tmp_path / "corpus")
    assert report.modules == ("a.o",)
    regular = "expected a regular file, found something else"
    assert [each.reason for each in report.outcomes if each.reason] == [
        f"cannot be read: {regular}",
        f"archive cannot be read: {regular}",
    ]


def test_one_broken_input_does_not_stop_the_others(build: Build, tmp_path: Path) -> None:
    broken = MAGIC + struct.pack("<II", 0x0C21, 1) + b"\xff" * 4
    path = build(a_o="a.o", z_o="b.o") / "a.o"
    path.write_bytes(changed_section(path.read_bytes(), ".llvmbc", broken))
    report = extract_corpus(list_folder(path.parent), tmp_path / "corpus")
    assert report.modules[-1] == "z.o"


def test_nothing_extracted_changes_nothing(build: Build, tmp_path: Path) -> None:
    listed = list_folder(build(a_o="a.o"))
    extract_corpus(listed, tmp_path / "corpus")
    before = tree(tmp_path / "corpus")
    extraction = Extraction(cmd_filter=re.compile("^-O9$"))
    assert extract_corpus(listed, tmp_path / "corpus", extraction).modules == ()
    assert tree(tmp_path / "corpus") == before


def test_links_to_build_folders(build: Build, tmp_path: Path) -> None:
    folder = build(deep__down__a_o="a.o", deep__b_o="b.o")
    (folder / "link").symlink_to(folder / "deep" / "down")
    absolute = str(folder / "deep" / "down" / "a.o")
    given = [entry(folder / "link", absolute), entry(folder / "link", "../b.o")]
    report = extract_corpus(
        list_compile_commands(database(folder, *given), folder), tmp_path / "corpus"
    )
    # The first lies below the link's target, the second beside it.
    assert report.modules == ("a.o", "deep/b.o")


def test_a_module_in_the_way_of_another(build: Build, tmp_path: Path) -> None:
    folder = build(a_o="a.o", **{"a_o.bc__b_o": "b.o"})
    report = extract_corpus(list_folder(folder), tmp_path / "corpus")
    assert [each.reason for each in report.outcomes] == [
        "",
        "module 'a.o.bc/b.o': a.o.bc would be both a file and a folder",
    ]


def test_bitcode_objects_get_the_command_of_their_driver(
    build: Build, tmp_path: Path, clang: str
) -> None:
    folder = build(a_o="lto.o")
    (folder / "a.c").write_text("int f(int x) { return x + 1; }\n")
    arguments = [clang, "-O2", "-flto", "-fPIC", "-c", "a.c", "-o", "a.o"]
    path = database(folder, entry(folder, "a.o", arguments=arguments))
    assert main(["--input", str(path), "--output_dir", str(tmp_path / "corpus")]) == 0
    command = (tmp_path / "corpus" / "a.o.cmd").read_bytes().split(b"\0")
    assert command[0] == b"-cc1"
    assert {b"-O2", b"-emit-obj", b"pic"} <= set(command)
    assert not [argument for argument in command if b"lto" in argument]


def test_bitcode_objects_get_default_args(build: Build, tmp_path: Path) -> None:
    arguments = ["--input", str(build(a_o="lto.o")), "--input_type", "directory"]
    arguments += ["--default_args", "-cc1 -O2", "--output_dir", str(tmp_path / "corpus")]
    assert main(arguments) == 0
    assert (tmp_path / "corpus" / "a.o.cmd").read_bytes() == b"-cc1\0-O2"


def test_a_link_out_of_the_corpus_is_not_followed(build: Build, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "sub").symlink_to(elsewhere)
    report = extract_corpus(list_folder(build(sub__a_o="a.o")), tmp_path / "corpus")
    reason = f"module 'sub/a.o': a link leads out of the corpus to {elsewhere}"
    assert only(report) == (FAILED, reason)
    assert list(elsewhere.iterdir()) == []


def test_names_that_are_too_long(build: Build, tmp_path: Path) -> None:
    name = "x" * 252
    report = extract_corpus(list_folder(build(**{f"{name}_o": "a.o"})), tmp_path / "corpus")
    assert only(report) == (FAILED, f"module '{name}.o': File name too long")


def test_what_was_there_stays(build: Build, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    extract_corpus(list_folder(build(a_o="a.o", b_o="b.o")), corpus)
    (corpus / "notes.txt").write_text("mine")
    before = tree(corpus)
    shutil.rmtree(tmp_path / "build")
    extract_corpus(list_folder(build(a_o="a.o")), corpus)
    after = tree(corpus)
    assert json.loads(after.pop("corpus_description.json"))["modules"] == ["a.o"]
    del before["corpus_description.json"]
    assert after == before


@pytest.mark.parametrize("is_folder", [True, False])
def test_output_that_cannot_be_written(
    is_folder: bool, build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_folder:
        output, reason = Path("/proc/corpus"), "No such file or directory"
    else:
        output, reason = tmp_path / "file", "File exists"
        output.write_text("mine")
    arguments = ["--input", str(build(a_o="a.o")), "--input_type", "directory"]
    assert main([*arguments, "--output_dir", str(output)]) == 1
    expected = f"mlgo-extract-corpus: error: output {output}: cannot be written: {reason}\n"
    assert capsys.readouterr().err == expected


def test_read_only_output(build: Build, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    corpus.chmod(0o555)
    listed = list_folder(build(a_o="a.o"))
    child = os.fork()
    if child == 0:  # as somebody whom permissions hold back
        status = 9
        try:
            for parent in (tmp_path, *tmp_path.parents):
                mode = parent.stat().st_mode
                if mode & 0o005 != 0o005:
                    parent.chmod(mode | 0o055)  # with what it has: it may be /tmp
            if os.geteuid() == 0:
                os.setuid(65534)
            extract_corpus(listed, corpus)
        except Exception as error:  # noqa: BLE001 - the parent judges it
            expected = f"output {corpus}: cannot be written: Permission denied"
            status = 0 if str(error) == expected else 8
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(corpus.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "input_type", "problem"),
    [
        (b"{", "json", "expected JSON, found something else: Expecting property name enclosed"),
        (b"{}", "json", "expected a list of commands, found dict"),
        (b"[]", "bazel_aquery", "expected an object with a list 'actions', found none"),
        (
            b'{"actions": [{"mnemonic": "CppLink", "arguments": 3}]}',
            "bazel_aquery",
            "key 'arguments' of a CppLink: expected a list of strings",
        ),
        (b"'open", "params", "expected arguments, found an open quote: No closing quotation"),
        (b"@list", "params", "expected response files that end, found one in itself"),
        (None, "json", "cannot be read: No such file or directory"),
        (None, "params", "cannot be read: No such file or directory"),
        (None, "directory", "expected a folder, found none"),
    ],
)
def test_lists_that_are_none(
    content: bytes | None,
    input_type: str,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "list"
    if content is not None:
        path.write_bytes(content)
    arguments = ["--input", str(path), "--input-type", input_type, "--obj-base-dir", str(tmp_path)]
    assert main([*arguments, "--output-dir", str(tmp_path / "corpus")]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"mlgo-extract-corpus: error: {path}: {problem}")
    assert not (tmp_path / "corpus").exists()
