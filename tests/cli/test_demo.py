"""``mlgo-gym demo`` without the extra ``train``: the model that ships takes its place."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run
from tests.cli.test_evaluate import copied


@pytest.mark.e2e
def test_without_training(sample: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> ModuleType:
        if name == "mlgo_gym.training._advantage":
            raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
        return real(name, package)

    monkeypatch.setattr("importlib.import_module", without)
    names = ("json_write.c", "frame_stream.c")
    corpus = copied(sample, names, tmp_path / "corpus")
    done = run("demo", "--corpus", corpus, "--plot", "plot.svg", "--budget", "90s", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    (unseen,) = {name for name in names if f"{name}.o," in done.stdout}
    assert lines[:2] == [
        "1. Train on 1 modules, for about 1.5 min.",
        "train: expected the package 'tensorflow', found none; pip install 'mlgo-gym[train]' "
        "brings it. The model that ships with mlgo_gym takes its place.",
    ]
    assert "2. Evaluate on 1 other modules." in lines
    for word in ("shipped", "always", "never", "Plot: plot.svg"):
        assert word in done.stdout
    frozen = "mlgo-gym-demo/frozen/inliner.o"
    assert f"3. Freeze: {frozen}, with a C header and a shared library." in lines
    size = (tmp_path / "mlgo-gym-demo" / f"{unseen}.o").stat().st_size
    assert size > 500
    (compiled,) = (line for line in lines if line.startswith("4. Compile: "))
    assert compiled.startswith(f"4. Compile: mlgo-gym-demo/{unseen}.o, ")
    assert lines[-1] == (
        "The same for bitcode of yours: mlgo-gym compile x.bc -o x.o --model mlgo-gym-demo/frozen"
    )
    assert (tmp_path / frozen).is_file()
    assert "<svg" in (tmp_path / "plot.svg").read_text()
