"""Project files: what they hold, and functions that become local in a stock clang by them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import lief
import pytest

from mlgo_gym.cc._project_file import Symbols, facts_of, mark_plain, project_text
from mlgo_gym.corpus import read_elf
from mlgo_gym.llvm import name_hash
from tests.cc.conftest import CHANNEL, MODELS, NOTHING, Driver
from tests.cli.command import run
from tests.conftest import require

HEADER = """
#pragma once
#include <cstdio>
#include <stdexcept>
inline int once(int x) { static int calls; calls += x; return calls * x + x / 3; }
inline int both(int x) { return x * 7 + x / 5; }
inline int taken(int x) { return x ^ 77; }
inline __attribute__((used)) int kept(int x) { return x + 3; }
inline int in_assembly(int x) { return x - 3; }
template <typename T> T instance(T x) { return x + 5; }
struct Base { virtual ~Base() {} virtual int value(int x) { return x * 3; } };
struct Thing : Base { Thing(int x) : x(x) {} ~Thing(); int value(int y) override { return x + y; }
                      int x; };
"""
FIRST = """
#include "h.h"
asm(".globl other_name\\nother_name = _Z11in_assemblyi");
template int instance<int>(int);
int (*pointer)(int) = taken;
Thing::~Thing() {}
int second(int);
int use(Base &base, int x) {
  try { if (x > 90) throw std::runtime_error("x"); return base.value(x); }
  catch (const std::exception &) { return -1; }
}
int first(int x) {
  Thing thing(x);
  return once(x) + once(x + 1) + both(x) + pointer(x) + use(thing, x) + kept(x) + in_assembly(x);
}
int main() { std::printf("%d %d %d\\n", first(4), first(91), second(5)); }
"""
SECOND = '#include "h.h"\nint second(int x) { Base base; return both(x) + base.value(x); }\n'
ONCE, BOTH, TAKEN, KEPT = "_Z4oncei", "_Z4bothi", "_Z5takeni", "_Z4kepti"
THING_VALUE, BASE_VALUE = "_ZN5Thing5valueEi", "_ZN4Base5valueEi"
SHARED = (BOTH, BASE_VALUE, "_ZN4BaseC2Ev", "_ZN4BaseD2Ev", "_ZN4BaseD0Ev")


def written(folder: Path, *shared: str, exported: bool = False, objects: str = "a.o") -> Path:
    """A project file of one target."""
    path = folder / "project.txt"
    lines = [f"object {each}" for each in objects.split()]
    said = ["exported"] if exported else []
    hashes = sorted(map(name_hash, shared))
    path.write_text(
        "\n".join(["mlgo-gym project 1", "target t", *said, *lines, *hashes, "end"]) + "\n"
    )
    return path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "h.h").write_text(HEADER)
    (folder / "a.cpp").write_text(FIRST)
    (folder / "b.cpp").write_text(SECOND)
    return folder


def visible(path: Path) -> set[str]:
    """The symbols that an object defines for others."""
    elf = read_elf(path.read_bytes())
    assert elf is not None
    return {
        str(each.name)
        for each in elf.symtab_symbols
        if each.binding != lief.ELF.Symbol.BINDING.LOCAL and each.shndx
    }


def compiled(
    driver: Driver, folder: Path, *options: str, settings: Mapping[str, str] = NOTHING
) -> Path:
    """The object of the first source, made without a word."""
    done = driver.run(*options, "-c", "a.cpp", "-o", "a.o", cwd=folder, cxx=True, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    return folder / "a.o"


@pytest.mark.parametrize("settings", [NOTHING, CHANNEL, {"MLGO_KEEP_SMALLER": "1"}], ids=str)
def test_objects_of_a_plain_target_are_clangs_own(
    driver: Driver, sources: Path, settings: Mapping[str, str]
) -> None:
    driver.plain("-O2", "-c", "a.cpp", "-o", "a.o", cwd=sources, cxx=True)
    expected = (sources / "a.o").read_bytes()
    path = written(sources, *SHARED)
    before = path.read_text()
    how = {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1", **settings}
    how["MLGO_PROJECT"] = str(path)
    mark_plain(path, ["another"])
    assert path.read_text() == before
    if settings != CHANNEL:  # which takes no project file
        assert compiled(driver, sources, "-O2", settings=how).read_bytes() != expected
    mark_plain(path, ["t"])
    assert compiled(driver, sources, "-O2", settings=how).read_bytes() == expected
    mark_plain(path, ["t"])
    assert path.read_text() == before.replace("target t\n", "target t\nplain\n")
    mark_plain(path, [])
    assert path.read_text() == before


def test_facts_are_what_several_objects_of_a_target_have_or_need() -> None:
    symbols = {
        "a": Symbols(frozenset("fghm"), frozenset("fgh"), frozenset({"x"})),
        "b": Symbols(frozenset("fy"), frozenset("f"), frozenset("g")),
        "c": Symbols(frozenset("h"), frozenset("h"), frozenset({"_ZN1TC1Ev"})),
    }
    targets = {"two": ("a", "b"), "one": ("c", "missing")}
    objects = {each: f"d/{each}.o" for each in "abc"}
    one, two = facts_of(targets, symbols, objects=objects, exported=["one"], others=["h"])
    alias = name_hash("_ZN1TC1Ev")
    assert (one.name, one.objects, one.is_exported) == ("one", ("d/c.o",), True)
    assert one.shared == {name_hash("h"), alias}, "an object without bitcode has it"
    assert (two.objects, two.is_exported) == (("d/a.o", "d/b.o"), False)
    assert two.shared == {*map(name_hash, "fgh"), alias}
    lines = project_text([one, two]).splitlines()
    assert lines[:4] == ["mlgo-gym project 1", "target one", "exported", "object d/c.o"]
    assert lines[-1] == "end"


def test_facts_of_a_build_that_does_not_say_what_it_links() -> None:
    """Copies for a static and a shared library, or of two programs, are never linked together."""

    def shared(**defined: str) -> str:
        merged = frozenset("fgh")
        symbols = {}
        for name, text in defined.items():
            names = frozenset("main" if each == "M" else each for each in text)
            symbols[name] = Symbols(names, names & merged)
        targets, objects = {"all": tuple(symbols)}, {name: name for name in symbols}
        (facts,) = facts_of(targets, symbols, objects=objects, unlinked=True)
        return "".join(each for each in "fgh" if name_hash(each) in facts.shared)

    assert shared(a="fx", a_pic="fx") == ""
    assert shared(a="fgx", a_pic="fgx", b="fhy", b_pic="fhy") == "f"
    assert shared(one="fM", two="fM") == ""
    assert shared(one="fMu", two="fgMv", library="ghx") == "g"
    assert shared(a="f", b="f") == "f", "nothing says that they are the same"
    assert shared(a="fx", b="fxz") == "f"


@pytest.mark.e2e
@pytest.mark.parametrize("level", ["-O0", "-O2", "-Oz"])
def test_functions_of_one_object_are_local_and_others_stay(
    driver: Driver, sources: Path, level: str
) -> None:
    project = written(sources, *SHARED)
    settings = {"MLGO_PROJECT": str(project), "MLGO_STRICT": "1"}
    plain = visible(compiled(driver, sources, level))
    made = visible(compiled(driver, sources, level, settings=settings))
    assert made < plain
    assert not {ONCE, THING_VALUE} & made
    stay = {TAKEN, KEPT, "_Z8instanceIiET_S0_", "_Z11in_assemblyi", "_ZZ4onceiE5calls"}
    stay |= {each for each in SHARED if level == "-O0"}
    assert stay & plain == stay & made


@pytest.mark.e2e
@pytest.mark.parametrize("level", ["-O0", "-Oz"])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-g", "-fsanitize=address,undefined"),
        ("-fprofile-instr-generate", "-fcoverage-mapping"),
        ("-flto",),
        ("-flto=thin",),
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_programs_do_the_same(
    driver: Driver, sources: Path, level: str, options: tuple[str, ...]
) -> None:
    shared = written(sources, *SHARED, objects="a.o b.o")
    printed = []
    for settings in (NOTHING, {"MLGO_PROJECT": str(shared), "MLGO_STRICT": "1"}):
        for name in "ab":
            command = (level, *options, "-c", f"{name}.cpp")
            done = driver.run(*command, cwd=sources, cxx=True, settings=settings)
            assert (done.returncode, done.stderr) == (0, b"")
        command = (level, *options, "-fuse-ld=lld", "a.o", "b.o", "-o", "p")
        done = driver.run(*command, cwd=sources, cxx=True)
        assert done.returncode == 0, done.stderr
        ran = subprocess.run([sources / "p"], cwd=sources, check=True, capture_output=True)
        printed.append(ran.stdout)
    assert printed[0] == printed[1] != b""


@pytest.mark.e2e
def test_what_is_visible_outside_stays_where_a_target_exports(
    driver: Driver, sources: Path
) -> None:
    settings = {"MLGO_PROJECT": str(written(sources, exported=True))}
    plain = visible(compiled(driver, sources, "-O0"))
    assert visible(compiled(driver, sources, "-O0", settings=settings)) >= plain - {
        "__clang_call_terminate"
    }
    hidden = visible(
        compiled(driver, sources, "-O0", "-fvisibility-inlines-hidden", settings=settings)
    )
    assert ONCE not in hidden
    assert TAKEN in hidden


@pytest.mark.e2e
@pytest.mark.parametrize("objects", ["other.o", "x/a.o", "sources/b.o"])
def test_an_object_that_is_not_in_the_project_is_plain_clangs(
    driver: Driver, sources: Path, objects: str
) -> None:
    settings = {"MLGO_PROJECT": str(written(sources, objects=objects)), "MLGO_STRICT": "1"}
    plain = compiled(driver, sources, "-Oz").read_bytes()
    assert compiled(driver, sources, "-Oz", settings=settings).read_bytes() == plain


@pytest.mark.e2e
def test_the_longest_end_of_a_path_says_which_object_it_is(driver: Driver, sources: Path) -> None:
    text = written(sources, ONCE, objects="a.o").read_text().removesuffix("end\n")
    project = sources / "project.txt"
    project.write_text(f"{text}target u\nobject sources/a.o\nend\n")
    made = visible(compiled(driver, sources, "-O0", settings={"MLGO_PROJECT": str(project)}))
    assert ONCE not in made


@pytest.mark.e2e
@pytest.mark.parametrize(
    "text",
    [
        """-Oz -DONE="a b" -DTWO='c d' a.cpp -o a.o""",
        """-Oz -DONE=a\\ b '-DTWO="c"' "a.cpp" -o a.o""",
        """-Oz -DONE="\\"a\\""\n-D TWO=c\\ d\t'a'.cpp -o\n""",
    ],
)
def test_the_object_is_named_in_a_response_file(driver: Driver, sources: Path, text: str) -> None:
    """With words in quotes and with escapes: CMake's of modules of C++20 have them."""
    project = {"MLGO_PROJECT": str(written(sources, *SHARED)), "MLGO_STRICT": "1"}
    (sources / "line.rsp").write_text(text)
    rest = ["a.o"] if text.endswith("\n") else []
    done = driver.run("-c", "@line.rsp", *rest, cwd=sources, cxx=True, settings=project)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ONCE not in visible(sources / "a.o")


