"""The files of clusters in docs/guides/scale.md: Ray would take them, and they fit each other."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "ray"


def read(name: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((FOLDER / name).read_text())


def test_a_cluster_by_ssh() -> None:
    util = importlib.import_module("ray.autoscaler._private.util")
    config = read("ssh.yaml")
    util.validate_config(util.prepare_config(config))
    assert config["max_workers"] == len(config["provider"]["worker_ips"])


def test_a_cluster_on_kubernetes() -> None:
    """Every container's image is the same one, and what is mounted is there."""
    spec = read("kuberay.yaml")["spec"]
    pods = [each["template"]["spec"] for each in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    containers = [container for pod in pods for container in pod["containers"]]
    assert len({each["image"] for each in containers}) == 1
    for pod in pods:
        mounted = {each["name"] for each in pod["containers"][0].get("volumeMounts", [])}
        assert mounted == {each["name"] for each in pod.get("volumes", [])}


def test_one_version_of_ray() -> None:
    """That of the files is the one that RLlib's extra has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (rllib,) = extras["optional-dependencies"]["scale"]
    version = rllib.partition("==")[2]
    for name in ("ssh.yaml", "kuberay.yaml"):
        found = re.findall(r"(?:ray==|ray:|rayVersion: \")([0-9.]+)", (FOLDER / name).read_text())
        assert set(found) == {version}
