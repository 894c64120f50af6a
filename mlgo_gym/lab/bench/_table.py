"""The table: verified submissions to a suite, ranked, as a page and as numbers.

::

    table.md       the page
    table.json     the same as numbers
    best.json      the best values that are known, for the next table
    profile.png    performance profiles, where matplotlib is installed
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from corpus_tools.reading import Shape, brief, shaped
from mlgo_gym import __version__
from mlgo_gym.base import BenchmarkError, write_atomically, write_json
from mlgo_gym.lab.bench._seed_statistics import (
    bootstrap,
    interquartile_mean,
    mean,
    performance_profile,
    probability_of_improvement,
)
from mlgo_gym.lab.bench._submission import VERIFIED, Card, Submission
from mlgo_gym.lab.bench._suite import BEST, PLAIN, Suite, json_of, of_track
from mlgo_gym.llvm import embedded_version
from mlgo_gym.rollout import BASELINE

_SCORE, _BETTER = "normalised score", "better than the baseline"  # columns that are no measures
_LEGEND: Final = (
    "Changes are in per cent against {baseline}, means of packages; "
    "scores are 0 for that heuristic and 100 for the best known. Brackets are 95 % bootstrap "
    "intervals over packages and seeds."
)

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>|~&#!]")

_Array = NDArray[Any]
_BEST: Final[Shape] = {
    "suite_sha256": str,
    "version": int,
    "values": {"*": {"*": {"*": float}}},
}
_Best = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number and its 95 % interval, if it has one."""

    value: float
    interval: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {"value": self.value, "interval": self.interval}

    def text(self, scale: float, digits: int) -> str:
        """Return it for people."""
        made = f"{scale * self.value:+.{digits}f}"
        if self.interval is None:
            return made
        low, high = (f"{scale * each:+.{digits}f}" for each in self.interval)
        return f"{made} [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class Row:
    """A submission in the table.

    Attributes:
        changes: against LLVM's own on the plain track, as a share: by track, then by measure.
        score: the normalised score by track: 0 is LLVM's own heuristic, 100 the best known.
        iqm: the interquartile mean of the same.
        improvement: how likely it is better than LLVM's own heuristic on a package, by track.
    """

    card: Card
    changes: Mapping[str, Mapping[str, Statistic]]
    score: Mapping[str, Statistic]
    iqm: Mapping[str, Statistic]
    improvement: Mapping[str, float]
    scores: Mapping[str, _Array]


@dataclass(frozen=True, slots=True)
class Table:
    """The rows, the best first, and the best values that are known."""

    suite: Suite
    rows: tuple[Row, ...]
    best: _Best
    best_version: int


