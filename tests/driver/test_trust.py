"""Frozen models of others: ``mlgo-cc`` runs them when it is told to, and not before."""

from __future__ import annotations

import json
from pathlib import Path

from mlgo_gym.native._freeze import freeze
from tests.driver.conftest import MODELS, Driver


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
