"""Frozen models of others: ``mlgo-cc`` runs them when it is told to, and not before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems import InliningForSize
from tests.cc.conftest import MODELS, Driver
from tests.runners.saved import saved_model


@pytest.mark.e2e
def test_machine_code_of_others(driver: Driver, work: Path, tmp_path: Path) -> None:
    model = tmp_path / "frozen"
    files = freeze(MODELS / "never", model, name="policy")
    settings = {"MLGO_INLINING_MODEL": str(model)}
    own = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "1"})
    assert (own.returncode, own.stderr) == (0, b"")
    expected = (work / "f.o").read_bytes()
    described = json.loads(files.description.read_text())
    files.description.write_text(json.dumps(described | {"seal": None}))
    for _ in range(2):
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert (done.returncode, done.stderr.decode()) == (
            0,
            f"mlgo-cc: warning: model '{model}': expected machine code that this user has frozen "
            "on this machine, found another's, which would run as this user; if you trust it, pass "
            "--trust-code (in Python trusted=True, for mlgo-cc MLGO_TRUST_CODE=1); compiled by "
            "plain clang\n",
        )
        assert (work / "f.o").read_bytes() != expected
    settings |= {"MLGO_TRUST_CODE": "1", "MLGO_STRICT": "1"}
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.o").read_bytes() == expected


@pytest.mark.e2e
def test_what_tensorflow_has_saved(driver: Driver, work: Path, tmp_path: Path) -> None:
    saved = saved_model(InliningForSize, tmp_path)
    model = {"MLGO_INLINING_MODEL": str(saved), "MLGO_CACHE": str(tmp_path / "cache")}
    refused = driver.run("-O2", "-c", "f.c", cwd=work, settings=model)
    assert b"found a SavedModel, which TensorFlow would run as this user" in refused.stderr
    trusted = model | {"MLGO_TRUST_CODE": "1", "MLGO_STRICT": "1"}
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=trusted)
    assert (done.returncode, done.stderr) == (0, b"")
