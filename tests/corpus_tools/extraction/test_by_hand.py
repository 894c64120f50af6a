"""Archives, folders and objects that no tool here makes, and names that lead elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from corpus_tools.bitcode import target_triple
from corpus_tools.errors import BuildListError, BuildOptionError, ExtractionError
from corpus_tools.extraction import (
    Extraction,
    ObjectInput,
    Outcome,
    Status,
    extract_corpus,
    list_aquery,
    list_compile_commands,
    list_folder,
    list_parameters,
)
from corpus_tools.extraction.command import main
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.static_archive import list_archive, list_thinlto_modules
from corpus_tools.extraction.store import open_store
from corpus_tools.object_file import LARGEST_BYTES
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from tests.corpus_tools.extraction.conftest import EMBED, run

BITCODE = (SAMPLE_CORPUS / "frame_stream.c.bc").read_bytes()


def member(name: bytes, size: int) -> bytes:
    """The header of an archive's member."""
    return (
        name.ljust(16)
        + b"0".ljust(12)
        + b"0".ljust(12)
        + b"644".ljust(8)
        + (str(size).encode().ljust(10) + b"`\n")
    )


def test_an_archive_with_a_huge_member(tmp_path: Path) -> None:
    (tmp_path / "x.a").write_bytes(b"!<arch>\n" + member(b"m.o/", LARGEST_BYTES + 1))
    (outcome,) = list_archive("x.a", tmp_path)
    problem = f"expected at most {LARGEST_BYTES} bytes, found {LARGEST_BYTES + 1}"
    reason = f"archive cannot be read: member at byte 8: {problem}"
    assert outcome == Outcome("x.a", Status.FAILED, reason=reason)


def test_an_archive_whose_members_share_a_long_name(tmp_path: Path) -> None:
    """Sixty bytes of a header would be a name of a megabyte each time."""
    table = b"a" * (1 << 20) + b"/\n"
    members = member(b"/0", 0) * 100
    (tmp_path / "x.a").write_bytes(b"!<arch>\n" + member(b"//", len(table)) + table + members)
    (outcome,) = list_archive("x.a", tmp_path)
    assert isinstance(outcome, Outcome)
    problem = "expected at most 67108864 bytes of names in all, found more"
    assert outcome.reason == f"archive cannot be read: {problem}"


def test_an_archive_with_a_huge_table_of_names(tmp_path: Path) -> None:
    """It is not read: the file may be sparse."""
    with (tmp_path / "x.a").open("wb") as file:
        file.write(b"!<arch>\n" + member(b"//", 9_999_999_998))
        file.truncate(10_000_000_066)
    (outcome,) = list_archive("x.a", tmp_path)
    assert isinstance(outcome, Outcome)
    problem = "names: expected at most 67108864 bytes, found 9999999998"
    assert outcome.reason == f"archive cannot be read: {problem}"


def test_the_index_of_an_archive_is_no_member(tmp_path: Path) -> None:
    data = b"!<arch>\n" + member(b"__.SYMDEF SORTED", 4) + b"\0" * 4 + member(b"m.o/", 2) + b"BC"
    (tmp_path / "x.a").write_bytes(data)
    (each,) = list_archive("x.a", tmp_path)
    assert isinstance(each, ObjectInput)
    assert (each.name, each.member) == ("x.a/m.o", (len(data) - 2, 2))


def test_an_archive_outside_the_build(tmp_path: Path) -> None:
    (outcome,) = list_archive("../x.a", tmp_path / "build")
    reason = f"lies outside {tmp_path / 'build'}; name a folder above it with --obj_base_dir"
    assert outcome == Outcome("../x.a", Status.FAILED, reason=reason)


def test_objects_of_the_system_are_no_part_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "params").write_text("/usr/lib/crt1.o\n../other.o\na.o\n")
    first, second, third = list_parameters(tmp_path / "params", tmp_path)
    assert first == Outcome("/usr/lib/crt1.o", Status.SKIPPED, reason=f"lies outside {tmp_path}")
    assert isinstance(second, Outcome)
    assert second.status is Status.FAILED
    assert isinstance(third, ObjectInput)