@pytest.mark.e2e
@pytest.mark.parametrize(
    "line",
    [
        "--include-directory . -c a.cpp -o a.o",
        "--define-macro X=1 --std c++20 -c a.cpp -o a.o",
        "-w -framework X -Xarch_host -DX=1 -c a.cpp -o a.o",
        "--language c++ -c a.asm -o a.o",
        "-x c++ -c a.asm -o a.o",
        "@marked.rsp",
        "@little.rsp",
        "@big.rsp",
    ],
)
def test_an_object_is_named_as_clang_names_it(driver: Driver, sources: Path, line: str) -> None:
    project = {"MLGO_PROJECT": str(written(sources, *SHARED)), "MLGO_STRICT": "1"}
    (sources / "a.asm").write_text(FIRST)
    text = '-DX="\U0001f600 \u00fc" -c a.cpp -o a.o'
    (sources / "marked.rsp").write_text(text, encoding="utf-8-sig")
    (sources / "little.rsp").write_text(f"\ufeff{text}", encoding="utf-16-le")
    (sources / "big.rsp").write_text(f"\ufeff{text}", encoding="utf-16-be")
    done = driver.run("-Oz", *line.split(), cwd=sources, cxx=True, settings=project)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ONCE not in visible(sources / "a.o")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-c a.cpp b.cpp", "expected one input, found 2"),
        ("@/dev/stdin", "a response file is a pipe or a device"),
    ],
)
def test_an_object_whose_name_is_not_known(
    driver: Driver, sources: Path, line: str, reason: str
) -> None:
    settings = {"MLGO_PROJECT": str(written(sources, *SHARED))}
    command, stdin = ("-O0", *line.split()), b"-c a.cpp -o a.o"
    done = driver.run(*command, cwd=sources, cxx=True, stdin=stdin, settings=settings)
    words = f"project: {reason}"
    warning = f"mlgo-c++: warning: {words}; compiled without the project file\n"
    assert (done.returncode, done.stderr.decode()) == (0, warning)
    assert ONCE in visible(sources / "a.o")
    strict = settings | {"MLGO_STRICT": "1"}
    done = driver.run(*command, cwd=sources, cxx=True, stdin=stdin, settings=strict)
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-c++: error: {words}\n")


