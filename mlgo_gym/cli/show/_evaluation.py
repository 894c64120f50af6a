"""An evaluation as grids: on a terminal of 80 columns, and all of it on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mlgo_gym.cli.show._grid import Cell, Grid, Row, amount, change, ratio
from mlgo_gym.cli.show._page import as_page
from mlgo_gym.evaluation import ModuleScores, RelativeChange, Scored, Statistic
from mlgo_gym.rollout import BASELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_WORSE: Final = 20
_POLICIES_A_TABLE: Final = 3
_STATISTICS_A_TABLE: Final = 2


def evaluation_tables(scored: Scored, *, modules: bool) -> Iterator[Grid | str]:
    """Return the tables of an evaluation; with modules, every module has a row as well."""
    if not scored.modules:
        yield "No module was compiled under every policy."
        return
    languages = _languages(scored) if len(scored.languages) > 1 else {}
    totals = [each for each in scored.statistics() if not each.is_mean]
    yield _groups("LLVM's default", languages, scored, totals, ())
    statistics = [each for each in scored.statistics() if not each.is_minor]
    for start in range(0, len(statistics), _STATISTICS_A_TABLE):
        yield _changes(languages, scored, statistics[start : start + _STATISTICS_A_TABLE])
    yield (
        "Change against LLVM's default, negative is better; [95 % intervals] by bootstrap over "
        "packages and their modules."
    )
    for start in range(0, len(scored.policies), _POLICIES_A_TABLE):
        policies = scored.policies[start : start + _POLICIES_A_TABLE]
        if len(scored.packages) > 1:
            yield _groups("package", _packages(scored), scored, [scored.main_statistic], policies)
        if modules:
            yield _modules(scored, [scored.module_statistic], policies)
    for policy in scored.policies:
        yield _count_worse(scored, policy)
        if worse := _worse(scored, policy, _SHOWN_WORSE):
            yield worse
        if (more := len(scored.worse(policy)) - _SHOWN_WORSE) > 0:
            yield f"and {more} more; --json has all."


def evaluation_page(scored: Scored, plots: Mapping[str, Figure]) -> bytes:
    """The page: totals, packages and modules, with the plots of these names in it."""
    first = scored.modules[0]
    introduction = (
        f"{', '.join(scored.policies)} against LLVM {first.llvm_version}'s own heuristic "
        f"({first.settings['problem']}): {len(scored.modules)} modules of {len(scored.packages)} "
        "packages. Changes are shares of LLVM's value, negative is better; in brackets 95 % "
        "bootstrap intervals over packages and their modules. Linked text counts each COMDAT "
        "group once in a package; a module's part of it is shared by the modules that have the "
        "group. Click a heading to sort."
    )
    statistics, policies = scored.statistics(), scored.policies
    totals = [each for each in statistics if not each.is_mean]
    languages, packages = (
        _groups(kind, parts, scored, statistics, policies, with_intervals=True)
        for kind, parts in (("language", _languages(scored)), ("package", _packages(scored)))
    )
    modules = _modules(scored, totals, policies, is_full=True)
    sections: list[tuple[str, list[Grid | Figure | str]]] = [
        (title, [*([plots[title.lower()]] if title.lower() in plots else []), grid])
        for title, grid in (("Totals", languages), ("Packages", packages), ("Modules", modules))
    ]
    for policy in policies:
        worse = _worse(scored, policy)
        text = _count_worse(scored, policy)
        sections.append((f"Modules that {policy} makes worse", [text, *([worse] if worse else [])]))
    return as_page("Evaluation against LLVM's default", introduction, sections)


def _languages(scored: Scored) -> dict[str, Scored]:
    return {name: scored.of_language(name) for name in scored.languages}


def _packages(scored: Scored) -> dict[str, Scored]:
    return {name: scored.of_package(name) for name in scored.packages}


def _groups(
    first: str,
    groups: Mapping[str, Scored],
    total: Scored,
    statistics: Sequence[Statistic],
    policies: Sequence[str],
    *,
    with_intervals: bool = False,
) -> Grid:
    """Groups of modules: LLVM's totals, or how many ratios means are of, and the changes."""
    has_many = any(len(each.packages) > 1 for each in groups.values() or [total])

    def row(name: str, group: Scored) -> Row:
        made: Row = [name, *([str(len(group.packages))] if has_many else [])]
        made.append(str(len(group.modules)))
        for statistic in statistics:
            made.append(amount(group.baseline(statistic)))
            for policy in policies:
                found = group.change(statistic, policy)
                made.append(_with_interval(found) if with_intervals else change(found.value))
        return made

    counts = ("packages", "modules") if has_many else ("modules",)
    headings = (_first(first, statistics, policies), *counts)
    rows: list[Row] = [row(name, group) for name, group in groups.items()]
    return Grid((*headings, *_headings(statistics, policies)), rows, row("total", total))


def _changes(
    languages: Mapping[str, Scored], total: Scored, statistics: Sequence[Statistic]
) -> Grid:
    """A row for each policy, and below it one for each language."""
    rows: list[Row] = [
        [name, *(_with_interval(group.change(each, policy)) for each in statistics)]
        for policy in total.policies
        for name, group in (
            (policy, total),
            *((f"  {language}", each) for language, each in languages.items()),
        )
    ]
    return Grid(("change of", *(each.title for each in statistics)), rows, folds=True)


def _modules(
    scored: Scored,
    statistics: Sequence[Statistic],
    policies: Sequence[str],
    *,
    is_full: bool = False,
) -> Grid:
    """Every module by its own text or score; in full, with its language and all that is known."""
    asked = policies if is_full else policies[:1]
    headings = [_first("module", statistics, policies), *(["language"] if is_full else [])]
    headings += [f"decisions, {each}" for each in asked] if is_full else ["decisions"]
    headings += _headings(statistics, policies)
    values = [
        (scored.values(each.key, BASELINE), [scored.values(each.key, name) for name in policies])
        for each in statistics
    ]
    rows: list[Row] = []
    for place, scores in enumerate(scored.modules):
        row: Row = [_name(scored, scores), *([scores.language] if is_full else [])]
        row += [amount(scores.decisions[each]) for each in asked]
        for baselines, columns in values:
            row.append(amount(baselines[place]))
            row += [ratio(each[place], baselines[place]) for each in columns]
        rows.append(row)
    return Grid(headings, rows)


def _count_worse(scored: Scored, policy: str) -> str:
    worse, modules = len(scored.worse(policy)), _counted(len(scored.modules), "module")
    unit = " and 64 bytes" if scored.modules[0].code else ""
    return f"{policy}: {worse} of {modules} worse by more than 1 %{unit}{':' if worse else '.'}"


def _worse(scored: Scored, policy: str, most: int | None = None) -> Grid | None:
    """Return a table of the modules that got worse under a policy, the worst first."""
    rows: list[Row] = [
        [
            _name(scored, each.scores),
            amount(each.baseline),
            amount(each.value),
            amount(each.value - each.baseline),
            ratio(each.value, each.baseline),
        ]
        for each in scored.worse(policy)[:most]
    ]
    return Grid(("worse", BASELINE, policy, "more", "change"), rows) if rows else None


def _first(name: str, statistics: Sequence[Statistic], policies: Sequence[str]) -> str:
    """The first heading, which names the one statistic that changes are of."""
    return f"{name}: {statistics[0].title}" if policies and len(statistics) == 1 else name


def _headings(statistics: Sequence[Statistic], policies: Sequence[str]) -> Iterator[str]:
    for statistic in statistics:
        if not policies:
            yield statistic.title
            continue
        before = f"{statistic.title}, " if len(statistics) > 1 else ""
        yield f"{before}{'ratios' if statistic.is_mean else BASELINE}"
        yield from (f"{before}{policy}" for policy in policies)


def _with_interval(found: RelativeChange) -> Cell:
    return change(found.value, found.interval)


def _name(scored: Scored, scores: ModuleScores) -> str:
    """The module's name, with its package's where there are several and it does not say."""
    is_clear = len(scored.packages) == 1 or scores.module.startswith(f"{scores.package}/")
    return scores.module if is_clear else f"{scores.package}/{scores.module}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
