"""Models that ship with the package, by their names.

The package is a link in another folder, so that the models beside it are this test's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, ROOT, SOURCE, Driver
from tests.conftest import one_in


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A new driver, and the package's models: ``small`` and, without a card, ``cardless``."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "mlgo_gym").symlink_to(ROOT / "mlgo_gym")
    shutil.copytree(MODELS / "never", packages / "models" / "small")
    shutil.copytree(MODELS / "never", packages / "models" / "cardless")
    (packages / "models" / "cardless" / "card.json").unlink()
    return {
        "PYTHONPATH": str(packages),
        "MLGO_CACHE": str(tmp_path / "cache"),
        "MLGO_STRICT": "1",
    }


@pytest.mark.e2e
def test_names(driver: Driver, tmp_path: Path, settings: dict[str, str]) -> None:
    (tmp_path / "f.c").write_text(SOURCE)

    def compiled(**model: str) -> bytes:
        done = driver.run("-O2", "-c", "f.c", cwd=tmp_path, settings=settings | model)
        assert (done.returncode, done.stderr) == (0, b"")
        return (tmp_path / "f.o").read_bytes()

    plain, never = compiled(), compiled(MLGO_INLINING_MODEL=str(MODELS / "never"))
    assert compiled(MLGO_INLINING_MODEL="small") == never != plain
    (tmp_path / "small").symlink_to(MODELS / "default")
    assert compiled(MLGO_INLINING_MODEL="./small") == plain


@pytest.mark.e2e
@pytest.mark.parametrize("name", one_in(3, ["cardless", "other", "../models/small"]))
def test_what_is_no_name(
    driver: Driver, tmp_path: Path, settings: dict[str, str], name: str
) -> None:
    (tmp_path / "f.c").write_text(SOURCE)
    settings["MLGO_INLINING_MODEL"] = name
    done = driver.run("-O2", "-c", "f.c", cwd=tmp_path, settings=settings)
    problem = "expected a folder, or one of small; found neither"
    if "/" in name:
        problem = "cannot be read: No such file or directory"
    words = f"model '{name}': {problem}"
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")