@pytest.mark.e2e
def test_a_model_and_the_smallest_object_go_with_a_project(driver: Driver, sources: Path) -> None:
    project = {"MLGO_PROJECT": str(written(sources, *SHARED)), "MLGO_STRICT": "1"}
    model = {"MLGO_INLINING_MODEL": str(MODELS / "inliner")}
    for settings in (project | model, project | {"MLGO_KEEP_SMALLER": str(MODELS / "inliner")}):
        assert ONCE not in visible(compiled(driver, sources, "-Oz", settings=settings))


@pytest.mark.e2e
def test_clang_compiles_a_module_of_a_header_before_the_source(
    driver: Driver, sources: Path
) -> None:
    """With -gmodules and an empty cache of modules; the second time it is there."""
    (sources / "module.modulemap").write_text('module shared { header "h.h" export * }\n')
    settings = {"MLGO_PROJECT": str(written(sources, *SHARED)), "MLGO_STRICT": "1"}
    options = ("-Oz", "-g", "-gmodules", "-fmodules", "-fcxx-modules", "-fmodules-cache-path=mc")
    first = compiled(driver, sources, *options, settings=settings).read_bytes()
    second = compiled(driver, sources, *options, settings=settings)
    assert not {ONCE, THING_VALUE} & visible(second)
    assert first == second.read_bytes()


