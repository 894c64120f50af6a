"""The table: verified submissions to a suite, ranked, as a page and as numbers.

::

    table.md       the page
    table.json     the same as numbers
    best.json      the best values that are known, for the next table
    profile.png    performance profiles, where matplotlib is installed

Scores are float64 ``[seeds, packages]``; more is better. The definitions are those of Agarwal et
al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021), with
packages as tasks: performance profiles and the probability of improvement.
Intervals say what would come of other packages of this kind and of other seeds: packages are drawn
first, with replacement, and then for each of them as many seeds as there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from corpus_tools.reading import Shape, brief, shaped
from mlgo_gym import __version__
from mlgo_gym.base import BenchmarkError, write_atomically, write_json
from mlgo_gym.evaluation import LEVEL, RESAMPLES, new_figure, plot_label
from mlgo_gym.lab.bench._suite import BEST, PLAIN, Suite, json_of, of_track
from mlgo_gym.lab.bench._suite_runs import VERIFIED, Card, Submission
from mlgo_gym.llvm import embedded_version
from mlgo_gym.rollout import BASELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Array = NDArray[Any]

_SCORE, _BETTER = "normalised score", "better than the baseline"  # columns that are no measures
_LEGEND: Final = (
    "Changes are in per cent against {baseline}, means of packages; "
    "scores are 0 for that heuristic and 100 for the best known. Brackets are 95 % bootstrap "
    "intervals over packages and seeds."
)

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>|~&#!]")

_BEST: Final[Shape] = {
    "suite_sha256": str,
    "version": int,
    "values": {"*": {"*": {"*": float}}},
}

_MOST: Final = 10
"""So many of the best are drawn: as many colours as can be told apart."""


def mean(scores: _Array) -> float:
    """The mean over packages of the means over seeds."""
    return float(scores.mean(axis=0).mean())


def probability_of_improvement(scores: _Array, others: _Array) -> float:
    """How likely a run is better than another's on the same package; equal ones count half.

    >>> probability_of_improvement(np.array([[1.0, 2.0]]), np.array([[0.0, 2.0]]))
    0.75
    """
    mine, theirs = scores[:, None, :], others[None, :, :]
    better = (mine > theirs) + 0.5 * (mine == theirs)
    return float(better.mean(axis=(0, 1)).mean())


def performance_profile(scores: _Array, thresholds: _Array) -> _Array:
    """The share of runs whose score is above each threshold: float64 ``[thresholds]``.

    >>> performance_profile(np.array([[1.0, 3.0]]), np.array([0.0, 2.0, 4.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.asarray((scores[None] > thresholds[:, None, None]).mean(axis=(1, 2)))


def bootstrap(
    scores: _Array,
    statistic: Callable[[_Array], float],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """The middle 95 % of a statistic over samples of packages and seeds.

    ``None`` of one package and one seed, of which nothing else can be drawn.
    """
    seeds, packages = scores.shape
    if scores.size <= 1:
        return None
    generator = np.random.default_rng(seed)
    found = np.empty(resamples)
    for index in range(resamples):
        drawn = generator.integers(packages, size=packages)
        runs = generator.integers(seeds, size=(seeds, packages))
        found[index] = statistic(scores[runs, drawn])
    low, high = np.percentile(found, LEVEL)
    return float(low), float(high)


_Best = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number and its 95 % interval, if it has one."""

    value: float
    interval: tuple[float, float] | None

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
        improvement: how likely it is better than LLVM's own heuristic on a package, by track.
    """

    card: Card
    changes: Mapping[str, Mapping[str, Statistic]]
    score: Mapping[str, Statistic]
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
        BenchmarkError: it is no folder, or two have the same name.
    """
    if not folder.is_dir():
        raise BenchmarkError(f"submissions: expected a folder, found none at {str(folder)!r}")
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
        _LEGEND.format(baseline=suite.traits.baseline),
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
        changes[track] = {measure: _mean(each) for measure, each in shares.items()}
        main = suite.measures[0]
        scores[track] = _normalised(card, track, main, best)
        improvement[track] = probability_of_improvement(
            -shares[main], np.zeros_like(shares[main][:1])
        )
    score = {track: _mean(each) for track, each in scores.items()}
    return Row(card, changes, score, improvement, scores)


def _mean(scores: _Array) -> Statistic:
    return Statistic(mean(scores), bootstrap(scores, mean)) if scores.size else Statistic(0.0, None)


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
                **{key: getattr(row.card, key) for key in ("name", "authors", "about", "url")},
                "seeds": list(row.card.seeds),
                "score": {track: asdict(each) for track, each in row.score.items()},
                "better_than_llvm": dict(row.improvement),
                "changes": {
                    track: {measure: asdict(each) for measure, each in measures.items()}
                    for track, measures in row.changes.items()
                },
                "scores": {track: each.tolist() for track, each in row.scores.items()},
            }
            for row in made.rows
        ],
    }


def profile_figure(made: Table) -> Figure:
    """Draw the performance profiles of a table's first submissions."""
    thresholds, shares = profiles(made)
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    for name in list(shares)[:_MOST]:
        axes.step(thresholds, shares[name], where="post", label=plot_label(name))
    axes.axvline(0, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlabel(f"normalised score (0: {made.suite.traits.baseline}, 100: the best known)")
    axes.set_ylabel("share of runs above it")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure
