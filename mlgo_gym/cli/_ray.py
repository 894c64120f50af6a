"""``--ray``: the workers of a command on a Ray cluster instead of here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgo_gym.cli._options import Options


def add_ray(add: Options) -> None:
    """``--ray``, and how many workers there are then."""
    what = "work on a Ray cluster, not here: local starts one, auto is this machine's, or HOST:PORT"
    add("--ray", "ADDRESS", what)
    what = "with --ray: work on N modules at once, whatever --jobs is (default: one for each CPU)"
    add("--ray-workers", "N", what)


@contextmanager
def on_cluster(options: argparse.Namespace) -> Iterator[None]:
    """Where a command's jobs are to be on a cluster, they are, as long as this lasts."""
    if getattr(options, "ray", None) is None:
        yield
        return
    from mlgo_gym.scale._cluster import RayCluster

    with RayCluster(options.ray, workers=options.ray_workers) as options.jobs:
        yield
