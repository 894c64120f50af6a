"""Models that look at embeddings: clang gets the vocabulary that a model's card names, or users."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlgo_gym.model._card import CARD_FILE
from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems._vocabulary import Vocabulary
from tests.cc.conftest import MODELS, Driver

SOURCE = (
    "static int g(int x) { return x * x; }\n"
    "static int h(int x) { return x > 9 ? (x / 3) * (x - 7) : (x * 2) ^ (x << 3); }\n"
    "int f(int x) { return g(x) + g(x + 1) + h(x) + h(x + 1); }\n"
)
STRICT = {"MLGO_STRICT": "1"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "f.c").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def bare(work: Path) -> Path:
    """The model without what names its vocabulary."""
    model = shutil.copytree(MODELS / "short", work / "bare")
    about = json.loads((model / CARD_FILE).read_text())
    del about["settings"]
    (model / CARD_FILE).write_text(json.dumps(about))
    return model


def inlined(driver: Driver, work: Path, model: Path, *options: str, **settings: str) -> set[str]:
    """The functions that are gone, by the assembly; clang says nothing."""
    chosen = STRICT | {"MLGO_INLINING_MODEL": str(model)} | settings
    done = driver.run("-Oz", "-S", "f.c", *options, cwd=work, settings=chosen)
    assert (done.returncode, done.stderr) == (0, b"")
    text = (work / "f.s").read_text()
    return {name for name in "gh" if f"\n{name}:" not in text}


@pytest.mark.e2e
def test_what_the_card_names(driver: Driver, work: Path) -> None:
    """Sizes: what has few instructions is inlined; a file beside the card serves as a name does."""
    assert inlined(driver, work, MODELS / "short") == {"g"}
    model = shutil.copytree(MODELS / "short", work / "own")
    about = json.loads((model / CARD_FILE).read_text()) | {"settings": {"ir2vec": "ir2vec.json"}}
    (model / CARD_FILE).write_text(json.dumps(about))
    for factor, expected in ((b"1.0", {"g"}), (b"100.0", set()), (b"0.1", {"g", "h"})):
        data = Vocabulary.of("ones").data.replace(b"1.0", factor)
        (model / "ir2vec.json").write_bytes(data)
        assert inlined(driver, work, model) == expected
        freeze(model, work / "frozen", name="policy")
        assert inlined(driver, work, work / "frozen") == expected


@pytest.mark.e2e
def test_what_users_name(driver: Driver, work: Path, bare: Path) -> None:
    (work / "large.json").write_bytes(Vocabulary.of("ones").data.replace(b"1.0", b"100.0"))
    assert inlined(driver, work, bare, "--mlgo-ir2vec=ones") == {"g"}
    assert inlined(driver, work, bare, MLGO_IR2VEC="large.json") == set()
    assert inlined(driver, work, MODELS / "short", "--mlgo-ir2vec=large.json") == set()
    clangs = ("-ml-inliner-ir2vec-vocab-file", "-ir2vec-vocab-path")
    options = [word for each in clangs for word in ("-mllvm", f"{each}={work}/large.json")]
    assert inlined(driver, work, MODELS / "short", *options) == set()


@pytest.mark.e2e
def test_it_decides_the_fingerprint(driver: Driver, work: Path, bare: Path) -> None:
    found = set()
    for more in ([], ["--mlgo-ir2vec=ones"], ["--mlgo-ir2vec=one-hot"]):
        settings = STRICT | {"MLGO_INLINING_MODEL": str(bare)}
        done = driver.run("--mlgo-fingerprint", *more, cwd=work, settings=settings)
        assert done.returncode == 0
        found.add(done.stdout)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (
            None,
            "the inlining model needs inputs that this clang does not offer: 'callee_embedding'",
        ),
        (
            "one-hot",
            "the inlining model takes 'callee_embedding' as float of 4 bytes, this clang sends "
            "float of 320 bytes",
        ),
        ("none.json", "ir2vec: none.json: cannot be read: No such file or directory"),
        ("f.c", "ir2vec: f.c: expected JSON: "),
    ],
)
def test_vocabularies_that_do_not_fit(
    vocabulary: str | None, message: str, driver: Driver, work: Path, bare: Path
) -> None:
    settings = STRICT | {"MLGO_INLINING_MODEL": str(bare)}
    more = [f"--mlgo-ir2vec={vocabulary}"] if vocabulary else []
    done = driver.run("-Oz", "-S", "f.c", *more, cwd=work, settings=settings)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"mlgo-cc: error: {message}")
