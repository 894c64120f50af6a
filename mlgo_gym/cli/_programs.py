"""Programs that run, as several commands have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.corpus._corpus import Corpus
    from mlgo_gym.evaluation._evaluate import Setting
    from mlgo_gym.evaluation._programs import ProgramScores
    from mlgo_gym.problems._policy import PolicyLike


def count_workloads(corpora: Mapping[str, Corpus], names: Sequence[str] = ()) -> int:
    """How many there are; those of these names, if any are named."""
    from mlgo_gym.workloads import find_workloads

    return sum(len(find_workloads(each, names)) for each in corpora.values())


def measured(
    corpora: Mapping[str, Corpus],
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    meters: Sequence[str],
    output: Output,
    *,
    names: Sequence[str] = (),
) -> list[ProgramScores]:
    """Measure the programs of corpora, behind a bar of progress."""
    from mlgo_gym.evaluation._programs import measured_programs
    from mlgo_gym.workloads import meter_named

    total = count_workloads(corpora, names)
    found = measured_programs(corpora, policies, setting, list(map(meter_named, meters)), names)
    return list(output.track(found, "measuring", total))
