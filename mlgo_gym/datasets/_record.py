"""Recording: rollouts of a policy over a corpus, as a dataset.

::

    with DatasetWriter(folder, header_of(problem)) as writer:
        left = remaining(writer, corpus, "default", package="lupa")  # the others are there already
        for report in record(
            writer, corpus, problem, "default", policy, package="lupa", names=left
        ):
            ...  # what came of each module
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from importlib import metadata

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.datasets._episodes import ModuleKey, Source, episodes_of_report
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, ModuleError, UsageError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S, llvm_version
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.rollout._rollout import ModuleReport, rollout


def header_of(problem: Problem, opt_level: str | None = None) -> DatasetHeader:
    """The header of what the embedded LLVM compiles.

    Args:
        problem: what LLVM asks for.
        opt_level: clang's level that all modules are compiled at; ``None`` takes each its own.

    Raises:
        OptionsError: there is no such level.
        EnvironmentSetupError: LLVM cannot be started.

    >>> from mlgo_gym import InliningForSize
    >>> header_of(InliningForSize()).problem.name
    'InliningForSize'
    """
    CompileOptions(opt_level)
    llvmlite = metadata.version("llvmlite")
    return DatasetHeader.of(problem, llvm_version(), opt_level=opt_level, llvmlite_version=llvmlite)


def remaining(
    writer: DatasetWriter,
    corpus: Corpus,
    policy_name: str,
    *,
    package: str,
    names: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The modules of a corpus that a dataset does not have under a policy.

    A module that cannot be read is among them: recording it reports why.

    Args:
        writer: of the dataset.
        corpus: where the modules are.
        policy_name: what the policy is called in the dataset.
        package: what the corpus is called in the dataset.
        names: which modules; ``None`` takes all.

    Raises:
        DatasetError: it has a module of this name with other bytes: the corpus has changed.
    """
    known = {
        key.module: key.module_sha256
        for key in writer.keys
        if (key.package, key.policy) == (package, policy_name)
    }
    left = []
    for name in corpus.names if names is None else names:
        if name in known and (found := _sha256(corpus, name)) is not None:
            if found != known[name]:
                raise DatasetError(
                    str(writer.folder),
                    f"module {name!r} of package {package!r}: expected SHA-256 {known[name]}, "
                    f"found {found}: the corpus has changed since; record into another folder",
                )
        else:
            left.append(name)
    return tuple(left)


def record(
    writer: DatasetWriter,
    corpus: Corpus,
    problem: Problem,
    policy_name: str,
    policy: PolicyLike,
    *,
    package: str,
    names: Sequence[str] | None = None,
    jobs: int = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Generator[ModuleReport]:
    """Compile modules plainly and under a policy, and put the decisions into a dataset.

    A module that LLVM refuses, or crashes or hangs on, is reported and left out. Modules come as
    they are finished.

    Args:
        writer: of the dataset; its header says the level.
        corpus: where the modules are.
        problem: what LLVM asks for.
        policy_name: what the policy is called in the dataset.
        policy: made anew for each module.
        package: what the corpus is called in the dataset.
        names: which modules, as `remaining` has them; ``None`` takes all.
        jobs: how many workers compile at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.

    Yields:
        A report for each module, without its decisions.

    Raises:
        DatasetError: the dataset cannot be written.
        UsageError: its header is one of another problem or of other settings, or it has a module
            already.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpus, problem = Corpus.load(SAMPLE_CORPUS), InliningForSize()
    >>> where = {"package": "sample", "names": ["digest.c"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with DatasetWriter(folder, header_of(problem)) as writer:
    ...         reports = list(record(writer, corpus, problem, "never", lambda _: 0, **where))
    >>> [report.module for report in reports]
    ['digest.c']
    """
    expected, found = writer.header.settings, problem.settings()
    if expected != found:
        raise UsageError(
            f"dataset {str(writer.folder)!r}: expected settings {expected}, found {found}"
        )
    reports = rollout(
        corpus,
        {policy_name: policy},
        problem,
        names=names,
        opt_level=writer.header.opt_level,
        jobs=jobs,
        timeout_s=timeout_s,
        keep_decisions=True,
        in_order=False,
    )
    with contextlib.closing(reports):
        for report in reports:
            _add(
                writer, report, problem, ModuleKey(package, report.module, "", policy_name), corpus
            )
            yield report.without_decisions()


def _add(
    writer: DatasetWriter, report: ModuleReport, problem: Problem, key: ModuleKey, corpus: Corpus
) -> None:
    attempt = report.attempt(key.policy)
    if report.baseline is None or attempt is None or attempt.result is None:
        return
    settings = dict(attempt.result.settings)
    # The result of register allocation has the hash of the optimised module.
    sha256 = corpus[key.module].sha256
    source = Source(key.package, key.module, sha256, key.policy, settings)
    writer.add(source, episodes_of_report(report, attempt, problem, source))


def _sha256(corpus: Corpus, name: str) -> str | None:
    try:
        return corpus[name].sha256
    except ModuleError:
        return None
