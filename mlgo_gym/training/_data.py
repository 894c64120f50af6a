"""The data that trainers train on and choose on, and contexts, which are compiled again and again.

For the inliner a context is a module, and its cost the size of its code. For register allocation it
is a function that asks, taken out of its module once it was optimised (`rollout._allocation`), and
its cost LLVM's score. By a reward it is a module, whatever the problem, and its cost the reward's.
Costs are logarithms of the ratio to what LLVM's own heuristic reaches: below 0 is better.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar

import numpy as np

from mlgo_gym.base import MlgoGymError, TrainingError, WorkloadError
from mlgo_gym.corpus import Module, ModuleKey, Packages
from mlgo_gym.llvm import (
    ALLOCATE,
    DEFAULT_TIMEOUT_S,
    Compiler,
    Done,
    Jobs,
    each,
    options_of,
    score_function,
    spill_code,
    workers,
)
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import (
    Allocator,
    Failure,
    Measure,
    OptimizedModule,
    Rewards,
    Unit,
    measure_of,
    of_module,
    without_frames,
)

_PASSING: Final = (
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ENOSPC,
    errno.EDQUOT,
)
_K = TypeVar("_K")
_T = TypeVar("_T")
_LEAST_SCORE: Final = 1e-9
_DRAWN: Final = 0.98
_ITS_OWN: Final = ("_workers", "_warn")


@dataclass(frozen=True)
class Data:
    """The data to train and choose on; `warn` gets each failure, and the others go on.

    With `rewards` code is worth what these say, otherwise what the problem's own measure does;
    models with more than `most_text` times the text of LLVM's own are chosen last.
    """

    packages: Packages
    validation: Packages
    jobs: Jobs = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    warn: Callable[[Failure], None] = lambda _: None
    rewards: Rewards | None = None
    most_text: float | None = None


def successes(
    found: Generator[Done[_K, _T]], warn: Callable[[Failure], None]
) -> Iterator[tuple[_K, _T]]:
    """Items with what became of them; those that failed are warned of and left out."""
    with closing(found):
        for done in found:
            if done.error:
                warn(Failure(without_frames(done.error)))
            else:
                yield done.item, done.value


def rewards_of(
    reward: str,
    packages: Packages,
    held_out: Packages,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Rewards:
    """The reward of each package, of which some can be trained on and some be chosen on.

    Args:
        reward: its name.
        packages: what is trained on.
        held_out: what is chosen on.
        jobs: how many modules of a package are compiled at once.
        timeout_s: how long LLVM may take for one, in seconds.

    Raises:
        WorkloadError: programs are to run, and none are there for one of the two.
    """
    for part in (packages, held_out):
        Rewards(reward, part, None, timeout_s)
    both = Packages({**packages.corpora, **held_out.corpora})
    return Rewards(reward, both, None, timeout_s, jobs=jobs)


def describe(packages: Packages) -> dict[str, Any]:
    """For a card: how many modules of each package, and hashes of those that can be read.

    One hash is of their bitcode, one of the options that their command lines stand for.

    Raises:
        ModuleError: one cannot be read now that could be another time, with another hash.
    """
    bitcode, options = hashlib.sha256(), hashlib.sha256()
    for key in packages:
        try:
            module = packages[key]
            bitcode.update(bytes.fromhex(module.sha256))
            options.update(f"{options_of(module).settings()}\n".encode())
        except MlgoGymError as error:
            if error.errno in _PASSING:
                raise
    counts = {package: len(keys) for package, keys in packages.by_package.items()}
    return {
        "modules": counts,
        "sha256": bitcode.hexdigest(),
        "options_sha256": options.hexdigest(),
    }


def check_lasting(failure: Failure) -> None:
    """Check that a module that is left out would be left out another time.

    Raises:
        TrainingError: the failure comes of the system's state, such as a full disk.
    """
    if failure.error.errno in _PASSING:
        raise TrainingError(f"{failure}; this may pass, start again") from failure.error


@dataclass(frozen=True)
class TrainingContext:
    """One thing that is compiled again and again: a module, or an optimised function by itself.

    Its baseline, above 0, is what LLVM's own heuristic reaches. Parts of its module's are its
    share, from 0 to 1, and its potential: of a function the spill code, of a module all of it.
    """

    name: str
    code: Module | OptimizedModule = field(repr=False)
    baseline: float
    share: float = 1.0
    potential: float = 1.0

    @property
    def size_bytes(self) -> int:
        """The size of its bitcode: about what it takes to compile it."""
        code = self.code.module if isinstance(self.code, OptimizedModule) else self.code
        return len(code.data)

    @property
    def module(self) -> str:
        """``PACKAGE/MODULE``."""
        return self.name.rpartition(":")[0] if isinstance(self.code, OptimizedModule) else self.name

    def log_ratio(self, score: float) -> float:
        """The cost of a score: ``log(score / baseline)``.

        >>> context = TrainingContext("f", Module("f", b""), baseline=50.0)
        >>> context.log_ratio(50.0), round(context.log_ratio(55.0), 3)
        (0.0, 0.095)
        """
        return math.log(max(score, _LEAST_SCORE) / self.baseline)

    def cost(self, score: float, tolerated: float) -> float:
        """`log_ratio`, where what is above a limit counts twice.

        >>> context = TrainingContext("f", Module("f", b""), baseline=50.0)
        >>> context.cost(50.0, 0.05), round(context.cost(55.0, 0.05), 3)
        (0.0, 0.141)
        """
        ratio = self.log_ratio(score)
        return ratio + max(ratio - tolerated, 0.0)


class Workshop:
    """Compilers that stay, each in a thread of its own or on a node, and what they make."""

    def __init__(
        self,
        problem: Problem,
        *,
        jobs: Jobs,
        timeout_s: float,
        warn: Callable[[Failure], None] = lambda _: None,
        rewards: Rewards | None = None,
    ) -> None:
        self.problem: Final = problem
        self.rewards: Final = rewards
        self._measure: Final = measure_of(problem)
        self._keys = {str(key): key for key in rewards.packages} if rewards else {}
        self._warn = warn
        self._workers = workers(partial(Compiler, timeout_s=timeout_s), jobs)

    def contexts(self, packages: Packages, skip: int = 0) -> Iterator[list[TrainingContext]]:
        """The contexts of each module but the first few: none of one that fails or never asks."""
        keys, work, read = tuple(packages)[skip:], self._prepared, packages.keyed
        with closing(each(keys, work, self._workers, read=read, in_order=True)) as found:
            for done in found:
                if done.error:
                    self._warn(Failure(without_frames(done.error), done.item.package))
                yield [] if done.error else done.value

    def _prepared(
        self, compiler: Compiler, read: tuple[ModuleKey, Module]
    ) -> list[TrainingContext]:
        key, module = read
        if self.by_function:
            return _functions(Allocator(compiler, self.problem), str(key), module)
        measure, unit = self._measured(compiler, str(key), module)
        with of_module(key.name):
            score = measure.score(unit.baseline())
        return [TrainingContext(str(key), module, score)] if score else []

    def score(self, compiler: Compiler, context: TrainingContext, policy: PolicyLike) -> float:
        """Return the score under a policy, by the reward or the problem's measure.

        Raises:
            ModuleError: LLVM refused it.
            WorkloadError: a program does something else than it must.
            CompilationError: LLVM crashed or outran its deadline.
        """
        code = context.code
        if isinstance(code, OptimizedModule):
            return Allocator(compiler, self.problem).allocate(code, policy).score
        measure, unit = self._measured(compiler, context.name, code)
        try:
            return measure.score(unit.attempt(policy))
        except WorkloadError as error:
            raise WorkloadError(f"module {context.name!r}: {error}") from error

    @property
    def by_function(self) -> bool:
        """Whether contexts are functions."""
        return self.rewards is None and self._measure.by_function

    def _measured(self, compiler: Compiler, name: str, module: Module) -> tuple[Measure, Unit]:
        """Return the measure of a module, and its unit."""
        measure = self.rewards.of(self._keys[name]).measure if self.rewards else self._measure
        return measure, measure.unit(compiler, module, options_of(module), self.problem)

    def each(
        self,
        items: Iterable[_K],
        work: Callable[[Compiler, Any], _T],
        read: Callable[[_K], Any] | None = None,
    ) -> Generator[Done[_K, _T]]:
        """Yield a function's value for each item, with one of the compilers, in order.

        It is called with what is read of the item.
        """
        return each(items, work, self._workers, read=read, in_order=True)

    def successes(
        self,
        items: Iterable[_K],
        work: Callable[[Compiler, Any], _T],
        read: Callable[[_K], Any] | None = None,
    ) -> Iterator[tuple[_K, _T]]:
        """Yield what `each` does, but items that fail are warned of and left out."""
        return successes(self.each(items, work, read), self._warn)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is what work needs where workers are; it has none of its own."""
        return {name: each for name, each in vars(self).items() if name not in _ITS_OWN}


