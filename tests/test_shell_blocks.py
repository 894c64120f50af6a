"""The shell blocks of the pages do what they say, one after another in a user's folder.

That has what the pages take for granted: a project with a Makefile and CMake, a model, and the
corpora that `mlgo-gym corpus build` would make, each of one small module, which it then finds up to
date.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from corpus_tools.build import build_from_sources, compiler_info, recipe_info
from corpus_tools.clang import find_clang
from corpus_tools.compilation import Compilation
from corpus_tools.recipes import available_recipes, load_recipe
from tests.conftest import lacking, require

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "mlgo_gym" / "corpus" / "sample" / "src"
SHELL = {"sh", "console"}
FILE = re.compile(r"# ([\w-]+\.py)\n")
OTHERS = {"c", "cpp", "python", "text", "toml"}
SOURCES = ("digest.c", "hash_map.c", "json_write.c", "regex_match.c", "expr_compile.c")
"""Of the sample corpus: the corpora have these in turn."""

DEMO = "lupa"
DEMO_SOURCES = ("bignum.c", "codec_text.c", "frame_stream.c", "lz_pack.c", "text_layout.c")
"""It has several, so that the demo can hold some out, and none of the others'."""


@dataclass(frozen=True)
class Instead:
    """What is run in place of what stands there, and why."""

    found: str
    run: str
    why: str


QUICK = (
    "--set rounds=1 --set batches=1 --set hidden=[8] --set fit.epochs=2 "
    "--set teacher.iterations=10 --set teacher.least_leaf_rows=2"
)
INSTEAD = (
    Instead(r"--budget \w+", "--budget 4s", "less time"),
    Instead(r"mlgo-gym train advantage", rf"\g<0> {QUICK}", "less to learn"),
    Instead(r"<this repository>", str(ROOT), "wherever that is"),
    Instead(r"/srv/models/inliner", "{folder}/models/inliner", "a folder of its own machine"),
    Instead(r"\bmake (?=demo|hooks|test|lock|clean)", r"\g<0>-n ", "PyPI, and minutes or hours"),
    # Read by the shell, and nothing more.
    Instead(r"^apt-get install", r": \g<0>", "changes the machine"),
    Instead(r"^(\S+/bin/)?pip install", r": \g<0>", "needs PyPI"),
    Instead(r"^python3 -m venv .*", r": an environment", "the tests have one"),
    Instead(r"^\S+/python -m build", r": \g<0>", "needs PyPI; tests/test_packaging.py does it"),
    Instead(r"^git add", r": \g<0>", "the user's folder is no checkout"),
    Instead(r"^\S+/pytest .*test_packaging.py", r": \g<0>", "a test as this is"),
)

OUTPUTS = re.compile(r"--(output|output_dir|html|log|tfrecord|plots?|traces)[ =](\S+)")
"""Options that name what there is afterwards."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def is_done(self) -> bool:
        """Whether it is typed in, or saved as the file that its first line names."""
        return self.language in SHELL or FILE.match(self.text) is not None

    def script(self) -> str:
        """The commands that do it."""
        if self.language == "sh":
            return self.text
        if named := FILE.match(self.text):
            return f"cat > {named[1]} <<'END OF FILE'\n{self.text}\nEND OF FILE"
        typed = re.findall(r"^\$ ((?:.*\\\n)*.*)", self.text, re.MULTILINE)
        return "\n".join(typed)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    fence = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    text = page.read_text()
    for each in fence.finditer(text):
        line = text.count("\n", 0, each.start()) + 1
        name = str(page.relative_to(ROOT))
        yield Block(name, line, each[2], textwrap.dedent(each[3]))


BLOCKS = [block for page in pages() for block in blocks(page)]
PAGES = sorted({block.page for block in BLOCKS if block.language in SHELL})


def scripts(page: str) -> str:
    """The blocks of a page in one shell, each begun where the page's reader stands."""
    said = "".join(
        f"cd {{folder}}\n: line {block.line}\n{block.script()}\n"
        for block in BLOCKS
        if block.page == page and block.is_done
    )
    for each in INSTEAD:
        said = re.sub(each.found, each.run, said, flags=re.MULTILINE)
    return said


def test_every_block_is_of_a_language_that_is_known() -> None:
    """A block without one might be anything, and would not be run."""
    unknown = [block for block in BLOCKS if block.language not in SHELL | OTHERS]
    assert not unknown
    assert sum(page.read_text().count("```") for page in pages()) == 2 * len(BLOCKS)
    assert all(block.script().strip() for block in BLOCKS if block.language in SHELL)


@pytest.mark.parametrize("each", INSTEAD, ids=lambda each: each.found)
def test_nothing_is_spared_that_stands_nowhere(each: Instead) -> None:
    said = "\n".join(block.script() for block in BLOCKS if block.language in SHELL)
    assert re.search(each.found, said, re.MULTILINE)


