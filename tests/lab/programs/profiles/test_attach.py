"""What comes of a corpus that is given counts, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import ModuleError, ProfileError, WorkloadError
from mlgo_gym.lab.programs import (
    Attached,
    ProfileFile,
    Programs,
    attach_profile,
    collect_profile,
    run_program,
)
from tests.conftest import require
from tests.lab.programs.conftest import MakeCorpus
from tests.lab.programs.profiles.conftest import LOOPS_MAIN, counted, description

pytestmark = pytest.mark.e2e

INDEXED = b"\xfflprofi\x81"
EXPECTED = (
    "profile 'a.profdata': expected a profile of instrumented IR as 'llvm-profdata merge' writes "
    "it, found "
)
NO_PROFILES = {
    b"": "an empty file",
    b"\x81rforpl\xff" + bytes(100): "a raw one, which is to be merged first",
    b":ir\nmain\n": "something else",
    INDEXED[:7]: "something else",
    INDEXED: "8 bytes",
    INDEXED + b"\x0d" + bytes(20): "one of clang's front end",
    INDEXED + b"\x0d" + bytes(6) + b"\x03" + bytes(20): "one of contexts, after inlining",
}
ALWAYS = """
static inline __attribute__((always_inline)) int twice(int x) { return x > 3 ? 2 * x : x; }
__attribute__((noinline)) int all(int x) { int s = 0; for (; x; x--) s += twice(x); return s; }
"""
ALWAYS_MAIN = "int all(int); int main(void) { return all(10) != 104; }"


@pytest.mark.parametrize("data", NO_PROFILES, ids=NO_PROFILES.values())
def test_what_is_no_profile(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.profdata").write_bytes(data)
    with pytest.raises(ProfileError) as error:
        ProfileFile.read("a.profdata")
    assert str(error.value) == EXPECTED + NO_PROFILES[data]
    assert error.value.profile == "a.profdata"


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProfileError) as error:
        ProfileFile.read("a.profdata")
    message = "profile 'a.profdata': cannot be read: No such file or directory"
    assert str(error.value) == message
    with Path("a.profdata").open("wb") as file:
        file.truncate((1 << 28) + 1)
    with pytest.raises(ProfileError) as error:
        ProfileFile.read("a.profdata")
    assert str(error.value) == (
        "profile 'a.profdata': cannot be read: expected at most 268435456 bytes, found 268435457"
    )


@pytest.fixture(scope="module", name="sample_profile")
def collected() -> ProfileFile:
    require("llvm-profdata-22", "llvm-22")
    return collect_profile(Corpus.load(SAMPLE_CORPUS)).profile


def test_all_else_stays(sample_profile: ProfileFile, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "sample")
    (tmp_path / "secret").write_text("of nobody's business")
    (tmp_path / "sample" / "workloads" / "link").symlink_to(tmp_path / "secret")
    plain = Corpus.load(tmp_path / "sample").only(["json_read.c", "digest.c", "json_write.c"])
    found = attach_profile(plain, sample_profile, tmp_path / "made")
    made = Corpus.load(tmp_path / "made")
    names = sorted(each.name for each in (made.folder / "workloads").iterdir())
    assert names == ["json.c", "workload.toml"]
    assert tuple(made) == tuple(plain) == tuple(found)
    assert all(made[name].command == plain[name].command for name in plain)
    assert found["digest.c"].counted == 0
    assert found["json_read.c"].counted > 10
    total = sum(found.values(), Attached())
    assert total.mismatched == 0
    with Programs(made) as programs:  # its workloads are there, and do the same
        workload = programs.workloads["json"]
        with programs.linked(workload) as program:
            assert run_program(workload, program.path).status == 0


@pytest.mark.usefixtures("tools")
def test_nothing_but_counts_is_put_in(corpus: MakeCorpus, tmp_path: Path) -> None:
    """Functions that must be inlined stay, too, unlike with clang -O0 -fprofile-use."""
    plain = corpus(description(), {"a.c": ALWAYS}, ALWAYS_MAIN)
    made = counted(plain, tmp_path / "made")
    texts = []
    for each in (plain, made):
        command = [require("llvm-dis-22", "llvm-22"), "a.c.bc", "-o", "-"]
        done = subprocess.run(command, cwd=each.folder, check=True, capture_output=True, text=True)
        without = re.sub(r",? !(?:prof|PGOFuncName) !\d+", "", done.stdout)
        texts.append([_plain(line) for line in without.split("\n") if line[:1] not in "!;a"])
    assert texts[0] == texts[1]
    assert any(line.startswith("define internal i32 @twice(") for line in texts[1])


def _plain(line: str) -> str:
    """A line without the numbers of metadata and attributes."""
    return re.sub(r"[!#]\d+", "", line).replace(" inlinehint", "").replace(" cold", "")


def test_a_profile_of_another_build(
    loops: Corpus, sample_profile: ProfileFile, tmp_path: Path
) -> None:
    with pytest.raises(ProfileError) as error:
        attach_profile(loops, sample_profile, tmp_path / "made")
    assert str(error.value) == (
        f"profile 'that of json': expected counts of functions of corpus {str(loops.folder)!r}, "
        "found none: 0 have another control flow there, 4 are not in it"
    )
    assert not (tmp_path / "made").exists()


def test_functions_of_another_build(loops: Corpus, tmp_path: Path) -> None:
    profile = collect_profile(loops).profile
    source = tmp_path / "loops.c"
    rest = source.read_text().partition("one(void)")[2]
    changed = "void new(void) {} __attribute__((noinline)) void bar(int i) { if (i) new(); }"
    source.write_text(f"{changed} void one(void){rest}")
    flags = ("-Oz", "-Xclang", "-disable-llvm-optzns", "-c", "-emit-llvm")
    command = ["clang-22", *flags, "loops.c", "-o", str(loops.folder / "loops.c.bc")]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert attach_profile(loops, profile, tmp_path / "made") == {"loops.c": Attached(3, 1, 1)}


def test_counts_are_attached_once(loops: Corpus, tmp_path: Path) -> None:
    made = counted(loops, tmp_path / "made")
    with pytest.raises(ModuleError) as error:
        counted(made, tmp_path / "again")
    message = "module 'loops.c': expected a module without a profile, found one with counts"
    assert str(error.value) == message
    with pytest.raises(ModuleError) as error:
        attach_profile(made, collect_profile(loops).profile, tmp_path / "again")
    message = "module 'loops.c': expected a module without a profile, found one: InstrProf"
    assert str(error.value) == message


@pytest.mark.parametrize("size", [40, 200, -1])
def test_truncated(sample_profile: ProfileFile, tmp_path: Path, size: int) -> None:
    cut = ProfileFile("cut", sample_profile.data[:size])
    with pytest.raises(ProfileError) as error:
        attach_profile(Corpus.load(SAMPLE_CORPUS), cut, tmp_path / "made")
    assert re.fullmatch(
        r"profile 'cut': expected one that LLVM reads, found it '.+'", str(error.value)
    )


def test_a_program_that_does_not_exit(corpus: MakeCorpus, tools: None) -> None:  # noqa: ARG001
    main = "#include <unistd.h>\n" + LOOPS_MAIN.replace("one();", "one(); _exit(0);")
    module = "void one(void) {} void two(void) {} void three(void) {}"
    made = corpus(description(), {"loops.c": module}, main)
    with pytest.raises(WorkloadError) as error:
        collect_profile(made)
    assert str(error.value) == (
        "workload 'w': expected counts at its end, found none: it ends without exit()"
    )