@pytest.mark.e2e
def test_the_fingerprint_has_the_project(driver: Driver, sources: Path) -> None:
    texts = []
    for shared in ((), (ONCE,)):
        settings = {"MLGO_PROJECT": str(written(sources, *shared))}
        done = driver.run("--mlgo-fingerprint", cwd=sources, settings=settings)
        assert done.returncode == 0
        texts.append(done.stdout)
    assert texts[0] != texts[1]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "expected 'mlgo-gym project 1' in the first line, found ''"),
        ("mlgo-gym project 2\nend\n", "in the first line, found 'mlgo-gym project 2'"),
        ("mlgo-gym project 1\ntarget t\nobject a.o\nAAAAAAAA\n", "'end' in the last line"),
        ("mlgo-gym project 1\ntarget t\nobject a.o\nAAAAAAA\nend\n", "line 4: expected a target"),
        ("mlgo-gym project 1\nobject a.o\nend\n", "line 2: expected a target, an object or a"),
    ],
)
def test_a_bad_file_is_named_and_plain_clang_compiles(
    driver: Driver, sources: Path, text: str | None, message: str
) -> None:
    project = sources / "project.txt"
    if text is not None:
        project.write_text(text)
    plain = compiled(driver, sources, "-Oz").read_bytes()
    settings = {"MLGO_PROJECT": str(project)}
    command = ("-Oz", "-c", "a.cpp", "-o", "a.o")
    done = driver.run(*command, cwd=sources, cxx=True, settings=settings)
    assert done.returncode == 0
    assert message in done.stderr.decode()
    assert f"project '{project}'" in done.stderr.decode()
    assert (sources / "a.o").read_bytes() == plain
    strict = driver.run(*command, cwd=sources, cxx=True, settings=settings | {"MLGO_STRICT": "1"})
    assert strict.returncode == 1
    assert message in strict.stderr.decode()


@pytest.mark.e2e
def test_a_clang_that_cannot_be_told_is_named(driver: Driver, sources: Path) -> None:
    settings = {"MLGO_PROJECT": str(written(sources)), **CHANNEL}
    plain = compiled(driver, sources, "-Oz").read_bytes()
    command = ("-Oz", "-c", "a.cpp", "-o", "a.o")
    done = driver.run(*command, cwd=sources, cxx=True, settings=settings)
    assert "project: expected a clang with LLVM in a shared library" in done.stderr.decode()
    assert (done.returncode, (sources / "a.o").read_bytes()) == (0, plain)
    strict = driver.run(*command, cwd=sources, cxx=True, settings=settings | {"MLGO_STRICT": "1"})
    assert strict.returncode == 1


LISTS = """
cmake_minimum_required(VERSION 3.20)
project(p CXX ASM)
add_library(l SHARED l.cpp m.cpp)
target_link_options(l PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/l.map)
add_executable(p a.cpp b.cpp needs.s)
target_precompile_headers(p PRIVATE h.h)
target_link_libraries(p l)
"""
NEEDS = '.text\n.globl needs\nneeds: jmp _Z4oncei\n.section .note.GNU-stack,"",@progbits\n'


