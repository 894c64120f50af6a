"""The oracle over a corpus: several modules at once, and what was found kept in a folder.

::

    NAME.trace         the best trace of a module so far, with observations, for imitation
    NAME.search.json   how it was found: an object with the fields of `ModuleSearch`, and
                       module_sha256, settings, most_text and choice, to go on from; of programs
                       that run programs_sha256, too

Of several packages, each has a folder of its own in it. A search that is started again goes on
where it was: with the time that is left of its budget, from the best choice so far. A module that
has changed, other settings, another reward or other programs start anew.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from corpus_tools.reading import reason_of
from mlgo_gym.base import (
    OptionsError,
    WorkedFolder,
    is_remote,
    read_json,
    worked_folder,
    write_json,
)
from mlgo_gym.corpus import Module, ModuleKey, Packages, PackagesLike, check_not_final
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    CompileOptions,
    Compiler,
    Jobs,
    each,
    installed_llvmlite,
    options_of,
    settings_of_code,
)
from mlgo_gym.problems import InliningForSize, PolicyLike, as_policy
from mlgo_gym.rollout import Measure, Rewards, Trace, of_module, trace_path
from mlgo_gym.search._goal import Choice, Found, SearchSetting, check_most_text, reward_beside
from mlgo_gym.search._oracle import Oracle

_MAX_RECORD_BYTES: Final = 1 << 28
_TOO_LARGE: Final = 1 << 53
_SIZES: Final = ("default_size_bytes", "size_bytes")
_SCORES: Final = ("default_score", "score")
_NUMBERS: Final = (*_SIZES, "compilations", "spent_s", *_SCORES, "wrong")


@dataclass(frozen=True, slots=True)
class ModuleSearch:
    """The findings about a module (see `Found`), over all runs; 0 with an error.

    Attributes:
        reward: what was searched by, and the scores are of; ``None`` is the problem's own measure.
        wrong: in how many compilations a program did something else than it must.
        start: where the best answers went out from: ``default`` (LLVM's own), ``given`` (the policy
            that was given), ``never`` or ``small``; empty if nothing was found.
    """

    module: str
    default_size_bytes: int = 0
    size_bytes: int = 0
    compilations: int = 0
    spent_s: float = 0.0
    error: str | None = None
    reward: str | None = None
    default_score: float = 0.0
    score: float = 0.0
    wrong: int = 0
    start: str = ""


def search_corpus(
    corpora: PackagesLike,
    output: Path | str,
    problem: InliningForSize,
    setting: SearchSetting,
    *,
    policy: PolicyLike | None = None,
    reward: str | Measure | None = None,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Generator[ModuleSearch]:
    """Search modules, the largest first, and keep what is found in a folder.

    Args:
        corpora: the modules, of packages or of a corpus.
        output: the folder, also ``s3://BUCKET/KEY``, where it is put module by module; what an
            earlier search left in it is gone on with.
        problem: what LLVM asks for.
        setting: how long each module is searched in all, and in which order.
        policy: one more to start from, and for ``linked`` that of the package's other modules.
        reward: what is to be less, such as ``instructions`` or ``text:0.5,cost:0.5``, as
            `rollout.measure_named` has it; ``None`` is the problem's own measure, the text. A
            measure itself is of one package.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many modules are searched at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.

    Yields:
        One for each module, as they are finished.

    Raises:
        CorpusError: a package is of the split ``final``.
        OptionsError: ``jobs`` is not above 0, there is no such level or reward, text is limited
            without a reward besides it, one measure is given for several packages, or the folder
            cannot be written.
        WorkloadError: programs are to run, and no package has workloads.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (found,) = search_corpus(corpus, Path(folder), InliningForSize(), SearchSetting(0.5))
    >>> found.size_bytes <= found.default_size_bytes
    True
    """
    packages = Packages.of(corpora)
    check_not_final(packages, "to search")
    name = reward_beside(problem, reward)
    check_most_text(setting.most_text, name, reward)
    CompileOptions(opt_level)
    compiler = partial(Compiler, timeout_s=timeout_s)
    others = (problem, policy) if policy else None
    wanted = reward if isinstance(reward, Measure) else name
    made = wanted and Rewards(wanted, packages, opt_level, timeout_s, policy=others, jobs=jobs)
    with _folder(output) as folder, ExitStack() as stack:
        rewards = stack.enter_context(made) if made else None
        task = _Task(problem, setting, opt_level, name, rewards, policy, _Kept())
        read, size = partial(_begun, packages, folder.path, task), packages.size_bytes
        searches = each(packages, task.run, compiler, read=read, jobs=jobs, size=size)
        for done in stack.enter_context(closing(searches)):
            failed = ModuleSearch(packages.label(done.item), error=str(done.error), reward=name)
            yield failed if done.error else _put(done.value, folder)


@contextmanager
def _folder(output: Path | str) -> Iterator[WorkedFolder]:
    """The folder; errors of what it is worked on with, a compiler say, are not its own."""
    try:
        with worked_folder(output) as folder:
            yield folder
    except OSError as error:
        if not is_remote(str(error.filename)):
            raise
        raise OptionsError(f"search: {error.filename}: {reason_of(error)}") from error


def _put(ended: _Ended, folder: WorkedFolder) -> ModuleSearch:
    ended.write()
    folder.put()
    return ended.search


@dataclass(frozen=True, slots=True)
class _Begun:
    """A module, and what an earlier search left of it."""

    key: ModuleKey
    module: Module
    record: _Record
    known: ModuleSearch
    choice: Choice | None


@dataclass(frozen=True, slots=True)
class _Ended:
    """The state of a module's search, and the part of it to be written."""

    search: ModuleSearch
    record: _Record | None = None
    choice: Choice | None = None
    trace: Trace | None = None

    def write(self) -> None:
        if self.record is None:
            return
        if self.trace:
            self.trace.save(self.record.trace)
        self.record.write(self.search, self.choice)


