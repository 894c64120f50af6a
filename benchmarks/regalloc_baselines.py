"""How simple eviction policies compare with LLVM's default, over several packages.

For each package: functions that ask, the change of the total score, and of the geometric mean over
those functions; positive is worse than LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlgo_gym import Corpus, RegallocEviction
from mlgo_gym.rollout import ModuleReport, rollout
from mlgo_gym.rollout._allocation import geometric_mean_ratio

RECIPES = ("lupa", "brotli", "zstandard", "lz4", "fasttext", "libsass")
Key = tuple[str, str, str]


def run(corpora: Mapping[str, Corpus]) -> None:
    policies = {name: RegallocEviction.policy(name, 0) for name in RegallocEviction.policies}
    everything: dict[str, dict[Key, float]] = {name: {} for name in ("", *policies)}
    print(f"{'package':12} functions " + " ".join(f"{name:>22}" for name in policies))
    for package, corpus in corpora.items():
        scores: dict[str, dict[Key, float]] = {name: {} for name in ("", *policies)}
        for report in rollout(corpus, policies, RegallocEviction()):
            if not report.is_complete:
                print(f"{report.module}: {report.error or [e.error for e in report.attempts]}")
                continue
            for name, parts in of_report(report).items():
                scores[name] |= {(package, *key): score for key, score in parts.items()}
        show(package, scores)
        for name, found in scores.items():
            everything[name] |= found
    show("all", everything)


def of_report(report: ModuleReport) -> dict[str, dict[tuple[str, str], float]]:
    """The scores of the functions that ask: LLVM's as "", and each policy's."""
    results = {each.policy: each.result for each in report.attempts if each.result}
    parts = {name: report.measure.parts(result) for name, result in results.items()}
    is_asked = any(result.decisions for result in results.values())
    asked = {name for found in parts.values() for name in found} if is_asked else set[str]()
    if report.baseline is not None:
        parts[""] = report.measure.parts(report.baseline)
    return {
        name: {(report.module, key): found[key] for key in asked} for name, found in parts.items()
    }


def show(package: str, scores: Mapping[str, Mapping[Key, float]]) -> None:
    cells = []
    baseline = scores[""]
    for name, found in scores.items():
        if name:
            total = sum(found.values()) / (sum(baseline.values()) or 1)
            mean = geometric_mean_ratio(found, baseline)
            cells.append(f"{100 * total - 100:+8.1f} % ({100 * mean.ratio - 100:+6.1f} %)")
    zeros = sum(not score for score in baseline.values())
    print(f"{package:12} {len(baseline):6} ({zeros} of score 0) " + " ".join(cells), flush=True)
