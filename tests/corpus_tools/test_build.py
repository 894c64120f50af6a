"""Building corpora, from small sdists made here and from a real one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus_tools import (
    Clang,
    Compilation,
    CorpusToolsError,
    Manifest,
    Recipe,
    build_corpus,
    build_from_sources,
    load_recipe,
    read_command,
)
from corpus_tools.build import expand_globs, python_header_flags
from corpus_tools.errors import (
    BuildFailedError,
    BuildOptionError,
    OutputError,
    RecipeError,
    ToolchainError,
)
from corpus_tools.recipes import flags_for
from corpus_tools.sdist import unpack_sdist
from corpus_tools.workloads import workloads_digest
from tests.folders import tree

MakeRecipe = Callable[..., Recipe]
Disassemble = Callable[[bytes], str]

_GOOD = "int f(int x) { return x + 1; }\n"
_NEVER_RUN = Clang(Path("/never/run"), (22, 0, 0), "clang version 22.0.0")
_BAD = "int f(void) { return missing; }\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def lupa(clang22: Clang, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("corpora") / "lupa"
    build_corpus(load_recipe("lupa"), output, clang=clang22, jobs=4, cache_dir=cache)
    return output


def _defines_a_function(listing: str) -> bool:
    return re.search("^define ", listing, re.MULTILINE) is not None


@pytest.mark.network
def test_lupa_is_the_lua_that_was_surveyed(lupa: Path, disassemble: Disassemble) -> None:
    modules = Manifest.read(lupa).modules
    assert len(modules) == 32
    assert "third-party/lua54/lapi.c" in modules
    listings = [disassemble((lupa / f"{module}.bc").read_bytes()) for module in modules]
    # Two modules hold only tables: lctype.c and lopcodes.c.
    assert sum(map(_defines_a_function, listings)) == 30


@pytest.mark.network
def test_lupa_says_where_it_comes_from(lupa: Path, clang22: Clang) -> None:
    recipe = load_recipe("lupa")
    info = json.loads((lupa / "corpus_info.json").read_bytes())
    files = info.pop("workload_files")
    assert {"run.c", "run.c.bc", "workload.toml"} <= files.keys()
    assert info.pop("workloads_digest") == workloads_digest("lupa")["workloads_digest"]
    assert info == {
        "recipe": "lupa",
        "recipe_digest": recipe.digest,
        "package": "lupa",
        "version": "2.8",
        "sdist": "lupa-2.8.tar.gz",
        "sha256": recipe.sha256,
        "split": "test",
        "license": "MIT",
        "clang": clang22.banner,
        "opt_level": "Oz",
    }


@pytest.mark.network
def test_lupa_is_the_same_for_any_number_of_jobs_and_any_folder(
    lupa: Path,
    clang22: Clang,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    again = tmp_path / "again"
    build_corpus(load_recipe("lupa"), again, clang=clang22, jobs=1, cache_dir=cache)
    assert tree(again) == tree(lupa)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def _text(llvm_objcopy: Path, object_file: Path) -> bytes:
    """Bytes of the ``.text*`` sections."""
    output = object_file.with_suffix(".text")
    sections = ["-O", "binary", "--only-section=.text*"]
    subprocess.run([llvm_objcopy, *sections, object_file, output], check=True)
    return output.read_bytes()


@pytest.mark.network
def test_lupa_compiles_back_to_the_code_of_its_sources(
    lupa: Path, clang22: Clang, llvm_objcopy: Path, cache: Path, tmp_path: Path
) -> None:
    recipe = load_recipe("lupa")
    root = unpack_sdist(cache / recipe.sdist, tmp_path)
    sizes = []
    for module in Manifest.read(lupa).modules:
        command = read_command(lupa / f"{module}.cmd")
        from_ir, direct = tmp_path / "from_ir.o", tmp_path / "direct.o"
        bitcode = lupa / f"{module}.bc"
        subprocess.run([clang22.path, *command, "-x", "ir", bitcode, "-o", from_ir], check=True)
        flags = [*flags_for(module, recipe.flags), "-w", "-Oz", "-fPIC"]
        subprocess.run([clang22.path, *flags, "-c", module, "-o", direct], cwd=root, check=True)
        assert _text(llvm_objcopy, from_ir) == _text(llvm_objcopy, direct), module
        sizes.append(len(_text(llvm_objcopy, direct)))
    assert sum(size > 0 for size in sizes) == 30


def test_no_path_of_this_machine_is_in_a_corpus(
    clang22: Clang,
    tmp_path: Path,
    make_sdist: MakeRecipe,
    disassemble: Disassemble,
    python_headers: Path,
) -> None:
    source = (
        "#include <Python.h>\n#include <assert.h>\n"
        "const char *f(PyObject *t) { assert(t); PyTuple_GET_SIZE(t); return __FILE__; }\n"
    )
    # -UNDEBUG: assertions in Python's own headers name their files.
    recipe = make_sdist({"a.c": source}, needs_python_headers=True, flags=("-UNDEBUG",))
    build_corpus(recipe, tmp_path / "out", clang=clang22)
    listing = disassemble((tmp_path / "out" / "a.c.bc").read_bytes())
    assert 'source_filename = "a.c"' in listing
    assert 'c"python/' in listing
    for folder in (str(tmp_path), str(python_headers), "/tmp", "/home", "/usr"):
        assert folder not in listing
    assert not [a for a in read_command(tmp_path / "out" / "a.c.cmd") if "/" in a]


def test_flags_of_a_file_and_of_the_language_reach_their_files(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe, disassemble: Disassemble
) -> None:
    files = {
        "src/a.c": "#ifdef ONLY_B\n#error no\n#endif\nint a;",
        "src/b.c": "#ifndef ONLY_B\n#error no\n#endif\nint b;",
        "src/c.cpp": "static_assert(__cplusplus == 202002L);\nint c;",
        "src/skip.c": "#error no\n",
    }
    recipe = make_sdist(
        files,
        globs=("src/*.c", "src/*.cpp", "src/a.*"),
        exclude=("*/skip.c",),
        flags=("-std=c++20",),
        file_flags=(("*/b.c", ("-DONLY_B",)),),
    )
    report = build_corpus(recipe, tmp_path / "out", clang=clang22, opt_level="O2")
    assert report.modules == ("src/a.c", "src/b.c", "src/c.cpp")
    assert report.failures == ()
    assert "-O2" in read_command(tmp_path / "out" / "src" / "a.c.cmd")
    assert "@a = global i32 0" in disassemble((tmp_path / "out/src/a.c.bc").read_bytes())


def test_progress_counts_every_source_once(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist({"a.c": _GOOD, "b.c": _BAD, "c.c": _GOOD})
    seen: list[tuple[int, int, str]] = []
    build_corpus(
        recipe,
        tmp_path / "out",
        clang=clang22,
        jobs=2,
        keep_going=True,
        progress=lambda done, total, source: seen.append((done, total, source)),
    )
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert sorted(source for *_, source in seen) == ["a.c", "b.c", "c.c"]


def test_a_source_that_fails_fails_the_build_and_leaves_nothing(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist({"a.c": _GOOD, "b.c": _BAD, "c.c": _BAD})
    with pytest.raises(BuildFailedError) as caught:
        build_corpus(recipe, tmp_path / "out", clang=clang22)
    assert [failure.source for failure in caught.value.failures] == ["b.c", "c.c"]
    assert str(caught.value).startswith(
        "2 of 3 sources did not compile:\nb.c: clang exited with 1\n"
        "b.c:1:22: error: use of undeclared identifier 'missing'\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["links"]


def test_keep_going_keeps_the_rest_and_reports_the_reason(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist({"a.c": _GOOD, "b.c": _BAD})
    report = build_corpus(recipe, tmp_path / "out", clang=clang22, keep_going=True)
    assert report.modules == Manifest.read(tmp_path / "out").modules == ("a.c",)
    assert report.failures[0].source == "b.c"
    assert "undeclared identifier 'missing'" in report.failures[0].reason
    names = {"a.c.bc", "a.c.cmd", "corpus_description.json", "corpus_info.json"}
    assert set(tree(tmp_path / "out")) == names


def test_keep_going_does_not_keep_nothing(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist({"b.c": _BAD})
    with pytest.raises(BuildFailedError, match=r"^1 of 1 sources did not compile:"):
        build_corpus(recipe, tmp_path / "out", clang=clang22, keep_going=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.e2e
def test_a_failed_build_keeps_the_corpus_that_was_there(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    build_corpus(make_sdist({"a.c": _GOOD}), tmp_path / "out", clang=clang22)
    before = tree(tmp_path / "out")
    with pytest.raises(BuildFailedError):
        build_corpus(make_sdist({"b.c": _BAD}), tmp_path / "out", clang=clang22)
    assert tree(tmp_path / "out") == before
    build_corpus(make_sdist({"c.c": _GOOD}), tmp_path / "out", clang=clang22)
    assert Manifest.read(tmp_path / "out").modules == ("c.c",)


def test_an_interrupted_build_leaves_nothing(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    def interrupt(done: int, total: int, source: str) -> None:
        raise KeyboardInterrupt(done, total, source)

    recipe = make_sdist({f"{name}.c": _GOOD for name in "abcdef"})
    with pytest.raises(KeyboardInterrupt):
        build_corpus(recipe, tmp_path / "out", clang=clang22, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["links"]


def test_an_output_that_is_no_corpus_is_refused_before_anything_is_fetched(
    clang22: Clang, tmp_path: Path, tiny_recipe: MakeRecipe
) -> None:
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(OutputError):
        build_corpus(tiny_recipe(), tmp_path, clang=clang22, cache_dir=tmp_path / "cache")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"globs": ("*.c", "*.cc")}, "glob '*.cc' matches no file of tiny-1.0.tar.gz"),
        ({"exclude": ("a*",)}, "glob '*.c' matches only excluded files of tiny-1.0.tar.gz"),
        ({"globs": ("folder*",)}, "glob 'folder*' matches no file of tiny-1.0.tar.gz"),
    ],
)
def test_a_glob_that_selects_nothing_is_an_error(
    tmp_path: Path, tiny_recipe: MakeRecipe, changes: dict[str, tuple[str, ...]], message: str
) -> None:
    (tmp_path / "a.c").write_text(_GOOD)
    (tmp_path / "folder.c").mkdir()
    with pytest.raises(RecipeError) as caught:
        expand_globs(tiny_recipe(**changes), tmp_path)
    assert str(caught.value) == f"recipe 'tiny': {message}"


def test_a_count_that_is_not_the_recipe_s_is_an_error(
    tmp_path: Path, tiny_recipe: MakeRecipe
) -> None:
    for name in ("a.c", "b.c"):
        (tmp_path / name).write_text(_GOOD)
    assert expand_globs(tiny_recipe(modules=2), tmp_path) == ("a.c", "b.c")
    with pytest.raises(RecipeError) as caught:
        expand_globs(tiny_recipe(modules=3), tmp_path)
    assert str(caught.value) == "recipe 'tiny': expected 3 modules, found 2 sources"


def test_a_generated_file_is_part_of_the_sources(
    clang22: Clang, tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist(
        {"a.c": '#include "config.h"\nint a(void) { return A; }\n'},
        generated_files=(("conf/config.h", "#define A 1\n"),),
        flags=("-Iconf",),
    )
    assert build_corpus(recipe, tmp_path / "out", clang=clang22).modules == ("a.c",)


def test_a_python_without_headers_is_named(
    tmp_path: Path, tiny_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        python_header_flags(tiny_recipe(needs_python_headers=True))
    assert str(caught.value) == (
        f"recipe 'tiny': expected Python.h in {tmp_path}, found none; "
        "on Debian or Ubuntu: apt-get install python3-dev"
    )


def test_local_sources_need_no_sdist(clang22: Clang, tmp_path: Path) -> None:
    root = tmp_path / "src"
    root.mkdir()
    (root / "b.c").write_text('#include "b.h"\n')
    (root / "a.c").write_text(_GOOD)
    (root / "include").mkdir()
    (root / "include" / "b.h").write_text("int b(void) { return 2; }\n")
    sources = ["b.c", "a.c", "b.c"]
    output = tmp_path / "out"
    compilation = Compilation(clang=clang22, root=root, flags=("-Iinclude",))
    report = build_from_sources(compilation, sources, output)
    assert (report.output, report.modules) == (output, ("a.c", "b.c"))
    assert Manifest.read(output).modules == ("a.c", "b.c")
    assert json.loads((output / "corpus_info.json").read_bytes()) == {
        "clang": clang22.banner,
        "opt_level": "Oz",
    }


@pytest.mark.parametrize(
    ("sources", "options", "error", "message"),
    [
        (
            ["../a.c"],
            {},
            RecipeError,
            "source '../a.c': expected a name inside the corpus, found a '..' part",
        ),
        (
            ["/etc/a.c"],
            {},
            RecipeError,
            "source '/etc/a.c': expected a relative name, found an absolute one",
        ),
        (
            ["-fplugin=a.c"],
            {},
            RecipeError,
            "source '-fplugin=a.c': expected a file name, found one with '-' in front",
        ),
        (
            ["@a.c"],
            {},
            RecipeError,
            "source '@a.c': expected a file name, found one with '@' in front",
        ),
        (
            ["a.c"],
            {"opt_level": "O0"},
            BuildOptionError,
            "opt_level: expected one of O2, O3, Os, Oz, found 'O0'",
        ),
        (["a.c"], {"jobs": 0}, BuildOptionError, "jobs: expected at least 1, found 0"),
        ([], {}, BuildFailedError, "0 of 0 sources did not compile:\n"),
    ],
)
def test_bad_sources_and_options_are_refused(
    tmp_path: Path,
    sources: list[str],
    options: dict[str, object],
    error: type[CorpusToolsError],
    message: str,
) -> None:
    settings: dict[str, Any] = {"clang": _NEVER_RUN, "root": tmp_path, **options}
    with pytest.raises(error) as caught:
        build_from_sources(Compilation(**settings), sources, tmp_path / "out")
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []
