"""``mlgo-gym corpus stats``: what is in corpora."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._grid import Grid, amount
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import ModuleKey, Packages, language_of
from mlgo_gym.problems import InliningForSize

if TYPE_CHECKING:
    from mlgo_gym.curation import ModuleFacts
    from mlgo_gym.rollout import ModuleReport

DESCRIPTION = (
    "Compile corpora with LLVM's default and count what is in them. Decisions are those of LLVM's "
    "own inliner; under a model there may be more or fewer."
)
EXAMPLE = "mlgo-gym corpus stats --corpus corpora/lupa"

_NO_PROFILE: Final = "none"
_NAMED_PROFILE: Final = "named in the command, not in the bitcode"

_SIZES: Final = {
    "modules": "modules",
    "compiled_modules": "compiled",
    "bitcode_bytes": "bitcode, bytes",
    "text_size_bytes": "text, bytes",
    "decisions": "LLVM's decisions",
    "asking_modules": "that ask",
}
_CODE: Final = {
    "functions": "functions",
    "header_functions": "of headers",
    "instructions": "instructions",
    "header_instructions": "of headers",
}
_PROFILES: Final = {
    "modules": "modules",
    "functions": "functions",
    "functions_with_counts": "counted",
    "hot_functions": "hot",
    "cold_functions": "cold",
}


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    packages = shared.packages_of(options)
    problem = shared.make_problem(InliningForSize, options)
    policies = {problem.default_policy: problem.policy()}
    reports = list(shared.rolled_out(packages, policies, problem, options, output))
    facts = _facts(packages, options, output)
    modules = [
        _module(packages, key, report, facts.get(key))
        for key, report in zip(packages, reports, strict=True)
    ]
    languages = sorted({each["language"] for each in modules})
    counts = [_sums(modules, "language", each, {**_SIZES, **_CODE}) for each in (*languages, None)]
    kinds = sorted({each["profile"] for each in modules})
    profiles = [_sums(modules, "profile", kind, _PROFILES) for kind in kinds]
    is_whole = counts[-1]["compiled_modules"] == len(modules)
    sizes = {key: _SIZES[key] for key in _SIZES if key != "compiled_modules" or not is_whole}
    output.print(_grid("language", counts, sizes), _grid("language", counts, _CODE))
    if any(each["profile"] != _NO_PROFILE for each in profiles):
        output.print(_grid("profile", profiles, _PROFILES))
    output.json(
        {
            "packages": {name: str(corpus.folder) for name, corpus in packages.named.items()},
            "languages": counts[:-1],
            "total": counts[-1],
            "not_honoured": Counter(each for report in reports for each in report.not_honoured),
            "profiles": profiles,
            "modules": modules,
        }
    )
    return output.warn_of_failures(reports)


def _facts(
    packages: Packages, options: argparse.Namespace, output: Output
) -> dict[ModuleKey, ModuleFacts]:
    """Return the facts of each module that LLVM can read; compilations name the others."""
    from mlgo_gym.curation import describe_modules

    found = describe_modules(packages, **shared.workers_of(options))
    tracked = output.track(found, "reading", len(packages))
    return {done.item: done.value for done in tracked if not done.error}


def _module(
    packages: Packages, key: ModuleKey, report: ModuleReport, facts: ModuleFacts | None
) -> dict[str, Any]:
    """The figures of one module; what could not be had is 0."""
    result = report.attempts[0].result if report.attempts and report.is_complete else None
    text_size = int(report.baseline.score) if report.baseline and result else 0
    return {
        "module": report.module,
        "language": language_of(packages[key]),
        "modules": 1,
        "compiled_modules": int(bool(result)),
        "bitcode_bytes": packages.size_bytes(key),
        "text_size_bytes": text_size,
        "decisions": result.decisions if result else 0,
        "asking_modules": int(bool(result and result.decisions)),
    } | _code(facts)


def _code(facts: ModuleFacts | None) -> dict[str, Any]:
    bodies = facts.bodies if facts else ()
    shared = [body.instructions for body in bodies if not body.is_own]
    profile = facts.profile if facts else None
    lacks = facts is not None and facts.lacks_named_profile
    return {
        "functions": len(bodies),
        "header_functions": len(shared),
        "instructions": sum(body.instructions for body in bodies),
        "header_instructions": sum(shared),
        "profile": _NAMED_PROFILE if lacks else (profile and profile.kind) or _NO_PROFILE,
        "profile_path": facts.profile_path if facts else None,
        "functions_with_counts": profile.functions_with_counts if profile else 0,
        "hot_functions": profile.hot_functions if profile else 0,
        "cold_functions": profile.cold_functions if profile else 0,
    }


def _sums(
    modules: Sequence[Mapping[str, Any]], field: str, value: str | None, keys: Iterable[str]
) -> dict[str, Any]:
    """Sums over the modules where a field has this value; ``None`` takes all."""
    chosen = [each for each in modules if value in {None, each[field]}]
    return {field: value} | {key: sum(each[key] for each in chosen) for key in keys}


def _grid(first: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Grid:
    cells = [[row[first] or "total", *(amount(row[key]) for key in columns)] for row in rows]
    return Grid((first, *columns.values()), cells, folds=True)
