"""An evaluation as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mlgo_gym.cli.show._comparison import cut, short_names
from mlgo_gym.evaluation._scores import BASELINE
from mlgo_gym.evaluation._summary import Change, Scored, Statistic
from mlgo_gym.evaluation._timing import TimeChange

_SHOWN_WORSE: Final = 20
_POLICIES_A_TABLE: Final = 3
_STATISTICS_A_TABLE: Final = 2
_SHORTEST_NAME: Final = 12
_TOTAL: Final = "total"
_ZERO_BAND: Final = 0.00005
_LARGE: Final = 0.1


def all_tables(scored: Scored, width: int, *, modules: bool) -> Iterator[RenderableType]:
    """Everything that is printed.

    Args:
        scored: the evaluation.
        width: of the screen, in characters.
        modules: every module has a row, too.
    """
    if not scored.modules:
        yield "No module was compiled under every policy."
        return
    groups = _groups(scored)
    yield _corpus(groups)
    statistics = [each for each in scored.statistics() if not each.is_minor]
    for start in range(0, len(statistics), _STATISTICS_A_TABLE):
        yield _changes(groups, statistics[start : start + _STATISTICS_A_TABLE])
    yield (
        "Change against LLVM's default, negative is better; [95 % intervals] by bootstrap over "
        "packages and their modules."
    )
    for policies in _few(scored.policies):
        yield from _packages(scored, policies, width)
        if modules:
            yield _modules(scored, policies, width)
    yield from _worse(scored, width)
    yield from _oracle(scored)


def time_table(changes: Mapping[str, TimeChange]) -> Iterator[RenderableType]:
    """How long compiling takes under each policy, where that was measured."""
    if not changes:
        return
    table = _right("time of", "seconds", "in total", "median of modules")
    for name, each in changes.items():
        median = Text(percent(each.median))
        table.add_row(name, f"{each.seconds:,.1f}", _with_interval(each.total), median)
    yield table
    yield "Time to compile against LLVM's default, the two alternating in one worker."


def percent(change: float) -> str:
    """A change as text, such as ``-1.25 %``; a large one has one digit less."""
    return f"{_number(change)} %"


def _groups(scored: Scored) -> dict[str, Scored]:
    groups = {_TOTAL: scored}
    if len(scored.languages) > 1:
        for language in scored.languages:
            groups[language] = scored.of_language(language)
    return groups


def _corpus(groups: dict[str, Scored]) -> Table:
    totals = [each for each in groups[_TOTAL].statistics() if not each.is_mean]
    table = _right("LLVM's default", "packages", "modules", *(each.title for each in totals))
    for name, group in groups.items():
        sums = (f"{group.baseline(each):,.0f}" for each in totals)
        table.add_row(name, str(len(group.packages)), str(len(group.modules)), *sums)
    return table


def _changes(groups: dict[str, Scored], statistics: Sequence[Statistic]) -> Table:
    table = _right("change of", *(each.title for each in statistics))
    for policy in groups[_TOTAL].policies:
        for name, group in groups.items():
            cells = (_with_interval(group.change(each, policy)) for each in statistics)
            table.add_row(policy if name == _TOTAL else f"  {name}", *cells)
    return table


def _packages(scored: Scored, policies: Sequence[str], width: int) -> Iterator[Table]:
    """The packages by what policies are to be compared by first."""
    if len(scored.packages) == 1:
        return
    statistic = scored.main_statistic
    amount = "functions" if statistic.is_mean else BASELINE
    table = _right(f"package: {statistic.title}", "modules", amount, *policies)
    names = _fitting(scored.packages, width, policies)
    for package, shown in names.items():
        group = scored.of_package(package)
        changes = (_styled(group.change(statistic, each).value) for each in policies)
        table.add_row(shown, str(len(group.modules)), f"{group.baseline(statistic):,.0f}", *changes)
    yield table


def _modules(scored: Scored, policies: Sequence[str], width: int) -> Table:
    """Every module, by its own text or score."""
    statistic = scored.module_statistic
    table = _right(f"module: {statistic.title}", "decisions", BASELINE, *policies)
    several = len(scored.packages) > 1
    names = [
        _name(each.package, each.module) if several else each.module for each in scored.modules
    ]
    shown = _fitting(names, width, policies)
    baselines = scored.values(statistic.key, BASELINE)
    columns = [scored.values(statistic.key, each) for each in policies]
    for name, scores, baseline, *values in zip(
        names, scored.modules, baselines, *columns, strict=True
    ):
        changes = (_styled(each / baseline - 1 if baseline else 0.0) for each in values)
        asked = f"{scores.decisions[policies[0]]:,}"
        table.add_row(shown[name], asked, f"{baseline:,.0f}", *changes)
    return table


def _worse(scored: Scored, width: int) -> Iterator[RenderableType]:
    """What got worse under each policy; the first of them by name."""
    for policy in scored.policies:
        worse = scored.worse(policy)
        unit = " and 64 bytes" if scored.modules[0].code else ""
        yield (
            f"{policy}: {len(worse)} of {_counted(len(scored.modules), 'module')} worse by more "
            f"than 1 %{unit}{'.' if not worse else ':'}"
        )
        if not worse:
            continue
        table = _right("worse", BASELINE, policy, "change")
        shown = worse[:_SHOWN_WORSE]
        names = _fitting([_name(each.scores.package, each.scores.module) for each in shown], width)
        for each, name in zip(shown, names.values(), strict=True):
            change = each.value / each.baseline - 1 if each.baseline else 0.0
            table.add_row(name, f"{each.baseline:,.0f}", f"{each.value:,.0f}", _styled(change))
        yield table
        if left := len(worse) - len(shown):
            yield f"and {left} more; --json has all."


def _oracle(scored: Scored) -> Iterator[RenderableType]:
    searched = scored.searched()
    if not searched.modules:
        return
    text = next(each for each in searched.statistics() if each.key == "text")
    baseline = searched.baseline(text)
    found = sum(each.oracle_text_bytes or 0 for each in searched.modules)
    table = _right(f"{_counted(len(searched.modules), 'module')} with traces", "text", "change")
    table.add_row(BASELINE, f"{baseline:,.0f}", "")
    for policy in searched.policies:
        change = _styled(searched.change(text, policy).value)
        table.add_row(policy, f"{searched.total(text, policy):,.0f}", change)
    change = _styled(found / baseline - 1 if baseline else 0.0)
    table.add_row("search oracle", f"{found:,}", change)
    yield table


def _with_interval(change: Change) -> Text:
    text = _styled(change.value)
    if change.interval:
        low, high = (_number(each) for each in change.interval)
        text.append(f" [{low}, {high}]", style="dim")
    return text


def _number(change: float) -> str:
    if abs(change) < _ZERO_BAND:
        return "0.00"
    return f"{100 * change:+.{1 if abs(change) >= _LARGE else 2}f}"


def _styled(change: float) -> Text:
    text = percent(change)
    return Text(text, style={"+": "red", "-": "green"}.get(text[0], ""))


def _right(first: str, *others: str) -> Table:
    table = Table()
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _few(policies: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many policies at a time as a table has room for."""
    for start in range(0, len(policies), _POLICIES_A_TABLE):
        yield policies[start : start + _POLICIES_A_TABLE]


def _fitting(names: Sequence[str], width: int, policies: Sequence[str] = ("",)) -> dict[str, str]:
    """Names without the folders that all have, and cut where they would make a table too wide."""
    taken = 2 * len("│ 1,000,000 ") + sum(max(len(each), 9) + len("│  ") for each in policies)
    short = short_names(names)
    return {name: cut(short[name], max(width - taken - 4, _SHORTEST_NAME)) for name in names}


def _name(package: str, module: str) -> str:
    return module if module.startswith(f"{package}/") else f"{package}/{module}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
