"""``mlgo-gym evaluate``: what it says against what single compilations say, files, bad input."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize, always
from mlgo_gym.rollout._link import linked_sizes
from tests.cli.command import check_refused, run

MODELS = Path(__file__).parents[1] / "models"
NEVER = MODELS / "never"

Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def evaluate(small_folder: Path, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """The record of an evaluation on the small corpus, unless another is given."""

    def evaluation(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
        corpus = () if "--corpus" in arguments else ("--corpus", small_folder)
        texts = [str(each) for each in ("evaluate", *corpus, *arguments, "--json")]
        assert main(texts) == status
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return evaluation


@pytest.fixture
def cpp_folder(sample: Corpus, tmp_path: Path) -> Path:
    """Two C++ modules that have functions in common."""
    return copied(sample, ("lru_cache.cpp", "scheduler.cpp"), tmp_path / "cpp")


@pytest.fixture
def one_of_two(sample: Corpus, tmp_path: Path) -> Path:
    """Two modules, of which one is no bitcode."""
    folder = copied(sample, ("json_write.c", "frame_stream.c"), tmp_path / "broken")
    (folder / "json_write.c.bc").write_bytes(b"no bitcode")
    return folder


def copied(corpus: Corpus, names: tuple[str, ...], folder: Path) -> Path:
    folder.mkdir()
    for name in names:
        for suffix in ("bc", "cmd"):
            shutil.copy(corpus.folder / f"{name}.{suffix}", folder)
    manifest = {"modules": list(names), "has_thinlto": False}
    (folder / "corpus_description.json").write_text(json.dumps(manifest))
    return folder


def test_the_numbers_are_those_of_single_compilations(
    evaluate: Evaluate, small: Corpus, compiler: Compiler
) -> None:
    found = evaluate("--policy", "always", "--model", NEVER)
    assert found["policies"] == ["never", "always"]
    sums = {"LLVM": 0, "always": 0}
    for record in found["modules"]:
        module = small[record["module"]]
        plain = compiler.compile_module(module)
        mine = compiler.compile_module(module, problem=InliningForSize(), policy=always)
        assert record["text"]["LLVM"] == plain.text_size_bytes
        assert record["text"]["always"] == mine.text_size_bytes
        assert record["decisions"]["always"] == mine.decisions
        assert record["language"] == "C"
        sums["LLVM"] += plain.text_size_bytes
        sums["always"] += mine.text_size_bytes
    text = found["total"]["text"]
    assert text["LLVM"] == sums["LLVM"]
    assert text["policies"]["always"]["total"] == sums["always"]
    assert text["policies"]["always"]["change"] == sums["always"] / sums["LLVM"] - 1
    low, high = text["policies"]["always"]["interval"]
    assert low <= text["policies"]["always"]["change"] <= high
    assert {each["module"] for each in found["worse"]["always"]} == {
        each["module"]
        for each in found["modules"]
        if each["text"]["always"] > max(1.01 * each["text"]["LLVM"], each["text"]["LLVM"] + 64)
    }


@pytest.mark.e2e
def test_packages_and_languages(evaluate: Evaluate, small_folder: Path, cpp_folder: Path) -> None:
    found = evaluate("--corpus", small_folder, "--corpus", cpp_folder, "--policy", "never")
    assert list(found["packages"]) == ["small corpus", "cpp"]
    assert list(found["languages"]) == ["C", "C++"]
    for key in ("text", "linked_text"):
        for groups in (found["packages"], found["languages"]):
            parts = sum(each[key]["policies"]["never"]["total"] for each in groups.values())
            assert parts == pytest.approx(found["total"][key]["policies"]["never"]["total"])
    cpp = found["packages"]["cpp"]
    assert cpp["linked_text"]["LLVM"] < cpp["text"]["LLVM"]
    assert (
        cpp["linked_text"]["policies"]["never"]["total"] < cpp["text"]["policies"]["never"]["total"]
    )
    c = found["packages"]["small corpus"]
    assert c["linked_text"]["LLVM"] == c["text"]["LLVM"]


@pytest.mark.e2e
def test_the_same_seed_gives_the_same_whatever_the_jobs(
    evaluate: Evaluate, cpp_folder: Path
) -> None:
    arguments = ("--corpus", cpp_folder, "--policy", "random")
    first = evaluate(*arguments, "--seed", "5")
    assert evaluate(*arguments, "--seed", "5", "--jobs", "2") == first
    assert evaluate(*arguments, "--seed", "6")["total"] != first["total"]


@pytest.mark.e2e
def test_register_allocation(evaluate: Evaluate) -> None:
    found = evaluate("--model", MODELS / "lowest_density", "--text")
    assert found["problem"]["problem"] == "RegallocEviction"  # as the model's card says
    total = found["total"]
    assert set(total) == {
        "modules", "packages", "score_mean", "score", "text", "linked_text", "text_mean",
        "score_module_mean",
    }  # fmt: skip
    assert total["score_mean"]["ratios"] > 10
    assert total["score"]["policies"]["lowest_density"]["total"] > 0
    assert total["text"]["LLVM"] == sum(each["text"]["LLVM"] for each in found["modules"])
    plain = evaluate("--problem", "regalloc-eviction", "--policy", "first")
    assert "text" not in plain["total"]
    assert plain["total"]["score"]["LLVM"] == total["score"]["LLVM"]


@pytest.mark.e2e
def test_what_a_search_found_is_beside_it(
    evaluate: Evaluate,
    small_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    traces = tmp_path / "traces"
    rolled = ("rollout", "--corpus", str(small_folder), "--policy", "default", "--traces")
    assert main([*rolled, str(traces)]) == 0
    (traces / "frame_stream.c.trace").unlink()
    capsys.readouterr()
    found = evaluate("--policy", "never", "--traces", traces)
    assert found["policies"] == ["never", "search"]
    for each in found["modules"]:
        assert each["text"]["search"] == each["text"]["LLVM"] <= each["text"]["never"]
    command = ("evaluate", "--corpus", str(small_folder), "--policy", "never", "--traces")
    assert main([*command, str(traces), "--opt-level", "O2"]) == 1
    assert "opt_level: expected Oz, found O2" in capsys.readouterr().err


def test_what_a_linker_keeps(
    evaluate: Evaluate, sample: Corpus, small_folder: Path, cpp_folder: Path
) -> None:
    given: list[str | Path] = ["--corpus", small_folder, "--corpus", cpp_folder]
    found = evaluate(*given, "--policy", "always", "--keep-smaller", "--linked")["linked"]
    packages = found["packages"]
    assert list(packages) == [small_folder.name, "cpp"]
    objects: dict[str, list[bytes]] = {"LLVM": [], "always": []}
    with Compiler() as compiler:
        for name in ("lru_cache.cpp", "scheduler.cpp"):
            options = options_of(sample[name]).with_sections()
            for policy, files in objects.items():
                how: dict[str, Any] = {"keep_object": True}
                if policy == "always":
                    how |= {"problem": InliningForSize(), "policy": always}
                made = compiler.compile_module(sample[name], options, **how)
                files.append(made.object_bytes or b"")
    expected = {policy: asdict(linked_sizes(files)) for policy, files in objects.items()}
    assert {name: packages["cpp"][name] for name in expected} == expected
    for way in ("text", "gc", "icf"):
        ratios = [each["always"][way] / each["LLVM"][way] for each in packages.values()]
        change = found["policies"]["always"][way]
        assert change["value"] == pytest.approx(math.sqrt(math.prod(ratios)) - 1)
        assert change["interval"] == pytest.approx([min(ratios) - 1, max(ratios) - 1])
        assert found["policies"]["smallest"][way]["value"] <= 0


def test_a_module_that_is_not_linked(one_of_two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named once, and the others are linked without it."""
    shown = ("evaluate", "--corpus", str(one_of_two), "--policy", "never", "--linked")
    assert main(shown) == 1
    said = capsys.readouterr()
    assert said.err.count("Invalid bitcode signature") == 1
    assert "│ never         │ linked │" in said.out
    for path in one_of_two.glob("*.bc"):
        path.write_bytes(b"no bitcode")
    assert main(shown) == 1
    assert "after linking" not in capsys.readouterr().out