PROJECT = {
    "file.c": "static int g(int x) { return x * x; } int file(int x) { return g(x) + g(x + 1); }\n",
    "main.c": "int file(int); int main(void) { return file(1) != 5; }\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\n"
    "project(small C)\nadd_executable(small main.c file.c)\n",
    "Makefile": "small: main.o file.o\n\t$(CC) -o $@ $^\n"
    "%.o: %.c always\n\t$(CC) -O2 -c $< -o $@\n.PHONY: always\n",
    "compile_commands.json": json.dumps(
        [{"directory": ".", "file": "file.c", "command": "clang-22 -O2 -c file.c -o file.o"}]
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder, to be copied."""
    folder = tmp_path_factory.mktemp("user") / "folder"
    folder.mkdir()
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    clang = require("clang-22", "clang-22")
    for build, level in (("build-plain", "-O2"), ("build-model", "-Oz")):
        (folder / build).mkdir()
        command = [clang, level, "-c", "file.c", "-o", f"{build}/file.o"]
        subprocess.run(command, cwd=folder, check=True)
    for name in ("models/inliner", "path/to/model"):
        shutil.copytree(ROOT / "models" / "inlining-for-size", folder / name)
    make_corpora(folder / "corpora")
    return folder


def make_corpora(folder: Path) -> None:
    folder.mkdir()
    clang = find_clang(None)
    compilation = Compilation(clang=clang, root=SAMPLE, flags=("-std=c++17",))
    for source in SOURCES:
        build_from_sources(compilation, [source], folder / source)
    for number, name in enumerate(available_recipes()):
        recipe = load_recipe(name)
        sources = SOURCES[:3] if recipe.split == "train" else SOURCES[3:]  # no side has another's
        shutil.copytree(folder / sources[number % len(sources)], folder / name)
        info = recipe_info(recipe) | compiler_info(clang, "Oz")
        (folder / name / "corpus_info.json").write_text(json.dumps(info))
    for source in SOURCES:
        shutil.rmtree(folder / source)
    shutil.rmtree(folder / DEMO)
    info = recipe_info(load_recipe(DEMO))
    build_from_sources(compilation, DEMO_SOURCES, folder / DEMO, info=info)


def clone(folder: Path) -> None:
    """A contributor's folder."""
    if not (ROOT / ".git").exists():
        lacking("needs a checkout: git clone")
    subprocess.run([require("git", "git"), "clone", "--quiet", ROOT, folder], check=True)
    (folder / ".venv").symlink_to(sys.prefix)


UNVERSIONED = {"docs/guides/extraction.md", "docs/guides/toolchain.md"}
"""Pages that call clang `clang`, as PyPI's is called; Debian's packages have `clang-22` alone."""


def environment(place: Path, page: str) -> dict[str, str]:
    """A user's: the commands of this Python first, a clang, and nothing of the machine's own."""
    programs = place / "programs"
    programs.mkdir()
    (place / "distcc").mkdir()
    for name in ("clang", "clang++") if page in UNVERSIONED else ():
        (programs / name).symlink_to(require(f"{name}-22", "clang-22"))
    first = (programs, ROOT / "scripts", Path(sys.executable).parent)
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith("MLGO_")},
        "PATH": os.pathsep.join([*map(str, first), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "MLGO_CACHE": str(place / "cache"),
        "MLGO_CONFIG": os.devnull,
        "CCACHE_DIR": str(place / "ccache"),
        "DISTCC_DIR": str(place / "distcc"),
        "DISTCC_HOSTS": "localhost",
        "GIT_PAGER": "cat",
    }


NEEDS = {
    "docs/guides/compiler-driver.md": ("ccache", "distcc", "make"),
    "docs/guides/extraction.md": ("cmake", "make"),
    "docs/environments/inlining-for-size.md": ("llvm-ir2vec-22",),
    "README.md": ("cmake", "make"),
    "docs/tutorials/cmake-project.md": ("cmake", "make"),
    "docs/tutorials/corpus-of-your-build.md": ("cmake", "make"),
    "docs/tutorials/run-time.md": ("valgrind",),
}


@pytest.mark.e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_can_be_done(page: str, made: Path, tmp_path: Path) -> None:
    for tool in NEEDS.get(page, ()):
        require(tool, "llvm-22" if tool.startswith("llvm-") else tool)
    folder = tmp_path / "folder"
    if page == "CONTRIBUTING.md":
        clone(folder)
    else:
        shutil.copytree(made, folder)
    script = "set -x\n" + scripts(page).replace("{folder}", str(folder))
    done = subprocess.run(
        [require("bash", "bash"), "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment(tmp_path, page), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mlgo-cc: warning" not in done.stderr
    for _, name in OUTPUTS.findall(script):
        assert (folder / name).exists(), name