@pytest.mark.parametrize("files", ["x", ["x"], {"execPath": "x"}])
def test_parameter_files_that_are_none(files: object, tmp_path: Path) -> None:
    link = {"mnemonic": "CppLink", "arguments": ["clang"], "paramFiles": files}
    path = tmp_path / "aquery.json"
    path.write_text(json.dumps({"actions": [link]}))
    with pytest.raises(BuildListError) as caught:
        list_aquery(path, tmp_path)
    assert str(caught.value).startswith(f"{path}: CppLink[0].paramFiles")


def test_commands_of_objects_elsewhere(tmp_path: Path) -> None:
    """Beside objects of one name, which are told apart by their folders."""
    entries = [
        {"directory": str(tmp_path / folder), "file": "a.c", "output": "a.o",
         "command": "clang -c a.c -o a.o"}
        for folder in ("one", "two")
    ] + [
        {"directory": str(tmp_path / "one"), "file": "a.c", "output": "/elsewhere/b.o",
         "command": "clang -c a.c -o /elsewhere/b.o"}
    ]  # fmt: skip
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps(entries))
    *both, outside = list_compile_commands(path, tmp_path)
    assert [each.name for each in both if isinstance(each, ObjectInput)] == ["one/a.o", "two/a.o"]
    assert isinstance(outside, Outcome)
    assert outside.reason.startswith(f"lies outside {tmp_path / 'one'}")


def test_thinlto_modules_of_one_link(tmp_path: Path) -> None:
    names = ("a.o", "lib.a(m.o at 12)", "other.o", "old.a(m.o at 8)")
    for name in names:
        (tmp_path / f"{name}.3.import.bc").touch()
    everything = list_thinlto_modules(tmp_path)
    assert [each.name for each in everything if isinstance(each, ObjectInput)] == sorted(names)
    listed = list_thinlto_modules(tmp_path, ["-O2", "a.o", f"{tmp_path}/./lib.a"])
    found = {
        each.name if isinstance(each, ObjectInput) else each.input: isinstance(each, ObjectInput)
        for each in listed
    }
    assert found == {name: name in names[:2] for name in names}
    skipped = [each for each in listed if isinstance(each, Outcome)]
    assert {(each.status, each.reason) for each in skipped} == {(Status.SKIPPED, "of another link")}


