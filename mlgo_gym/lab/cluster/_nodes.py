"""The nodes of a cluster: what they run and have, and which could not work for this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from mlgo_gym.corpus import ModuleFile
from mlgo_gym.lab.cluster._ray_worker import facts, lack_of_space

OK: Final = "ok"
MISSING: Final = "missing"
DIFFERENT: Final = "different"

ANSWER_S: Final = 60.0
"""How long all nodes together have to answer, in seconds; Ray starts a process on each."""


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

    Raises:
        EnvironmentSetupError: LLVM cannot be loaded here.
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
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S)
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
        found = f"expected an answer within {ANSWER_S:g} s, found none"
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
