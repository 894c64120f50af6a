"""The measure behind an environment's reward."""

from __future__ import annotations

from mlgo_gym.base import OptionsError
from mlgo_gym.corpus import Corpus
from mlgo_gym.envs._modules import JoinedModules, corpus_for
from mlgo_gym.rollout import Measure, measure_named


def rewarding(
    reward: object, corpus: Corpus | JoinedModules, opt_level: str | None, timeout_s: float
) -> tuple[Measure | None, bool]:
    """The measure of a ``reward``, and whether it was made here, to be closed by who asked.

    Raises:
        OptionsError: it is no name of one, and no measure.
    """
    if reward is None or isinstance(reward, Measure):
        return reward, False
    if not isinstance(reward, str):
        expected = "a name or an instance of mlgo_gym.rollout.Measure"
        raise OptionsError(f"reward: expected {expected}, found {reward!r}")
    measured = corpus_for(reward, corpus)
    return measure_named(reward, measured, opt_level=opt_level, timeout_s=timeout_s), True
