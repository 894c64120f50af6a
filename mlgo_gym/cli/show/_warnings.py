"""What went wrong with modules, and what the embedded compiler leaves out of their commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mlgo_gym.cli.show._output import Output
from mlgo_gym.rollout._rollout import ModuleReport


def warn_of_failures(reports: Sequence[ModuleReport], output: Output) -> int:
    """Name what is not honoured, and every module that failed; where one did, the status is 1."""
    warn_of_not_honoured(count_not_honoured(each.not_honoured for each in reports), output)
    errors = []
    for report in reports:
        errors += [report.error] if report.error else []
        errors += [f"policy {each.policy}: {each.error}" for each in report.attempts if each.error]
    return warn_of(errors, output)


def warn_of(errors: Iterable[str], output: Output) -> int:
    """One line for each error; where there is one, the status is 1."""
    status = 0
    for error in errors:
        output.warn(error)
        status = 1
    return status


def count_not_honoured(modules: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """In how many modules each option is not honoured, from what is not in each."""
    return dict(Counter(entry for module in modules for entry in module))


def warn_of_not_honoured(counts: Mapping[str, int], output: Output) -> None:
    """One line for each option."""
    for entry, modules in counts.items():
        output.warn(f"not honoured in {modules} module{'s' * (modules > 1)}: {entry}")