class _Kept:
    """Writes what is found on the way, where the folder is; a copy that was sent writes nothing."""

    def __init__(self, *, is_here: bool = True) -> None:
        self._is_here = is_here

    def __call__(self, so_far: _Ended) -> None:
        if self._is_here:
            so_far.write()

    def __reduce__(self) -> tuple[Callable[[], _Kept], tuple[()]]:
        return partial(_Kept, is_here=False), ()


@dataclass(frozen=True, slots=True)
class _Task:
    problem: InliningForSize
    setting: SearchSetting
    opt_level: str | None
    reward: str | None
    rewards: Rewards | None
    policy: PolicyLike | None
    keep: _Kept

    def run(self, compiler: Compiler, begun: _Begun) -> _Ended:
        with of_module(begun.module.name):
            return self._searched(compiler, begun)

    def _searched(self, compiler: Compiler, begun: _Begun) -> _Ended:
        module = begun.module
        reward = self.rewards.of(begun.key) if self.rewards else None
        options = options_of(module, self.opt_level)
        left_s = self.setting.budget_s - begun.known.spent_s
        if left_s <= 0:
            return _Ended(begun.known)
        plain = None
        if reward:  # what all share is of nobody's budget
            options = reward.measure.options_for(options)
            keep, task = reward.measure.keeps_objects, reward.measure.task
            plain = compiler.compile_module(module, options, keep_object=keep, task=task)
            reward.measure.score(plain)
        setting = replace(self.setting, budget_s=left_s)
        start_s = setting.clock()
        with as_policy(self.policy).begin(module) if self.policy else nullcontext() as given:
            oracle = Oracle(
                compiler,
                module,
                setting,
                self.problem,
                options,
                policy=given,
                start=begun.choice,
                measure=reward and reward.measure,
                plain=plain,
            )
            return self._improved(oracle, begun, start_s)

    def _improved(self, oracle: Oracle, begun: _Begun, start_s: float) -> _Ended:
        """Search, and keep the best."""
        known = best = begun.known
        ended = _Ended(known, begun.record, begun.choice)

        def kept(search: ModuleSearch, choice: Choice | None, trace: Trace | None) -> _Ended:
            so_far = replace(
                search,
                spent_s=known.spent_s + self.setting.clock() - start_s,
                compilations=known.compilations + oracle.compilations,
                wrong=known.wrong + oracle.wrong,
            )
            return _Ended(so_far, begun.record, choice, trace)

        for found in oracle.improvements():
            if best.error is None and found.score >= best.score:
                continue  # on the way to where an earlier search has been
            ended = kept(_search_of(found, known), found.choice, found.trace)
            best = ended.search
            self.keep(ended)
        return kept(best, ended.choice, ended.trace)


def _begun(packages: Packages, output: Path, task: _Task, key: ModuleKey) -> _Begun:
    """Read a module and its record in the folder of a search."""
    module = packages[key]
    with of_module(module.name):
        reward = task.rewards.of(key) if task.rewards else None
    options = options_of(module, task.opt_level)
    settings = settings_of_code(options.settings()) | task.problem.settings()
    settings |= {"llvmlite": installed_llvmlite()}
    same = {"module_sha256": module.sha256, "settings": json.loads(json.dumps(settings))}
    same |= {"reward": task.reward, "most_text": task.setting.most_text}
    label = packages.label(key)
    path, trace = output / f"{label}.search.json", trace_path(output, label)
    record = _Record(path, trace, label, same | (reward.same if reward else {}))
    return _Begun(key, module, record, *record.read())


def _search_of(found: Found, known: ModuleSearch) -> ModuleSearch:
    numbers = {name: getattr(found, name) for name in (*_SIZES, *_SCORES)}
    return ModuleSearch(known.module, reward=known.reward, start=found.choice.base, **numbers)


def _number(value: Any) -> Any:
    if not 0 <= value < _TOO_LARGE:
        raise ValueError(f"expected a number from 0 to below {_TOO_LARGE}, found {value}")
    return value


_ABSENT: Final = frozenset((errno.ENOENT, errno.ENAMETOOLONG))
"""Why there is no record to read; that a name is too long is said when it is written."""


@dataclass(frozen=True, slots=True)
class _Record:
    """The JSON file of one module's search, which says what must be the same to go on."""

    path: Path
    trace: Path
    module: str
    same: dict[str, Any]

    def read(self) -> tuple[ModuleSearch, Choice | None]:
        """Read the record of an earlier search of the same module."""
        reward = self.same.get("reward")
        nothing = ModuleSearch(self.module, error="not searched yet", reward=reward)
        try:
            value = read_json(self.path, _MAX_RECORD_BYTES)
            if any(value[name] != same for name, same in self.same.items()):
                return nothing, None
            numbers = {name: _number(value[name]) for name in _NUMBERS}
            choice = Choice.from_json(value["choice"])
            return ModuleSearch(self.module, reward=reward, start=choice.base, **numbers), choice
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OSError) and error.errno in _ABSENT:
                return nothing, None
            raise OptionsError(
                f"{str(self.path)!r}: expected a search's record: {error!r}"
            ) from error

    def write(self, search: ModuleSearch, choice: Choice | None) -> None:
        value = {name: getattr(search, name) for name in _NUMBERS} | self.same
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, value | {"choice": choice and choice.to_json()})
        except OSError as error:
            raise OptionsError(f"cannot write {str(self.path)!r}: {error.strerror}") from error
