"""How commands declare options, those that several have, and what their values make.

An option is spelled alike and means the same wherever it is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from corpus_tools.command_line import whole
from mlgo_gym.base import OptionsError, read_bounded
from mlgo_gym.cli._values import TYPES, model, place
from mlgo_gym.cli._writing import OutputFile
from mlgo_gym.corpus import SAMPLE_CORPUS, SPLITS, Packages, corpus_folders

if TYPE_CHECKING:
    from mlgo_gym.cli.show._output import Output
    from mlgo_gym.corpus import Corpus
    from mlgo_gym.problems import PolicyLike, Problem
    from mlgo_gym.rollout import ModuleReport

_P = TypeVar("_P", bound="Problem")

OPT_LEVELS: Final = ("O1", "O2", "O3", "Os", "Oz", "Os+attributes", "Oz+attributes")
TIMEOUT: Final = "300s"
"""As `mlgo_gym.llvm` has them, whose import takes longer than all else; a test compares them."""

MAX_SMALL_FILE_BYTES: Final = 1 << 20
"""The largest token or certificate that is read."""

_TOKEN: Final = "MLGO_TOKEN"  # noqa: S105 - the name of a variable


class Options:
    """Adds a command's options to its parser.

    Attributes:
        traits: by which extensions know the commands that get their options.
    """

    def __init__(self, parser: argparse._ActionsContainer) -> None:
        self._parser = parser
        self.traits: Final[set[str]] = set()

    def __call__(
        self,
        names: str,
        value: str | Sequence[str],
        what: str,
        default: float | str | None = None,
        *,
        many: bool = False,
        may_hold_outputs: bool = False,
        **settings: Any,
    ) -> None:
        """Add an option, or an argument where the name has no dashes.

        Names stand with spaces between, and the default as on a command line. The value is what
        help calls it, empty where there is none, or what it must be one of. In a folder that is
        read nothing may be written, unless it may hold outputs. Further settings are those of
        `argparse.ArgumentParser.add_argument`.
        """
        made: dict[str, Any] = {"action": "append", "default": []} if many else {}
        if not value:
            made["action"] = "store_true"
        elif isinstance(value, str):
            made |= {"metavar": value, "type": TYPES.get(value, str)}
        else:
            made["choices"] = value
        if default is not None:
            made["default"] = default
            shown = (default or "none") if isinstance(default, str) else f"{default:,}"
            what = f"{what} (default: {shown})"
        action = self._parser.add_argument(
            *names.split(), **made | {"help": what.lstrip()} | settings
        )
        action.may_hold_outputs = may_hold_outputs  # type: ignore[attr-defined]

    def file(
        self, names: str, what: str, *, value: str = "FILE", required: bool = False, **checks: Any
    ) -> None:
        """Add an option for a file that the command writes; it is checked before the command runs.

        The checks are those of `OutputFile`.
        """
        self(names, value, what, type=OutputFile(**checks), required=required)

    def folder(
        self,
        names: str,
        what: str,
        default: str | None = None,
        *,
        required: bool = False,
        may_be_remote: bool = False,
        replaced_kind: str | None = None,
    ) -> None:
        """Add an option for a folder that the command writes; it is checked like a file.

        A folder that is replaced may have nothing in it that the command reads.
        """
        kind = OutputFile(is_folder=True, may_be_remote=may_be_remote, replaced_kind=replaced_kind)
        self(names, "DIR", what, default, type=kind, required=required)

    def either(self) -> Options:
        """Return a group of options of which one must be given."""
        return Options(self._parser.add_mutually_exclusive_group(required=True))

    def corpus(self) -> None:
        """``--corpus``, which may be repeated, and ``--split``."""
        what = (
            "the corpus of a package, or a folder of corpora, also as s3://BUCKET/KEY; repeat for "
            "more (default: the sample in this package)"
        )
        self("--corpus", "DIR", what, many=True, type=place)
        what = (
            "use only corpora of this split (default: all; in folders of corpora, all but 'final')"
        )
        self("--split", SPLITS, what)

    def compilation(self, *, executor: bool = False) -> None:
        """How modules are compiled, and how many at once, as `workers` says."""
        self.traits.add("compilation")
        self.opt_level()
        self.settings()
        self.workers(executor=executor)

    def opt_level(self, levels: Sequence[str] = OPT_LEVELS, default: str | None = None) -> None:
        """``--opt-level``."""
        what = f"{', '.join(levels[:-1])} or {levels[-1]}"
        what += "" if default else " (default: each module's own)"
        self("--opt-level", "LEVEL", what, default, choices=levels)

    def settings(self, *, files_alone: bool = False) -> None:
        """An option for each setting of each problem, a field of its dataclass, or of files."""
        from mlgo_gym.problems import problems

        settings = {each.name: each for kind in problems().values() for each in _settings(kind)}
        for name in _file_settings() if files_alone else settings:
            each = settings[name]
            option = f"--{name.replace('_', '-')}"
            if isinstance(each.default, bool):
                self(option, "", each.metadata["help"], action=argparse.BooleanOptionalAction)
                continue
            number = "N" if isinstance(each.default, int) else "NUMBER"
            is_text = each.default is None or isinstance(each.default, str)
            default = each.default or "none" if is_text else f"{each.default:g}"
            self(
                option,
                "NAME" if is_text else number,
                f"{each.metadata.get('help', 'a setting')} (default: {default})",
                metavar=each.metadata.get("metavar", "NUMBER"),
            )

    def workers(self, *, executor: bool = False) -> None:
        """How many workers there are, and how long they may take.

        With `executor` the value of ``--jobs`` may also be an `mlgo_gym.llvm.Engine`, which an
        extension puts there.
        """
        self.timeout()
        self.jobs(1, executor=executor)

    def jobs(self, default: int, *, executor: bool = False) -> None:
        """``--jobs``, with `executor` as `workers` has it."""
        if executor:
            self.traits.add("executor")
        self("--jobs", "N", "work on N modules at once", default)

    def timeout(self) -> None:
        """``--timeout``."""
        self("--timeout", "TIME", "limit of LLVM's time for one compilation", TIMEOUT)

    def budget(self, what: str, default: str | None = None) -> None:
        """``--budget``; without a default there is no limit."""
        what += ", such as 90s, 30m or 1h30m" + ("" if default else " (default: no limit)")
        self("--budget", "TIME", what, default)

    def seed(self, of: str = "the random policy") -> None:
        """``--seed``."""
        self("--seed", "N", f"seed of {of}", 0, type=whole(0))

    def output(
        self, what: str, *, may_be_remote: bool = False, replaced_kind: str | None = None
    ) -> None:
        """``--output``, a `folder` that must be given; a URI, too, if it may be one of S3."""
        what += ", also as s3://BUCKET/KEY" if may_be_remote else ""
        self.folder(
            "--output",
            what,
            required=True,
            may_be_remote=may_be_remote,
            replaced_kind=replaced_kind,
        )

    def reward(self, default: str, limit: str) -> None:
        """``--reward``, and ``--most-text``, which limits the text beside it."""
        from mlgo_gym.rollout import reward_names

        what = f"what is to be less: {', '.join(reward_names())}; or several as in "
        what += "'text:0.5,instructions:0.5'. linked_text_gc is after --gc-sections, "
        what += "linked_text_icf after --icf=safe as well"
        self("--reward", "REWARD", f"{what} (default: {default})")
        what = f"{limit} at most NUMBER times LLVM's own text; at least 1, with --reward"
        self("--most-text", "NUMBER", what)

    def problem(self, *, of_model: bool = True) -> None:
        """``--problem``, which a model's card may say instead."""
        from mlgo_gym.problems import DEFAULT, problems

        said = f"the first model's, else {DEFAULT}" if of_model else DEFAULT
        what = f"what LLVM asks about: {', '.join(problems())} (default: {said})"
        self("--problem", "PROBLEM", what, choices=tuple(problems()))

    def model(
        self, what: str, *, modes: Sequence[str] | None = None, many: bool = False, **settings: Any
    ) -> None:
        """``--model``, and how it runs: ``--mode``, if there is more than one, ``--trust-code``.

        By default there are all modes.
        """
        if modes is None:
            from mlgo_gym.runners import MODES

            modes = MODES
        what += ": a model directory, a frozen model, its s3:// address, or the name of one that "
        what += "ships"
        what += "; with --mode interactive, a host's address" if "interactive" in modes else ""
        self("--model", "DIR", what, many=many, type=model, **settings)
        if len(modes) > 1:
            self("--mode", modes, f"how the model runs: {', '.join(modes)}", modes[0])
        what = "run the model in this process, even a frozen model that somebody else made"
        self("--trust-code", "", what)
        if "interactive" in modes:
            self.token("of the host")
            what = "PEM file: the host's certificate or its issuer's, if the host uses TLS"
            self("--tls-certificate", "FILE", what)

    def token(self, whose: str) -> None:
        """``--token-file``; `token_of` reads it."""
        self(
            "--token-file",
            "FILE",
            f"file with the token {whose} (default: ${_TOKEN}, if it is set)",
        )

    def policy(self, *, many: bool = False) -> None:
        """``--policy``, which may be given several times if there may be many."""
        from mlgo_gym.problems import problems

        kinds = problems()
        names = "; ".join(f"{name}: {', '.join(kind.policies)}" for name, kind in kinds.items())
        what = f"a policy that answers LLVM{'; repeat for more' if many else ''}. {names}"
        choices = dict.fromkeys(name for kind in kinds.values() for name in kind.policies)
        self("--policy", "NAME", what, many=many, choices=tuple(choices))


