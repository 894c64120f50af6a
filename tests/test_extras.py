"""What is said and done where the package of an extra is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from corpus_tools import load_recipe
from corpus_tools.errors import SdistError
from corpus_tools.extraction.inputs import Outcome, Status
from corpus_tools.extraction.static_archive import list_archive
from corpus_tools.sdist import fetch_sdist
from mlgo_gym import SAMPLE_CORPUS
from mlgo_gym.cli._main import main

NO_PLOTS = "plots: need matplotlib; run: pip install 'mlgo-gym[plot]'"


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("without_matplotlib")
@pytest.mark.parametrize(
    "command",
    [
        ("demo", "--plot", "plot.svg"),
        ("evaluate", "--policy", "never", "--plots", "plots"),
        ("explain-features", "--model", "inlining-for-size", "--plots", "plots"),
    ],
    ids=lambda command: command[0],
)
def test_plots_that_are_asked_for_are_refused_before_the_work(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    assert capsys.readouterr() == ("", f"mlgo-gym: error: {NO_PLOTS}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_matplotlib")
def test_a_page_is_without_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    settings = ["--policy", "never", "--html", str(page)]
    assert main(["evaluate", *_one_module(tmp_path), *settings]) == 0
    assert f"page.html has no plots. {NO_PLOTS}." in " ".join(capsys.readouterr().out.split())
    text = page.read_text()
    assert "<td" in text
    assert "<img" not in text


@pytest.mark.usefixtures("without_matplotlib")
def test_the_demo_leaves_its_plot_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = _one_module(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--problem", "regalloc-eviction", *corpus]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("The plot is left out. plots: need matplotlib; run: pip install")
    assert "Plot:" not in printed
    assert [each.name for each in tmp_path.iterdir()] == ["corpus"]


def test_fetching_needs_unearth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unearth", None)
    monkeypatch.delitem(sys.modules, "corpus_tools.package_index", raising=False)
    with pytest.raises(SdistError) as caught:
        fetch_sdist(load_recipe("lz4"), tmp_path)
    assert str(caught.value) == (
        "package 'lz4': needs unearth; run: pip install 'mlgo-gym[corpus]'"
    )
    assert list(tmp_path.iterdir()) == []


def test_archives_need_arpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arpy", None)
    (tmp_path / "lib.a").write_bytes(b"!<arch>\n")
    (outcome,) = list_archive("lib.a", tmp_path)
    assert isinstance(outcome, Outcome)
    assert (outcome.input, outcome.status) == ("lib.a", Status.FAILED)
    assert outcome.reason == (
        "archive cannot be read: needs arpy; run: pip install 'mlgo-gym[corpus]'"
    )


def _one_module(folder: Path) -> list[str]:
    """The options that name a corpus of one module of the sample."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for suffix in (".bc", ".cmd"):
        (corpus / f"frame_stream.c{suffix}").write_bytes(
            (SAMPLE_CORPUS / f"frame_stream.c{suffix}").read_bytes()
        )
    manifest = {"modules": ["frame_stream.c"], "has_thinlto": False}
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    return ["--corpus", str(corpus)]


@pytest.mark.e2e
def test_only_training_imports_what_is_slow() -> None:
    """Whoever compiles does not wait for TensorFlow, or for what fits and what draws."""
    script = """
        import importlib, pkgutil, sys
        import corpus_tools, mlgo_gym
        ALLOWED = "mlgo_gym.training.", "mlgo_gym.lab.tuning.", "mlgo_gym.envs.sb3"
        for package in (corpus_tools, mlgo_gym):
            for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                if not each.name.startswith(ALLOWED):
                    importlib.import_module(each.name)
        print(*{name.partition(".")[0] for name in sys.modules})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert {"mlgo_gym", "numpy", "gymnasium"} <= loaded
    assert not loaded & {"tensorflow", "keras", "torch", "sklearn", "matplotlib", "tensorboard"}
