"""``mlgo-gym demo`` without the extra ``train``: the model that ships takes its place."""

from __future__ import annotations

import importlib
import json
import re
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
    names = ("json_write.c", "frame_stream.c", "digest.c")
    corpus = copied(sample, names, tmp_path / "corpus")
    done = run("demo", "--corpus", corpus, "--plot", "plot.svg", "--budget", "90s", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    (unseen,) = {name for name in names if f"{name}.o," in done.stdout}
    assert lines[:4] == [
        "1. Train a policy on 2 modules, for 1.5 min at most.",
        "train: expected the package 'tensorflow', found none; pip install 'mlgo-gym[train]' "
        "brings it. Only the shipped model is compared.",
        "2. Search the answers of 1 other modules.",
        "3. Compare on these 1 modules, which no model has seen.",
    ]
    for word in ("shipped", "search", "smallest", "Plot: plot.svg", "smaller than LLVM's own"):
        assert word in done.stdout
    frozen = "mlgo-gym-demo/frozen/inliner.o"
    assert f"4. Freeze the shipped model: {frozen}, with a header and a library." in lines
    (compiled,) = (place for place, line in enumerate(lines) if line.startswith("5. Compile "))
    target = f"mlgo-gym-demo/{unseen}.o"
    assert lines[compiled] == f"5. Compile with it, and keep the smaller object: {target},"
    pattern = r"([\d,]+) bytes of code instead of ([\d,]+)\."
    ((made, own),) = re.findall(pattern, lines[compiled + 1])
    assert int(made.replace(",", "")) <= int(own.replace(",", ""))
    assert (tmp_path / target).stat().st_size > 500
    assert (tmp_path / frozen).is_file()
    assert "<svg" in (tmp_path / "plot.svg").read_text()


@pytest.mark.e2e
def test_a_search_is_the_same_each_time(sample: Corpus, tmp_path: Path) -> None:
    """So is what the demo shows of it, on a machine of any speed."""
    corpus = copied(sample, ("expr_compile.c", "digest.c", "json_read.c"), tmp_path / "corpus")
    options = ("--corpus", corpus, "--json", "--seed", "1", "--budget", "4s")
    found = []
    for name in ("one", "other"):
        done = run("demo", *options, "--output", name, "--plot", f"{name}.svg", cwd=tmp_path)
        (module,) = json.loads(done.stdout)["modules"]
        found.append(module["policies"]["search"]["object_sha256"])
    assert found[0] == found[1]
