"""One module an episode: problems that are measured by the object that comes out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import CompilationError, CorpusError, ModuleError, OptionsError, UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.envs._decision_env import DecisionEnv, EnvSettings, ResetRequest, baseline_of
from mlgo_gym.envs._modules import CorporaLike
from mlgo_gym.llvm import (
    Compilation,
    CompilationResult,
    CompileOptions,
    Compiler,
    Steps,
    options_of,
)
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import check_sites


class CompilationEnv(DecisionEnv):
    """One module in each episode, measured by its object.

    `DecisionEnv` says what all environments have in common. In ``mlgo_gym/InliningForSize-v0``, a
    step is one call site: inline it (1) or leave it (0)? The reward is the share of the bytes in
    the object's ``.text*`` sections that was saved against LLVM's own heuristic in the same
    pipeline. The info also has the score, ``text_size_bytes``, and ``object_sha256``; both are 0
    and empty before the end.

    Options of ``reset``: ``{"module": NAME}`` takes that module of the corpus, a
    `mlgo_gym.corpus.Module` takes that one. Otherwise modules are drawn with the environment's
    random generator; one that asks for no decision, or that LLVM cannot compile, is skipped.

    Args:
        problem: what LLVM asks for; its measure is one of objects.
        corpus: a corpus, its folder, or ``None`` for the sample corpus in this package; or several:
            a folder of corpora, a list of folders, or corpora by name, whose modules are called
            ``PACKAGE/MODULE``. Where the environment's spec is to be saved as JSON, give folders as
            strings.
        baseline: the policy that the score is relative to, or its name, such as ``never``; ``None``
            is LLVM's own heuristic.
        sites: ``info["site"]`` has the place of the call in question, as a line of JSON.
        settings: these keywords, which all environments take:

            - ``split``: of a folder of corpora, only those of ``train``, ``test`` or ``final``;
              ``None`` takes all but ``final``.
            - ``weights``: how often each module is drawn: ``uniform``, ``size``, or numbers by
              name.
            - ``opt_level``: clang's level to compile at (``O1`` to ``O3``, ``Os``, ``Oz``);
              ``None`` takes that of each module's command line.
            - ``reward``: the measure, or its name; ``None`` is the problem's own. Sizes: ``text``;
              ``linked``, ``linked_text_gc`` and ``linked_text_icf``, which a linker keeps where the
              corpus's other objects are LLVM's own. Programs of the corpus's workloads:
              ``instructions``, ``cost``. Boxed calls: ``box``, ``box-time``. Counts in the bitcode:
              ``estimate``. Several with weights: ``text:0.5,instructions:0.5``.
            - ``illegal_action``: ``fallback`` or ``error``.
            - ``reward_on_truncation``: the reward of an episode that LLVM does not finish.
            - ``decision_limit``: the number of decisions after which an episode is truncated.
            - ``timeout_s``: how long LLVM may take for one compilation, in seconds.
            - ``memory_limit_bytes``: a worker that has grown above it is replaced between episodes.
            - ``render_mode``: ``ansi`` makes ``render`` describe the state in a few lines of text,
              ``rgb_array`` as a picture.

    Raises:
        CorpusError: the corpus cannot be used.
        OptionsError: a setting has a value that it cannot have, or the problem another measure, or
            sites are asked for of decisions that are not the inliner's.

    >>> from mlgo_gym.problems import InliningForSize
    >>> env = CompilationEnv(InliningForSize())
    >>> observation, info = env.reset(options={"module": "digest.c"})
    >>> observation["cost_estimate"].dtype, int(info["default_advice"])
    (dtype('int64'), 1)
    >>> env.close()
    """

    def __init__(
        self,
        problem: Problem,
        corpus: CorporaLike | None = None,
        *,
        baseline: PolicyLike | str | None = None,
        sites: bool = False,
        **settings: Unpack[EnvSettings],
    ) -> None:
        super().__init__(problem, corpus, **settings)
        check_sites(problem, wanted=sites)
        self._sites = sites
        if not self.measure.makes_objects:
            found = type(self.measure).__name__
            raise OptionsError(f"{problem.name}: expected a measure of objects, found {found}")
        policy = baseline_of(problem, baseline)
        self._baseline_answers = {} if policy is None else {problem: policy}
        self._known: dict[tuple[str, CompileOptions], CompilationResult] = {}
        self._compared_with: CompilationResult | None = None

    def _own_state(self, compiler: Compiler) -> dict[str, Any]:  # noqa: ARG002
        return {"_known": dict(self._known)}

    def _begin(
        self,
        asked: ResetRequest,
        skipped: dict[str, str],
        *,
        is_seeded: bool,  # noqa: ARG002
    ) -> Steps[Compilation]:
        if asked.module is not None:
            return (yield from self._start(asked.module))
        names = list(self.corpus.names)
        chances = self._chances
        while chances.any():
            place = self._drawn(chances)
            name, chances = names.pop(place), np.delete(chances, place)
            if name not in self._unusable:
                try:
                    return (yield from self._twice(partial(self._start, self.corpus[name])))
                except (CompilationError, ModuleError) as error:
                    self._unusable[name] = str(error)
            skipped[name] = self._unusable[name]
        raise CorpusError(
            f"corpus {self.corpus.folder!r}: expected a module that asks for a decision, "
            f"found none among {len(self.corpus)}; the last: {skipped.popitem()[1]}"
        )

    def _drawn(self, chances: NDArray[np.float64]) -> int:
        """The place of a module that is drawn out of those that are left."""
        if self.weights == "uniform":
            return int(self.np_random.integers(len(chances)))
        return int(self.np_random.choice(len(chances), p=chances / chances.sum()))

    def _start(self, module: Module) -> Steps[Compilation]:
        options = self.measure.options_for(options_of(module, self._opt_level))
        key = (module.sha256, options)
        task, keep = self.measure.task, self.measure.keeps_objects
        if key not in self._known:
            plain = yield from self.compiler.running(
                module, options, self._baseline_answers, task, keep_object=keep
            )
            if self.measure.score(plain.result):  # which is known from then on
                self._known[key] = replace(plain.result, object_bytes=None)
        baseline = self._known.get(key)
        if baseline is None:
            raise ModuleError(module.name, f"has nothing to measure: 0 {self.measure.meaning}")
        self._compared_with = baseline
        task = replace(task, sites=self._sites)
        compilation = self.compiler.start(
            module, self.problem, options, keep_object=keep, task=task
        )
        yield from self._first(compilation)
        return compilation

    def _baseline(self) -> CompilationResult:
        if self._compared_with is None:
            raise UsageError("reset: expected an episode, found none")
        return self._compared_with

    def _result(self, compilation: Compilation) -> CompilationResult:
        return compilation.result

    def _record(self, result: CompilationResult | None) -> dict[str, Any]:
        return {"object_sha256": "" if result is None else result.object_sha256}

    def _where(self, compilation: Compilation) -> str:
        return f"module {compilation.module.name}"