def test_times(evaluate: Evaluate, sample: Corpus, tmp_path: Path) -> None:
    folder = copied(sample, ("frame_stream.c", "json_write.c"), tmp_path / "two")
    policies = ("--policy", "never", "--model", MODELS / "default")
    found = evaluate("--corpus", folder, *policies, "--time")
    time = found["time"]
    assert set(time["policies"]) == {"never", "default"}
    for record in time["modules"]:
        assert record["error"] is None
        assert min(record["seconds"].values()) > 0
    for name, each in time["policies"].items():
        seconds = [record["seconds"] for record in time["modules"]]
        change = sum(one[name] for one in seconds) / sum(one["LLVM"] for one in seconds) - 1
        assert each["change"] == pytest.approx(change)


def test_times_without_a_module(one_of_two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("evaluate", "--corpus", str(one_of_two), "--policy", "never", "--time", "--json")
    assert main(line) == 1
    modules = json.loads(capsys.readouterr().out)["time"]["modules"]
    failed = [each for each in modules if each["error"]]
    assert (len(modules), len(failed), failed[0]["seconds"]) == (2, 1, {})
    assert "Invalid bitcode signature" in failed[0]["error"]


class Page(HTMLParser):
    """The tables of a page: their headings and the texts and values of their cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.images = 0
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.addresses += [each for key in ("src", "href") if (each := attributes.get(key))]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "td":
            self.tables[-1][-1].append(attributes.get("data-value") or "")
        elif tag == "img":
            self.images += 1


@pytest.mark.smoke
@pytest.mark.e2e
def test_page_and_plots(cpp_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    page, plots = tmp_path / "page.html", tmp_path / "new" / "plots"
    done = run(
        "evaluate", "--corpus", small_folder, "--corpus", cpp_folder, "--policy", "never",
        "--policy", "always", "--html", page, "--plots", plots, "--json", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert {each.name for each in plots.iterdir()} == {
        "totals.png", "packages.png", "modules.png",
    }  # fmt: skip
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in plots.iterdir())
    text = page.read_text()
    parsed = Page(text)
    assert parsed.images == 3
    assert all(each.startswith("data:image/png;base64,") for each in parsed.addresses)
    languages, packages, modules, *_ = parsed.tables
    assert len(languages) == len(packages) == 4  # headings, two groups, the total
    assert len(modules) == 1 + len(found["modules"])
    changes = [row[5] for row in modules[1:]]  # text, never
    assert [float(each) for each in changes] == [
        each["text"]["never"] / each["text"]["LLVM"] - 1 for each in found["modules"]
    ]
    assert "addEventListener" in text


@pytest.mark.e2e
def test_tables_fit_a_narrow_screen(
    small_folder: Path, cpp_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--corpus", str(small_folder), "--corpus", str(cpp_folder), "--modules"]
    for policy in ("never", "always", "random", "default"):
        arguments += ["--policy", policy]
    assert main(["evaluate", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if re.match("[┏┃┡│├└]", line)]
    assert max(len(line) for line in table) <= 80
    out = "\n".join(lines)
    for word in ("json_write.c", "scheduler.cpp", "linked text", "small corpus", "C++"):
        assert word in out
    assert "default: 0 of 5 modules worse by more than 1 % and 64 bytes." in out


def test_a_bad_module_among_good_ones(
    small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_folder / "frame_stream.c.bc").write_bytes(b"no bitcode")
    command = ["evaluate", "--corpus", str(small_folder), "--policy", "never"]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        "mlgo-gym: module 'frame_stream.c': LLVM bitcode parsing error\nInvalid bitcode signature\n"
    )
    assert "Left out of all this since LLVM failed on them: 1 modules." in printed.out
    assert main([*command, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["modules"] == 2
    assert [bool(each["errors"]) for each in found["modules"]] == [False, False, True]


def test_only_bad_modules(small_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in small_folder.glob("*.bc"):
        path.write_bytes(b"")
    command = ["evaluate", "--corpus", str(small_folder), "--policy", "never"]
    html = small_folder.parent / "page.html"
    assert main([*command, "--html", str(html)]) == 1
    assert "No module was compiled under every policy." in capsys.readouterr().out
    assert not html.exists()
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["total"] == {"modules": 0, "packages": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected --model or --policy, found neither"),
        (
            ["--model", "none"],
            "model 'none': expected a model directory, a frozen model or the name of a shipped one "
            "(inlining-for-size, inlining-for-size-derived, inlining-for-size-project, "
            "regalloc-eviction), found none",
        ),
        (
            ["--model", "empty"],
            "model 'empty/model.tflite': cannot be read: No such file or directory",
        ),
        (
            ["--model", "lowest_density", "--problem", "inlining-for-size"],
            "model 'lowest_density': expected a model for InliningForSize, found one for "
            "RegallocEviction",
        ),
        (
            ["--model", "lowest_density", "--model", "never"],
            "model 'never': expected a model for RegallocEviction, found one for InliningForSize",
        ),
        (
            ["--model", "unknown_feature"],
            "model 'unknown_feature': was trained on features of LLVM 22.1.0 that are not "
            "offered: 'moon_phase'",
        ),
        (
            ["--model", "never", "--model", "./never"],
            "expected different folders, found 'never' more than once",
        ),
        (
            ["--policy", "first"],
            "policy: expected one of default, always, never, random, found 'first'",
        ),
        (
            ["--policy", "never", "--corpus", "empty"],
            "corpus 'empty': expected corpus_description.json in it or in folders in it, found "
            "none; 'mlgo-gym corpus build' makes a corpus",
        ),
        (
            ["--model", "lowest_density", "--traces", "empty"],
            "traces: expected InliningForSize, found RegallocEviction",
        ),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path) -> None:
    for name in ("lowest_density", "never", "unknown_feature"):
        shutil.copytree(MODELS / name, tmp_path / name)
    (tmp_path / "empty").mkdir()
    check_refused(message, "evaluate", *arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plots", "file/plots"], "cannot write 'file/plots': Not a directory"),
        (["--plots", "file"], "cannot write 'file': File exists"),
        (["--html", "none/page.html"], "--html: expected an existing folder, found 'none'"),
    ],
)
def test_files_that_cannot_be_written(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_refused(message, "evaluate", "--policy", "never", *arguments, cwd=tmp_path)
