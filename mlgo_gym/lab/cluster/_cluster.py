"""`RayCluster`: where work goes that is to be done on a Ray cluster, given as ``jobs=``."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.corpus import ModuleFile
from mlgo_gym.lab.cluster._ray_executor import NodeWork, RayExecutor, Room
from mlgo_gym.lab.cluster._ray_worker import facts, lack_of_space
from mlgo_gym.llvm import Executor, State

OK: Final = "ok"
MISSING: Final = "missing"
DIFFERENT: Final = "different"

NODES_ANSWER_S: Final = 60.0
"""How long all nodes together have to answer, in seconds; Ray starts a process on each."""

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


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The report of a cluster's node about itself.

    Attributes:
        node: its host's name; its address, where it says nothing.
        state: ``ok``; ``missing``, it lacks something that work needs; ``different``, results could
            not be compared with those of here.
        found: what it lacks, or what is different.
        runs: the versions of what must be the same everywhere, by name.
        cpus: how many of them Ray gives out.
        memory_bytes: the machine's.
        temporary_folder: where its workers put files.
        free_bytes: what is free there.
        seen: how many of the modules that were asked for it would read itself.
    """

    node: str
    state: str
    found: str
    runs: Mapping[str, str]
    cpus: int
    memory_bytes: int = 0
    temporary_folder: str = ""
    free_bytes: int = 0
    seen: int = 0


def ask_nodes(ray: Any, files: Sequence[ModuleFile]) -> list[NodeReport]:
    """The reports of all nodes that are alive, in the order of their names.

    No CPU need be free: what is asked takes none.

    Args:
        ray: the module, connected.
        files: modules, of which each node says how many it sees.
    """
    from ray.util.scheduling_strategies import (  # noqa: PLC0415 - slow, and of an extra
        NodeAffinitySchedulingStrategy,
    )

    expected = facts()
    kind = ray.remote(num_cpus=0, max_retries=0)(_question())
    fields = [astuple(each) for each in files]
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[kind.options(scheduling_strategy=there).remote(fields)] = node
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=NODES_ANSWER_S)
    in_time = set(done)
    reports = [
        _report(ray, call, node, expected, is_late=call not in in_time)
        for call, node in asked.items()
    ]
    return sorted(reports, key=lambda each: each.node)


def _question() -> Callable[[Sequence[tuple[Any, ...]]], dict[str, Any] | str]:
    """Return the function that nodes are asked to run.

    It is a function within one, which Ray sends with its code: so that a node answers, too, that
    does not have this package.
    """

    def ask(files: Sequence[tuple[Any, ...]]) -> dict[str, Any] | str:
        import importlib  # noqa: PLC0415 - where this runs there is no module around it

        try:
            worker = importlib.import_module("mlgo_gym.lab.cluster._ray_worker")
        except ImportError as error:
            return str(error)
        found: dict[str, Any] = worker.answers(files)
        return found

    return ask


def _report(
    ray: Any, call: Any, node: Mapping[str, Any], expected: Mapping[str, str], *, is_late: bool
) -> NodeReport:
    cpus = int(node["Resources"].get("CPU", 0))
    address = str(node["NodeManagerAddress"])
    if is_late:
        found = f"expected an answer within {NODES_ANSWER_S:g} s, found none"
        return NodeReport(address, MISSING, found, {}, cpus)
    try:
        said = ray.get(call)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return NodeReport(address, MISSING, lines[-1] if lines else "lost", {}, cpus)
    if isinstance(said, str):
        return NodeReport(address, MISSING, f"mlgo_gym: {said}", {}, cpus)
    failure, runs = said.pop("failure"), said["runs"]
    lack = lack_of_space(said["temporary_folder"], said["free_bytes"])
    differences = [
        f"{name}: expected {expected.get(name, 'none')}, as here, found {value}"
        for name, value in runs.items()
        if value != expected.get(name)
    ]
    state = DIFFERENT if differences else MISSING if failure or lack else OK
    reasons = "; ".join([*differences, *filter(None, [failure, lack])])
    return NodeReport(state=state, found=reasons, cpus=cpus, **said)


_State = TypeVar("_State", bound=State)


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