def verified(path: Path, submission: Submission, suite: Suite) -> None:
    """Leave word beside a submission that it was verified."""
    about = {
        "submission_sha256": submission.sha256,
        "suite_sha256": suite.sha256,
        "llvm_version": embedded_version(),
        "mlgo_gym": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(path.with_name(path.name + VERIFIED), about)


def verified_submissions(
    folder: Path, suite: Suite
) -> tuple[dict[Path, Submission], dict[Path, str]]:
    """The submissions of a folder to a suite that were verified, and why others are left out.

    Raises:
        BenchmarkError: two have the same name.
    """
    found: dict[Path, Submission] = {}
    left: dict[Path, str] = {}
    names: dict[str, Path] = {}
    for path in sorted(folder.glob("*.zip")):
        try:
            submission = Submission.load(path)
        except BenchmarkError as error:
            left[path] = str(error)
            continue
        if submission.card.suite != suite.name:
            left[path] = f"it is of the suite {submission.card.suite}"
            continue
        record = _record(path)
        expected = {"submission_sha256": submission.sha256, "suite_sha256": suite.sha256}
        if {key: record.get(key) for key in expected} != expected:
            left[path] = "it was not verified as it is now: 'mlgo-gym bench verify'"
            continue
        name = submission.card.name
        if not name:
            left[path] = "it has no name: 'mlgo-gym bench submit'"
            continue
        if name in names:
            raise BenchmarkError(
                f"{path}: name: expected one of its own, found {name!r}, which {names[name]} has"
            )
        names[name], found[path] = path, submission
    return found, left


def table(suite: Suite, cards: Sequence[Card], earlier: Mapping[str, Any] | None = None) -> Table:
    """Compare submissions.

    Args:
        suite: what they are of.
        cards: of submissions that were verified.
        earlier: the best values of an earlier table (`best_json`).

    Raises:
        BenchmarkError: there are none, or the best values are of another suite.

    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.lab.bench import run, sample_suite
    >>> with sample_suite(["digest.c"]) as suite:
    ...     made = run(suite, {"0": InliningForSize.policy("default")})
    ...     row, = table(suite, [made.card]).rows
    >>> row.changes["plain"]["icf"].text(100, 2)
    '+0.00'
    """
    if not cards:
        raise BenchmarkError(f"suite {suite.name}: expected verified submissions, found none")
    version, best = _known_best(suite, earlier)
    found = _best_of(cards, best)
    version += found != best
    rows = [_row(suite, card, found) for card in cards]
    main = next(iter(rows[0].score))
    rows.sort(key=lambda row: -row.score[main].value)
    return Table(suite, tuple(rows), found, version)


def best_json(made: Table) -> dict[str, Any]:
    """The best values that are known, for the next table."""
    return {"version": made.best_version, "suite_sha256": made.suite.sha256, "values": made.best}


def write_table(made: Table, folder: Path) -> None:
    """Write all files of a table but the picture into a folder, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "table.md", page(made).encode())
    write_json(folder / "table.json", table_json(made))
    write_json(folder / "best.json", best_json(made))


def profiles(made: Table) -> tuple[_Array, dict[str, _Array]]:
    """The thresholds, and the share of runs above each, by submission."""
    track = made.suite.scored_tracks[0]
    thresholds = np.linspace(-100, 100, 201)
    return thresholds, {
        row.card.name: performance_profile(row.scores[track], thresholds) for row in made.rows
    }


def page(made: Table) -> str:
    """The table in Markdown."""
    suite = made.suite
    titles = _titles(suite)
    lines = [
        f"# {suite.name}",
        "",
        _plain(suite.about),
        f"LLVM {suite.llvm_version}; packages: {len(suite.packages)}.",
        f"Best known values: version {made.best_version}.",
        "",
        f"| | seeds | {' | '.join(titles.values())} |",
        f"|---|--:|{'--:|' * len(titles)}",
    ]
    for row in made.rows:
        cells = _cells(row, titles)
        name = _plain(row.card.name)
        name = f"[{name}]({row.card.url})" if row.card.url else name
        lines.append(f"| {name} | {len(row.card.seeds)} | {' | '.join(cells)} |")
    lines += [
        "",
        _LEGEND.format(baseline=suite.baseline),
        "",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return a text of others so that Markdown shows it as it is."""
    return _MARKUP.sub(r"\\\g<0>", text)


def _titles(suite: Suite) -> dict[tuple[str, str], str]:
    """The columns: by track, and measure or other number."""
    tracks = suite.scored_tracks
    first = {(track, _SCORE): of_track("score", track) for track in tracks}
    rest = {each: f"{of_track(each[1], each[0])}, %" for each in suite.columns}
    return first | {(tracks[0], _BETTER): f"better than {suite.traits.rival}"} | rest


def _cells(row: Row, titles: Mapping[tuple[str, str], str]) -> list[str]:
    cells = []
    for track, what in titles:
        if what == _SCORE:
            cells.append(row.score[track].text(1, 1))
        elif what == _BETTER:
            cells.append(f"{row.improvement[track]:.2f}")
        else:
            cells.append(row.changes[track][what].text(100, 2))
    return cells


def _row(suite: Suite, card: Card, best: _Best) -> Row:
    changes: dict[str, dict[str, Statistic]] = {}
    scores: dict[str, _Array] = {}
    improvement = {}
    for track in suite.scored_tracks:
        shares = {measure: changes_of(card, track, measure) for measure in suite.measures}
        changes[track] = {measure: _statistic(each, mean) for measure, each in shares.items()}
        main = suite.measures[0]
        scores[track] = _normalised(card, track, main, best)
        improvement[track] = probability_of_improvement(
            -shares[main], np.zeros_like(shares[main][:1])
        )
    score = {track: _statistic(each, mean) for track, each in scores.items()}
    iqm = {track: _statistic(each, interquartile_mean) for track, each in scores.items()}
    return Row(card, changes, score, iqm, improvement, scores)


def _statistic(scores: _Array, statistic: Any) -> Statistic:
    if not scores.size:
        return Statistic(0.0, None)
    return Statistic(statistic(scores), bootstrap(scores, statistic))


def _reference(card: Card) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    return card.values.get(PLAIN) or next(iter(card.values.values()))


def changes_of(card: Card, track: str, measure: str) -> _Array:
    """The change against LLVM's own on the plain track, as a share: float64 ``[seeds, packages]``.

    Args:
        card: of a submission.
        track: whose numbers are compared.
        measure: one of the suite's.
    """
    reference = _reference(card)
    packages = card.values[track]
    return np.array(
        [
            [
                packages[package][seed][measure] / reference[package][BASELINE][measure] - 1
                for package in packages
            ]
            for seed in card.seeds
        ]
    )


def _normalised(card: Card, track: str, measure: str, best: _Best) -> _Array:
    """0 for LLVM's own, 100 for the best known; packages that nobody made better are left out."""
    reference = _reference(card)
    rows = []
    for seed in card.seeds:
        row = []
        for package, values in card.values[track].items():
            own, least = reference[package][BASELINE][measure], best[track][package][measure]
            if least < own:
                row.append(100 * (own - values[seed][measure]) / (own - least))
        rows.append(row)
    return np.array(rows, float)


def _best_of(cards: Sequence[Card], known: _Best) -> _Best:
    found: dict[str, dict[str, dict[str, float]]] = {
        track: {package: dict(values) for package, values in packages.items()}
        for track, packages in known.items()
    }
    for card in cards:
        for track, packages in card.values.items():
            for package, values in packages.items():
                best = found.setdefault(track, {}).setdefault(package, {})
                for name in (BASELINE, BEST, *card.seeds):
                    for measure, value in values.get(name, {}).items():
                        best[measure] = min(best.get(measure, value), value)
    return found


def known_best(path: Path) -> Mapping[str, Any]:
    """The best values that an earlier table has written."""
    value = json_of(path)
    try:
        return dict(shaped(value, _BEST))
    except ValueError as error:
        raise BenchmarkError(f"{path}: expected best values of a table: {error}") from error


def _known_best(suite: Suite, known: Mapping[str, Any] | None) -> tuple[int, _Best]:
    if known is None:
        return 0, {}
    if known.get("suite_sha256") != suite.sha256 or not isinstance(known.get("version"), int):
        found = brief(known.get("suite_sha256"))
        raise BenchmarkError(
            f"best known values: suite_sha256: expected {suite.sha256[:12]}, found {found}"
        )
    return known["version"], known["values"]


def _record(path: Path) -> dict[str, Any]:
    try:
        value = json_of(path.with_name(path.name + VERIFIED))
    except BenchmarkError:
        return {}
    return value if isinstance(value, dict) else {}


def table_json(made: Table) -> dict[str, Any]:
    """The table as numbers."""
    return {
        "suite": made.suite.name,
        "suite_sha256": made.suite.sha256,
        "best_version": made.best_version,
        "submissions": [
            {
                "name": row.card.name,
                "authors": row.card.authors,
                "about": row.card.about,
                "url": row.card.url,
                "seeds": list(row.card.seeds),
                "score": {track: each.to_json() for track, each in row.score.items()},
                "iqm": {track: each.to_json() for track, each in row.iqm.items()},
                "better_than_llvm": dict(row.improvement),
                "changes": {
                    track: {measure: each.to_json() for measure, each in measures.items()}
                    for track, measures in row.changes.items()
                },
                "scores": {track: each.tolist() for track, each in row.scores.items()},
            }
            for row in made.rows
        ],
    }