def local_build(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.o.3.import.bc").write_bytes(BITCODE)
    (folder / "a.o.thinlto.bc").write_bytes(b"index")
    (folder / "b.o.3.import.bc").write_bytes(b"text")
    (folder / "b.o.thinlto.bc").write_bytes(b"index")
    return folder


@pytest.mark.parametrize(
    ("parameters", "override", "warnings"),
    [
        (
            ["ld.lld", "--lto-O1", "a.o"],
            ["-cc1", "-triple", str(target_triple(BITCODE)), "-emit-obj", "-O1"],
            [],
        ),
        (
            ["gcc", "a.o"],
            ["<UNSPECIFIED>"],
            [
                "global_command_override is <UNSPECIFIED> and has to be filled in; the link's "
                "parameters do not tell it: expected parameters of lld or of clang, found those "
                "of 'gcc'"
            ],
        ),
        (
            None,
            ["<UNSPECIFIED>"],
            [
                "global_command_override is <UNSPECIFIED> and has to be filled in; give the "
                "link's parameters with --input FILE --input_type params"
            ],
        ),
    ],
)
def test_the_command_of_a_local_thinlto_build(
    parameters: list[str] | None, override: list[str], warnings: list[str], tmp_path: Path
) -> None:
    build, output = local_build(tmp_path / "build"), tmp_path / "corpus"
    extraction = Extraction(thinlto_build="local")
    listed = list_thinlto_modules(build)
    report = extract_corpus(
        listed, output, extraction, link_parameters=parameters, link_directory=build
    )
    assert report.modules == ("a.o",)
    failed = [each.reason for each in report.outcomes if each.status is Status.FAILED]
    assert failed == ["expected bitcode at byte 0, found 74 65 78 74"]
    assert list(report.warnings) == warnings
    manifest = json.loads((output / "corpus_description.json").read_text())
    assert manifest["global_command_override"][: len(override)] == override


def test_no_workers(tmp_path: Path) -> None:
    with pytest.raises(BuildOptionError) as caught:
        extract_corpus([], tmp_path / "corpus", num_workers=0)
    assert str(caught.value) == "num_workers: expected at least 1, found 0"
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "expected a name, found an empty string"),
        ("../a", "expected a name inside the corpus, found a '..' part"),
        ("taken/by", "something else is at {}/taken"),
        ("folder", "something else is at {}/folder.bc"),
        ("a.bc/b", "a.bc would be both a file and a folder"),
        ("deep", "deep.bc would be both a file and a folder"),
    ],
)
def test_modules_in_the_way(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    (tmp_path / "folder.bc").mkdir()
    with open_store(tmp_path) as store:
        for other in ("a", "deep.bc/inside"):
            store.stage(ExtractedModule(other, {".bc": b"BC"}), other)
        with pytest.raises(ExtractionError) as caught:
            store.stage(ExtractedModule(name, {".bc": b"BC"}), name)
    assert str(caught.value) == f"module {name!r}: {problem.format(tmp_path)}"


@pytest.fixture(scope="module")
def mach_o(tmp_path_factory: pytest.TempPathFactory, clang: str) -> Path:
    """An object for Darwin, and one with bitcode alone."""
    folder = tmp_path_factory.mktemp("darwin")
    (folder / "a.c").write_text("int f(int x) { return x + 1; }")
    target = "--target=arm64-apple-macosx13"
    run(clang, target, *EMBED.split(), "-c", "a.c", "-o", "a.o", cwd=folder)
    return folder


def test_an_object_for_darwin(mach_o: Path, tmp_path: Path) -> None:
    report = extract_corpus(list_folder(mach_o), tmp_path / "corpus")
    assert report.modules == ("a.o",)
    assert (tmp_path / "corpus" / "a.o.cmd").read_bytes().startswith(b"-cc1\0-triple\0arm64")
    report = extract_corpus(
        list_folder(mach_o), tmp_path / "other", Extraction(thinlto_build="distributed")
    )
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.reason) == (
        Status.FAILED,
        "expected -fthinlto-index= in its command, as in a distributed ThinLTO build, found none",
    )


def test_bitcode_whose_command_is_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(BITCODE)
    for pattern, expected in (("^-Oz$", Status.EXTRACTED), ("^-O3$", Status.SKIPPED)):
        extraction = Extraction(default_args=("-cc1", "-Oz"), cmd_filter=re.compile(pattern))
        report = extract_corpus(list_folder(tmp_path), tmp_path / pattern, extraction)
        (outcome,) = report.outcomes
        assert outcome.status is expected
    assert outcome.reason == "no argument of its command matches --cmd_filter"


def test_more_failures_than_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = tmp_path / "build"
    build.mkdir()
    for index in range(23):
        (build / f"{index:02}.o").write_text("no object")
    arguments = ["--input", str(build), "--input_type", "directory"]
    assert main([*arguments, "--output_dir", str(tmp_path / "corpus")]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 22
    assert errors[19].startswith("mlgo-extract-corpus: 19.o: expected an object file, found one")
    assert errors[20:] == [
        "mlgo-extract-corpus: and 3 more; --json shows all",
        "mlgo-extract-corpus: error: no module was extracted",
    ]


def test_bitcode_without_a_clang_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.o").write_bytes(BITCODE)
    command = {"directory": str(tmp_path), "file": "a.c", "output": "a.o"}
    command["command"] = "clang -flto -c a.c -o a.o"
    (tmp_path / "compile_commands.json").write_text(json.dumps([command]))
    monkeypatch.setenv("PATH", "")
    arguments = ["--input", str(tmp_path / "compile_commands.json"), "--json"]
    assert main([*arguments, "--output_dir", str(tmp_path / "corpus")]) == 1
    (outcome,) = json.loads(capsys.readouterr().out)["inputs"]
    assert outcome["outcome"] == "skipped"
    assert outcome["reason"] == (
        "bitcode (built with -flto?): its command takes a clang, or --default_args"
    )