def check_local_modules(driver: Driver, folder: Path, modules: Path, project: Path) -> None:
    """The embedded LLVM makes the same functions local as clang's: the same objects follow."""
    local = folder / "local"
    command = ("project", "--build", "plain", "--modules", modules.parent, "--local", local)
    done = run(*command, "--output", "again.txt", "--json", cwd=folder)
    counts = json.loads(done.stdout)["local_functions"]
    assert [name for name, count in counts.items() if count] == ["CMakeFiles/p.dir/a.cpp.o"]
    for name in counts:
        made, expected = folder / "made.o", folder / "objects" / name
        expected.parent.mkdir(parents=True, exist_ok=True)
        settings = {"MLGO_PROJECT": str(project), "MLGO_STRICT": "1"}
        flags = ("-Oz", "-w", "-c")
        driver.run(*flags, modules / f"{name}.bc", "-o", expected, cwd=folder, settings=settings)
        subprocess.run([driver.clang, *flags, local / f"{name}.bc", "-o", made], check=True)
        assert made.read_bytes() == expected.read_bytes()


@pytest.mark.e2e
def test_a_build_says_what_its_targets_share(
    driver: Driver, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user does it: a plain build, the project file, and a build by it that runs."""
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)
    cmake = require("cmake", "cmake")
    require("ninja", "ninja-build")
    (sources / "CMakeLists.txt").write_text(LISTS)
    (sources / "needs.s").write_text(NEEDS)
    (sources / "l.map").write_text("{ global: *; };\n")
    (sources / "l.cpp").write_text('#include "h.h"\nint l(int x) { return once(x) + both(x); }\n')
    (sources / "m.cpp").write_text('#include "h.h"\nint m(int x) { return both(x); }\n')
    monkeypatch.setenv("CC", driver.clang)
    monkeypatch.setenv("CXX", driver.clang.replace("clang-", "clang++-"))
    plain, made = sources / "plain", sources / "made"
    configure: list[str | Path] = [
        cmake,
        "-GNinja",
        "-S",
        sources,
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    subprocess.run([*configure, "-B", plain], check=True, capture_output=True)
    subprocess.run([cmake, "--build", plain], check=True, capture_output=True)
    project = sources / "project.txt"
    kept = sources / "kept"
    command = ("project", "--build", plain, "--modules", kept, "--output", project)
    ran = run(*command, "--json", cwd=sources)
    assert "needs.s.o" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1, "precompiled headers are read"
    targets = {each["name"]: each for each in json.loads(ran.stdout)["targets"]}
    assert {name: each["objects"] for name, each in targets.items()} == {"libl.so": 2, "p": 2}
    assert targets["libl.so"]["exported"]
    text = project.read_text()
    run(*command, cwd=sources)
    assert project.read_text() == text
    check_local_modules(driver, sources, kept / "corpus", project)
    monkeypatch.setenv("MLGO_PROJECT", str(project))
    monkeypatch.setenv("MLGO_STRICT", "1")
    scripts = driver.scripts
    programs = [f"-DCMAKE_CXX_COMPILER={scripts}/mlgo-c++", f"-DCMAKE_ASM_COMPILER={driver.clang}"]
    subprocess.run([*configure, *programs, "-B", made], check=True, capture_output=True)
    subprocess.run([cmake, "--build", made], check=True, capture_output=True)
    outputs = [
        subprocess.run([folder / "p"], check=True, capture_output=True).stdout
        for folder in (plain, made)
    ]
    assert outputs[0] == outputs[1] != b""
    of_p, of_l = (visible(made / f"CMakeFiles/{name}.cpp.o") for name in ("p.dir/a", "l.dir/l"))
    assert ONCE in of_p, "assembly needs it"
    assert THING_VALUE not in of_p
    assert ONCE in of_l, "it is exported"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--output", "p.txt"), "project: expected --build or --corpus, and not both"),
        (("--build", "b", "--corpus", "c", "--output", "p.txt"), "and not both"),
        (
            ("--build", "nothing", "--output", "p.txt"),
            "build: nothing: cannot be read: No such file or directory",
        ),
        (
            ("--corpus", "c", "--modules", "m", "--output", "p.txt"),
            "project: expected --build beside --modules, which keeps its modules",
        ),
        (("--corpus", "nothing", "--output", "p.txt"), "expected corpus_description.json"),
    ],
)
def test_errors_of_the_command(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = run("project", *options, cwd=tmp_path)
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "p.txt").exists()


def test_a_folder_of_something_else_gets_no_modules(tmp_path: Path) -> None:
    (tmp_path / "mine" / "corpus").mkdir(parents=True)
    (tmp_path / "mine" / "corpus" / "thesis").touch()
    (tmp_path / "build").mkdir()
    command = ("project", "--build", "build", "--modules", "mine", "--output", "p.txt")
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert "expected an empty folder or one with project.json or sources.json" in done.stderr
    assert (tmp_path / "mine" / "corpus" / "thesis").exists()