def _functions(allocator: Allocator, name: str, module: Module) -> list[TrainingContext]:
    """The functions of a module that ask and have a score."""
    optimized = allocator.find_functions(allocator.optimize(module, options_of(module)))
    if not optimized.functions:
        return []
    total = allocator.baseline(optimized)[0].score
    contexts = []
    for function, part in allocator.take_apart(optimized).items():
        result, known = allocator.baseline(part)
        if result.score > 0:
            product = allocator.compiler.produce(known.module, known.options, ALLOCATE)
            spills = spill_code(product.data.decode(), function)
            spilled = score_function(spills, known.frequencies[function]).value
            parts = (min(each / total, 1.0) for each in (result.score, spilled))
            contexts.append(TrainingContext(f"{name}:{function}", known, result.score, *parts))
    return contexts


class Sampler:
    """Draws contexts, more often those where more can be saved and that are quick to compile.

    The largest fiftieth is never drawn: it would take most of the time.

    Attributes:
        weights: of each context, what its cost counts where it is drawn, so that what is drawn
            stands for all modules: its share over its probability, the mean 1, at most `MOST`.
    """

    MOST: Final = 4.0

    def __init__(self, contexts: Sequence[TrainingContext]) -> None:
        self.contexts: Final = tuple(contexts)
        shares = np.array([each.share for each in contexts])
        potentials = np.array([each.potential for each in contexts])
        sizes = np.array([each.size_bytes for each in contexts], float)
        wanted = np.sqrt(potentials) * shares**0.25 + 0.03 * shares + 0.002
        wanted /= np.sqrt(sizes + np.median(sizes))
        wanted[sizes > np.quantile(sizes, _DRAWN, method="higher")] = 0
        self._probabilities = wanted / wanted.sum()
        weights = shares / np.where(self._probabilities > 0, self._probabilities, np.inf)
        self.weights: Final = np.minimum(weights / weights.mean(), self.MOST)

    def draw(self, count: int, generator: np.random.Generator) -> list[int]:
        """The indices of different contexts, as many as asked for, or all where there are fewer."""
        count = min(count, int(np.count_nonzero(self._probabilities)))
        drawn = generator.choice(len(self.contexts), count, replace=False, p=self._probabilities)
        return [int(index) for index in drawn]

    def numbered(self, index: int) -> tuple[int, TrainingContext]:
        """A context behind its index."""
        return index, self.contexts[index]
