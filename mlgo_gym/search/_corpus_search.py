"""The oracle over a corpus: several modules at once, and what was found kept in a folder.

::

    NAME.trace         the best trace of a module so far, with observations, for imitation
    NAME.search.json   how it was found: an object with the fields of `ModuleSearch`, and
                       module_sha256, settings and choice, to go on from

Of several packages, each has a folder of its own in it. A search that is started again goes on
where it was: with the time that is left of its budget, from the best choice so far. A module that
has changed, or other settings, start anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mlgo_gym.corpus._packages import ModuleKey, Packages, PackagesLike
from mlgo_gym.errors import OptionsError
from mlgo_gym.files import read_json, write_json
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S, Compiler, options_of
from mlgo_gym.llvm._schedule import Jobs, each
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.llvm.process._launch import installed_llvmlite
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike, as_policy
from mlgo_gym.records._trace import trace_path
from mlgo_gym.search._choices import Choice
from mlgo_gym.search._oracle import Oracle, SearchSetting

_MAX_RECORD_BYTES: Final = 1 << 28
_NUMBERS: Final = ("default_size_bytes", "size_bytes", "compilations", "spent_s")


@dataclass(frozen=True, slots=True)
class ModuleSearch:
    """What is known about a module (see `Found`), over all runs; numbers are 0 with an error."""

    module: str
    default_size_bytes: int = 0
    size_bytes: int = 0
    compilations: int = 0
    spent_s: float = 0.0
    error: str | None = None


def search_corpus(
    corpora: PackagesLike,
    output: Path,
    problem: InliningForSize,
    setting: SearchSetting,
    *,
    policy: PolicyLike | None = None,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Generator[ModuleSearch]:
    """Search modules, the largest first, and keep what is found in a folder.

    Args:
        corpora: the modules, of packages or of a corpus.
        output: the folder; what an earlier search left in it is gone on with.
        problem: what LLVM asks for.
        setting: how long each module is searched in all, and in which order.
        policy: one more policy to start from.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many modules are searched at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.

    Yields:
        One for each module, as they are finished.

    Raises:
        OptionsError: ``jobs`` is not above 0, there is no such level, or the folder cannot be
            written.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> half_a_second = SearchSetting(budget_s=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     searches = search_corpus(corpus, Path(folder), InliningForSize(), half_a_second)
    ...     (found,) = searches
    >>> found.size_bytes <= found.default_size_bytes
    True
    """
    CompileOptions(opt_level)
    packages = Packages.of(corpora)
    task = _Task(packages, output, problem, setting, policy, opt_level)
    compiler = partial(Compiler, timeout_s=timeout_s)
    with closing(each(packages, task.run, compiler, jobs=jobs, size=packages.size_bytes)) as found:
        for done in found:
            failed = ModuleSearch(packages.label(done.item), error=str(done.error))
            yield failed if done.error else done.value


@dataclass(frozen=True, slots=True)
class _Task:
    packages: Packages
    output: Path
    problem: InliningForSize
    setting: SearchSetting
    policy: PolicyLike | None
    opt_level: str | None

    def run(self, compiler: Compiler, key: ModuleKey) -> ModuleSearch:
        module = self.packages[key]
        options = options_of(module, self.opt_level)
        settings = options.settings() | self.problem.settings() | {"llvmlite": installed_llvmlite()}
        label = self.packages.label(key)
        same = {"module_sha256": module.sha256, "settings": json.loads(json.dumps(settings))}
        record = _Record(self.output / f"{label}.search.json", label, same)
        known, choice = record.read()
        left_s = self.setting.budget_s - known.spent_s
        if left_s <= 0:
            return known
        setting = replace(self.setting, budget_s=left_s)
        with as_policy(self.policy).begin(module) if self.policy else nullcontext() as given:
            oracle = Oracle(
                compiler, module, setting, self.problem, options, policy=given, start=choice
            )
            return self._improved(oracle, record, known, choice)

    def _improved(
        self, oracle: Oracle, record: _Record, known: ModuleSearch, choice: Choice | None
    ) -> ModuleSearch:
        """Search, and keep the best; ``known`` is what an earlier search left."""
        start = self.setting.clock()
        best = known

        def kept(search: ModuleSearch) -> ModuleSearch:
            spent_s = known.spent_s + self.setting.clock() - start
            so_far = replace(search, spent_s=spent_s, compilations=oracle.compilations)
            record.write(so_far, choice)
            return so_far

        for found in oracle.improvements():
            if best.error is None and found.size_bytes >= best.size_bytes:
                continue  # on the way to where an earlier search has been
            choice = found.choice
            found.trace.save(trace_path(self.output, known.module))
            best = kept(ModuleSearch(known.module, found.default_size_bytes, found.size_bytes))
        return kept(best)


def _number(value: Any) -> Any:
    if not 0 <= value < math.inf:
        raise ValueError(f"expected a number of at least 0, found {value}")
    return value


@dataclass(frozen=True, slots=True)
class _Record:
    """The JSON file of one module's search, which says what must be the same to go on."""

    path: Path
    module: str
    same: dict[str, Any]

    def read(self) -> tuple[ModuleSearch, Choice | None]:
        """What an earlier search of the same left; where there is none, an error says so."""
        nothing = ModuleSearch(self.module, error="not searched yet")
        if not self.path.exists():
            return nothing, None
        try:
            value = read_json(self.path, _MAX_RECORD_BYTES)
            if any(value[name] != same for name, same in self.same.items()):
                return nothing, None
            fields = {name: _number(value[name]) for name in _NUMBERS}
            return ModuleSearch(self.module, **fields), Choice.from_json(value["choice"])
        except (OSError, ValueError, KeyError, TypeError) as error:
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
