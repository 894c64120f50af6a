"""``mlgo-gym bench run``: policies on a suite."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, Final

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import Output
from mlgo_gym.cli import options as shared

if TYPE_CHECKING:
    from mlgo_gym.lab.bench import Submission, Suite
    from mlgo_gym.problems import PolicyLike, Problem

_LARGE: Final = 1000

DESCRIPTION = (
    "Compile a suite plainly and under a policy, print what the linker keeps of each package, and "
    "keep every decision. Several models, or seeds of a random policy, are runs of the same thing. "
    "Without a suite it is the sample of this package."
)
EXAMPLE = "mlgo-gym bench run --model inlining-for-size"


def add_options(add: shared.Options) -> None:
    add("--suite", "DIR", "the suite's folder (default: the sample)")
    add("--policy", "NAME", "a policy's name; for suites of tiers, those of 'tiers play'")
    add.model("a model; repeat for one of each seed", modes=("release",), many=True)
    what = "a function from an observation to an answer, which this process runs"
    add("--function", "FILE:NAME", what)
    what = (
        "recorded decisions: traces of 'search', as DIR/TRACK/PACKAGE, or a submission; repeat to "
    )
    what += "take the smallest of each module"
    add("--traces", "PATH", what, many=True)
    add("--seeds", "N", "run a random policy with seeds 0 to N-1", 1)
    add.file("--output", "keep the decisions, for 'bench submit'")
    add.settings()
    add.jobs(2)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.lab.bench import open_or_sample

    ways = ("policy", "model", "function", "traces")
    given = [name for name in ways if getattr(options, name)]
    if len(given) != 1:
        found = " and ".join(f"--{name}" for name in given) or "none"
        expected = "--policy, --model, --function or --traces"
        raise OptionsError(f"bench run: expected one of {expected}, found {found}")
    with open_or_sample(options.suite) as suite:
        total = len(suite.packages) * len(suite.scored_tracks)
        with output.line() as say:
            count = iter(range(1, total + 1))
            made = _run(suite, options, lambda place: say(f"{place} ({next(count)} of {total})"))
        _show(suite, made, output)
    if options.output is not None:
        made.save(options.output)
        line = shlex.join(["mlgo-gym", "bench", "submit", str(options.output)])
        output.verbatim("To make a submission of it:", f"  {line}")
    return 0


def _run(suite: Suite, options: argparse.Namespace, progress: Any) -> Submission:
    from mlgo_gym.lab.bench import run as run_suite
    from mlgo_gym.lab.bench import run_tiers
    from mlgo_gym.runners import model_policies

    names = [str(seed) for seed in range(options.seeds)]
    if suite.traits.is_recorded:
        from mlgo_gym.lab.tiers import schedule_named

        if not options.policy:
            raise OptionsError("bench run: expected --policy for a suite of tiers, found another")
        tiers = {each: schedule_named(options.policy, int(each)) for each in names}
        return run_tiers(suite, tiers, progress=progress)
    problem = shared.make_problem(suite.problem_kind(), options)
    how: dict[str, Any] = {"jobs": options.jobs, "progress": progress}
    if options.model:
        with model_policies(
            options.model, "release", problem, (), trusted=options.trust_code
        ) as models:
            seeds = {str(seed): policy for seed, policy in enumerate(models.values())}
            return run_suite(suite, seeds, problem, **how)
    return run_suite(suite, _policies(suite, problem, options, names), problem, **how)


def _policies(
    suite: Suite, problem: Problem, options: argparse.Namespace, names: list[str]
) -> dict[str, PolicyLike]:
    from mlgo_gym.lab.bench import function_of, recorded_policy

    if options.policy:
        return {each: problem.policy(options.policy, int(each)) for each in names}
    if options.traces:
        return {"0": recorded_policy(suite, problem, options.traces)}
    return {"0": function_of(options.function)}


def _show(suite: Suite, made: Submission, output: Output) -> None:
    from mlgo_gym.cli import narrow_table
    from mlgo_gym.lab.bench import changes_of, of_track
    from mlgo_gym.rollout import BASELINE

    main, columns = suite.measures[0], suite.columns
    titles = [of_track(measure, track) for track, measure in columns]
    own = f"{suite.traits.rival} {main}"
    table = narrow_table(("package", own, *titles), right=(own, *titles))
    changes = {column: changes_of(made.card, *column) for column in columns}
    first = made.card.values[columns[0][0]]
    for place, package in enumerate(first):
        cells = [f"{100 * changes[each][:, place].mean():+.2f} %" for each in columns]
        value = first[package][BASELINE][main]
        table.add_row(package, f"{value:,.0f}" if value >= _LARGE else f"{value:.4g}", *cells)
    means = [f"{100 * changes[each].mean():+.2f} %" for each in columns]
    table.add_section()
    table.add_row("mean", "", *means)
    output.print(table)
    output.json(
        {
            "suite": suite.name,
            "seeds": list(made.card.seeds),
            "values": made.card.values,
            "mean_change": {
                f"{track}/{measure}": float(changes[track, measure].mean())
                for track, measure in columns
            },
        }
    )
