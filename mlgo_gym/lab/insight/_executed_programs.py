"""How often the code of decisions is executed by the programs of corpora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from mlgo_gym.corpus import Corpus
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.insight._placed_decisions import ExecutedProgram
from mlgo_gym.lab.programs import Programs, executed_code
from mlgo_gym.problems import PolicyLike


def executed_programs(
    corpora: Mapping[str, Corpus], policies: Mapping[str, PolicyLike], setting: Setting
) -> Iterator[tuple[tuple[str, str], list[ExecutedProgram]]]:
    """Run the programs of each package under each policy: both their names, and what is executed.

    Args:
        corpora: packages that have workloads.
        policies: by name.
        setting: how modules are compiled.

    Raises:
        WorkloadError: a program does something else than it must.
        EnvironmentSetupError: valgrind is missing.
    """
    for package, corpus in corpora.items():
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
