"""How often the code of decisions is executed by the programs of corpora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from mlgo_gym.corpus import Packages, PackagesLike
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.insight._decisions import ExecutedProgram
from mlgo_gym.lab.programs import Programs, corpora_with_workloads, executed_code
from mlgo_gym.problems import PolicyLike


def executed_programs(
    corpora: PackagesLike, policies: Mapping[str, PolicyLike], setting: Setting
) -> Iterator[tuple[tuple[str, str], list[ExecutedProgram]]]:
    """Run the programs of each package under each policy: both their names, and what is executed.

    Raises:
        WorkloadError: no package has workloads, or a program does something else than it must.
        EnvironmentSetupError: valgrind is missing.
    """
    for package, corpus in corpora_with_workloads(Packages.of(corpora).named).items():
        made_of = partial(Programs, corpus, opt_level=setting.opt_level, jobs=setting.jobs)
        with closing(made_of(timeout_s=setting.timeout_s)) as programs:
            for name, policy in policies.items():
                found = []
                for workload in programs.workloads.values():
                    made = programs.compiled(workload, {setting.problem: policy})
                    with programs.linked(workload, made) as program:
                        functions = executed_code(workload, program)
                        found.append(ExecutedProgram(frozenset(made), functions))
                yield (package, name), found