def compilation_of(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `Options.compilation`, as the functions that compile take them."""
    return {"opt_level": options.opt_level, **workers_of(options)}


def workers_of(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `Options.workers`, as the functions that have workers take them."""
    return {"jobs": options.jobs, "timeout_s": options.timeout}


def folders_of(options: argparse.Namespace) -> list[Path]:
    """The corpora of `Options.corpus`, the sample where none is given."""
    return corpus_folders(options.corpus or [SAMPLE_CORPUS], options.split)


def packages_of(options: argparse.Namespace, *, allow_thinlto: bool = False) -> Packages:
    """The modules of the corpora of `Options.corpus`, of the sample where none is given."""
    folders = options.corpus or [SAMPLE_CORPUS]
    return Packages.load(folders, options.split, allow_thinlto=allow_thinlto)


def one_corpus_of(options: argparse.Namespace) -> Corpus:
    """The corpus of `Options.corpus`, which must be one."""
    corpora = packages_of(options).named
    if len(corpora) != 1:
        raise OptionsError(f"--corpus: expected one corpus, found {len(corpora)}")
    (corpus,) = corpora.values()
    return corpus


def models_of(options: argparse.Namespace) -> list[str]:
    """The models of `Options.model`, whether there may be many or not."""
    given = getattr(options, "model", None) or []
    return [given] if isinstance(given, str) else given


def access_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `model_policies` for trust, tokens and certificates."""
    if options.mode != "interactive":
        for name in ("token_file", "tls_certificate"):
            if getattr(options, name, None) is not None:
                option = f"--{name.replace('_', '-')}"
                raise OptionsError(
                    f"{option}: expected '--mode interactive' beside it, found {options.mode!r}"
                )
        return {"trusted": options.trust_code}
    certificate = options.tls_certificate and small_file(options.tls_certificate)
    if certificate is not None:
        from mlgo_gym.runners import check_certificate

        check_certificate(certificate, f"--tls-certificate {str(options.tls_certificate)!r}")
    return {"token": token_of(options), "certificate": certificate}


def token_of(options: argparse.Namespace) -> str | None:
    """The token of `Options.token`."""
    if options.token_file is None:
        return os.environ.get(_TOKEN)
    return small_file(options.token_file).decode("utf-8", "replace").strip()


def small_file(path: Path) -> bytes:
    """A file that an option names and that is read whole."""
    try:
        return read_bounded(path, MAX_SMALL_FILE_BYTES)
    except OSError as error:
        raise OptionsError(f"{path}: cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def policies_of(
    options: argparse.Namespace, problem: Problem, taken: Sequence[str] = ()
) -> Iterator[dict[str, PolicyLike]]:
    """The models by the ends of their paths, and policies by name; without any, the default.

    A model has none of the names that are taken.
    """
    from mlgo_gym.rollout import BASELINE, SMALLEST
    from mlgo_gym.runners import model_policies

    models = models_of(options)
    names = [options.policy] if isinstance(options.policy, str) else options.policy or []
    if not models and not names:
        names = [problem.default_policy]
    named = {name: problem.policy(name, options.seed) for name in names}
    taken = (*named, BASELINE, SMALLEST, *taken)
    with model_policies(models, options.mode, problem, taken, **access_of(options)) as made:
        yield {**made, **named}


@contextlib.contextmanager
def policy_of(options: argparse.Namespace, problem: Problem) -> Iterator[tuple[str, PolicyLike]]:
    """The one policy or model that is given, and its name."""
    if options.policy and options.model:
        raise OptionsError("expected --policy or --model, found both")
    with policies_of(options, problem) as policies:
        ((name, policy),) = policies.items()
        yield name, policy


def files_of(options: argparse.Namespace) -> dict[str, str]:
    """The options of settings that name files, by setting."""
    return {name: path for name in _file_settings() if (path := getattr(options, name))}


def problem_of(options: argparse.Namespace) -> Problem:
    """The problem of `Options.problem`, with the settings of `Options.settings`."""
    from mlgo_gym.problems import problem_named
    from mlgo_gym.runners import problem_of_models

    kind = problem_named(options.problem) if options.problem else None
    return make_problem(kind or problem_of_models(models_of(options)), options)


def by_problem(options: argparse.Namespace) -> list[argparse.Namespace]:
    """The options for each problem of the models, in their order: with its models alone.

    Policies are of the first. With ``--problem`` all are of that.
    """
    from mlgo_gym.runners import problem_of_models

    models: dict[type[Problem], list[str]] = {}
    for each in models_of(options):
        models.setdefault(problem_of_models([each]), []).append(each)
    if options.problem or len(models) < 2:
        return [options]
    return [
        argparse.Namespace(
            **vars(options) | {"model": found, "policy": [] if place else options.policy}
        )
        for place, found in enumerate(models.values())
    ]


def make_problem(kind: type[_P], options: argparse.Namespace) -> _P:
    """A problem with the settings of `Options.settings`, else of the models' cards."""
    from mlgo_gym.runners import settings_of_models

    given = {each.name: getattr(options, each.name, None) for each in _settings(kind)}
    given = {name: value for name, value in given.items() if value is not None}
    return kind(**(settings_of_models(models_of(options), kind) | given))


def rolled_out(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    options: argparse.Namespace,
    output: Output,
    **settings: Any,
) -> Iterator[ModuleReport]:
    """Roll policies out as `Options.compilation` says; reports call modules by their labels."""
    from mlgo_gym.rollout import rollout

    settings |= compilation_of(options)
    reports = rollout(packages, policies, problem, **settings)
    for report in output.track(reports, "compiling", len(packages)):
        yield replace(report, module=packages.label(report.key), package="")


def _settings(kind: type[Problem]) -> tuple[Field[Any], ...]:
    return tuple(each for each in fields(kind) if each.init)


def _file_settings() -> list[str]:
    from mlgo_gym.problems import problems

    return [name for kind in problems().values() for name in kind.file_settings]
