"""``mlgo-gym models``: what ships, and its names."""

from __future__ import annotations

import json
from pathlib import Path

from mlgo_gym.model import shipped_models
from tests.cli.command import run


def test_shipped_models_are_listed(tmp_path: Path) -> None:
    listed = json.loads(run("models", "--json", cwd=tmp_path).stdout)
    assert {each["name"]: Path(each["folder"]) for each in listed} == shipped_models()
    for each in listed:
        assert set(each) == {"name", "folder", "problem", "llvm_version", "features", "summary"}
    done = run("models", cwd=tmp_path)
    assert done.returncode == 0
    for each in listed:
        assert f"{each['name']}: {each['problem']}, {len(each['features'])} features" in done.stdout
        assert each["summary"].split()[0] in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
