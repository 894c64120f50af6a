"""Recording: rollouts of a policy over packages, as a dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from importlib import metadata

from mlgo_gym.base import DatasetError, ModuleError, UsageError
from mlgo_gym.corpus import ModuleKey, Packages, PackagesLike, check_not_final
from mlgo_gym.datasets._episodes import Source, episodes_of_report
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, CompileOptions, Jobs, llvm_version, options_of
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import ModuleReport, rollout


def header_of(problem: Problem, opt_level: str | None = None) -> DatasetHeader:
    """Return the header of datasets that the embedded LLVM makes, at one level or at each module's.

    Raises:
        OptionsError: there is no such level.
        EnvironmentSetupError: LLVM cannot be started.

    >>> from mlgo_gym import InliningForSize
    >>> header_of(InliningForSize()).layout.name
    'InliningForSize'
    """
    CompileOptions(opt_level)
    llvmlite = metadata.version("llvmlite")
    return DatasetHeader.of(problem, llvm_version(), opt_level=opt_level, llvmlite_version=llvmlite)


def remaining(writer: DatasetWriter, corpora: PackagesLike, policy_name: str) -> Packages:
    """The modules that a dataset does not have under a policy.

    A module that cannot be read is among them: recording it reports why. One that has other bytes,
    or is compiled at another level, than the dataset's is a `DatasetError`.
    """
    packages = Packages.of(corpora)
    known = {
        ModuleKey(key.package, key.module): (key.module_sha256, opt_level)
        for key, opt_level in writer.levels.items()
        if key.policy == policy_name
    }
    left = []
    for key in packages:
        found = _state(packages, key, writer.header.opt_level) if key in known else None
        if found is None:
            left.append(key)
            continue
        for name, was, now in zip(("SHA-256", "level"), known[key], found, strict=True):
            if now is not None and was != now:
                raise DatasetError(
                    str(writer.folder),
                    f"module {key.name!r} of package {key.package!r}: expected {name} {was}, "
                    f"found {now}: the corpus has changed since; record into another folder",
                )
    return packages.only(left)


def record(
    writer: DatasetWriter,
    corpora: PackagesLike,
    problem: Problem,
    policy_name: str,
    policy: PolicyLike,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    sites: bool = False,
) -> Generator[ModuleReport]:
    """Compile modules plainly and under a policy, and put the decisions into a dataset.

    A module that LLVM refuses, or crashes or hangs on, is reported and left out. The largest
    modules are the first, here and in the dataset, whoever is done first: its bytes are the same
    however many workers there are, and wherever. Reports come without decisions.

    The modules are of packages or of a corpus, such as `remaining` leaves; the level is that of the
    dataset's header. Policy, problem, jobs, seconds and sites are as in `mlgo_gym.rollout.rollout`.

    Raises:
        CorpusError: a package is of the split ``final``.
        DatasetError: the dataset cannot be written.
        UsageError: its header is one of another problem or of other settings, or it has a module
            already.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpora = {"sample": Corpus.load(SAMPLE_CORPUS).only(["digest.c"])}
    >>> problem = InliningForSize()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with DatasetWriter(folder, header_of(problem)) as writer:
    ...         reports = list(record(writer, corpora, problem, "never", lambda _: 0))
    >>> [report.module for report in reports]
    ['digest.c']
    """
    if (expected := writer.header.settings) != (found := problem.settings()):
        raise UsageError(
            f"dataset {str(writer.folder)!r}: expected settings {expected}, found {found}"
        )
    packages = Packages.of(corpora)
    check_not_final(packages, "to record")
    largest_first = packages.only(sorted(packages, key=packages.size_bytes, reverse=True))
    reports = rollout(
        largest_first,
        {policy_name: policy},
        problem,
        jobs=jobs,
        timeout_s=timeout_s,
        opt_level=writer.header.opt_level,
        keep_decisions=True,
        sites=sites,
    )
    with contextlib.closing(reports):
        for report in reports:
            (attempt,) = report.attempts or (None,)
            if attempt and attempt.result:
                # The result of register allocation has the hash of the optimised module.
                settings = dict(attempt.result.settings)
                source = Source(*report.key, report.module_sha256, policy_name, settings)
                writer.add(source, episodes_of_report(report, attempt, problem, source))
            yield report.without_decisions()


def _state(
    packages: Packages, key: ModuleKey, opt_level: str | None
) -> tuple[str, str | None] | None:
    """The hash of a module that can be read, and its level, unless its functions say which."""
    try:
        module = packages[key]
        return module.sha256, options_of(module, opt_level).opt_level
    except ModuleError:
        return None
