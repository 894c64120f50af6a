"""`RayCluster`: where work goes that is to be done on a Ray cluster, given as ``jobs=``."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.corpus import ModuleFile
from mlgo_gym.lab.cluster._nodes import NodeReport, ask_nodes
from mlgo_gym.lab.cluster._ray_executor import RayExecutor, Room
from mlgo_gym.lab.cluster._tally import NodeWork
from mlgo_gym.llvm import Executor, State

_State = TypeVar("_State", bound=State)

ANSWER_S: Final = 10.0
WAIT_S: Final = 300.0
_SETTINGS: Final = MappingProxyType(
    {
        "RAY_USAGE_STATS_ENABLED": "0",  # it would tell its makers of each cluster
        "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # it would print what nodes say amid our output
        "RAY_worker_niceness": "0",  # of a Ray that is started here; its own is 15
    }
)
_NO_RAY: Final = "clusters: need Ray; run: pip install 'mlgo-gym[ray]'"
_LOCAL: Final = "local"
_AUTO: Final = "auto"


class RayCluster(AbstractContextManager["RayCluster"]):
    """A connection to a Ray cluster; wherever ``jobs=`` is taken, work goes to its nodes.

    Results are the same as with local workers, whatever the number of nodes. If a node goes, its
    work is repeated elsewhere. Nodes that join are used. All must run the same versions, also of
    this project, or the first call is an error that says so.

    Args:
        address: ``local`` starts Ray on this machine, for as long as this is open; ``auto`` is the
            cluster that this machine is a node of; ``HOST:PORT`` is that of another address, which
            this machine is a node of, too. Where this process is connected to a cluster already,
            that one is used.
        workers: how many compile at once; ``None`` is one for each CPU of the cluster.
        wait_s: how long a call may wait while no node has room, in seconds.

    Raises:
        OptionsError: there is no such address, or a number is not above 0.
        EnvironmentSetupError: Ray is not installed, nobody answers, or the cluster's version is
            another one.

    >>> RayCluster("somewhere")
    Traceback (most recent call last):
      ...
    mlgo_gym.errors.OptionsError: ray: expected local, auto or HOST:PORT, found 'somewhere'
    """

    def __init__(self, address: str, *, workers: int | None = None, wait_s: float = WAIT_S) -> None:
        for name, value in (("workers", workers), ("wait_s", wait_s)):
            if value is not None and not value > 0:
                raise OptionsError(f"{name}: expected a number above 0, found {value!r}")
        _check_answers(address)
        self._workers = workers
        self._wait_s = wait_s
        self._ray = _ray(address)
        self._room = Room()
        self._is_open = not self._ray.is_initialized()
        if self._is_open:
            _connect(self._ray, address)

    def __call__(self, state: Callable[[], _State], /) -> Executor[_State]:
        """An executor on the nodes, whose workers have states that this function makes."""
        how: dict[str, Any] = {"count": self._workers, "wait_s": self._wait_s}
        return RayExecutor(state, self._ray, self._room, **how)

    def nodes(self, modules: Sequence[ModuleFile] = ()) -> list[NodeReport]:
        """Report what each node runs and has, and whether it can work for this process.

        Args:
            modules: of how many of them each node has the same file is in its report.

        Raises:
            EnvironmentSetupError: LLVM cannot be loaded here.
        """
        return ask_nodes(self._ray, modules)

    @property
    def work(self) -> list[NodeWork]:
        """The work of each node for this process so far, also of nodes that have gone since."""
        return self._room.tally.nodes

    def close(self) -> None:
        """Leave the cluster, and end it where it was started here; safe to call twice."""
        if self._is_open:
            self._ray.shutdown()
        self._is_open = False

    def __exit__(self, *_: object) -> None:
        self.close()


def _ray(address: str) -> Any:
    """Ray, which reads its settings when it is imported.

    A cluster that is started here takes nobody without a token, which this process and its children
    have: Ray listens on all interfaces, and runs what any client asks for.
    """
    settings = dict(_SETTINGS)
    if address == _LOCAL and "RAY_AUTH_MODE" not in os.environ:
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    new = {name: text for name, text in settings.items() if name not in os.environ}
    os.environ |= new
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        for name in new:
            del os.environ[name]
        raise EnvironmentSetupError(_NO_RAY) from error


def _check_answers(address: str) -> None:
    """See that there is somebody: Ray itself would wait for minutes."""
    if address in {_LOCAL, _AUTO}:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise OptionsError(f"ray: expected local, auto or HOST:PORT, found {address!r}")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentSetupError(
            f"ray: expected a cluster's head at {address}, found none: {error}"
        ) from error


def _connect(ray: Any, address: str) -> None:
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == _LOCAL:
        settings["include_dashboard"] = False
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentSetupError(f"ray: {address}: {error}") from error
