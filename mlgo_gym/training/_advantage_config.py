"""The settings of ``advantage``."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlgo_gym.training._fitting import FitConfig
from mlgo_gym.training._teacher import TeacherConfig
from mlgo_gym.training._validation import WORSE_WEIGHT


@dataclass(frozen=True)
class AdvantageConfig:
    """What decides the result.

    Attributes:
        seed: of everything random.
        rounds: how often decisions are labelled around the newest policy; 0 learns from `labels`
            alone, once.
        labels: the folders of labels that other runs have left, to learn from as well; those of
            modules that are held out are not.
        batches: compilations of a module that flip single decisions, and as many that flip all
            calls of callees.
        joint_labels: besides, share out what the policy's departures from LLVM's default did
            together.
        linked_weight: how much linked bytes count against the object's, from 0 to 1.
        hidden: the widths of the network's hidden layers.
        band: the costs between which the network may answer otherwise than LLVM's default: beyond
            them it has little to win and much to lose.
        distillation_rows: on how many decisions at most the network learns to answer as the
            teacher; labelled ones first.
        caution: how much certainty it takes, in log-odds, to depart from LLVM's default: with 0.15
            a departure that loses bytes counts 1.16 times as much as one that saves them.
        logit_limit: the teacher's certainty is clipped here.
        worse_weight: what is best: the change of linked text, and this times the share of the
            modules that are worse by more than 1 %.
        teacher: gradient boosting.
        fit: how the network is fitted.
    """

    seed: int = 0
    rounds: int = 3
    labels: tuple[str, ...] = ()
    batches: int = 2
    joint_labels: bool = False
    linked_weight: float = 0.4
    hidden: tuple[int, ...] = (128, 128)
    band: tuple[int, int] = (-25, 120)
    distillation_rows: int = 200_000
    caution: float = 0.15
    logit_limit: float = 3.0
    worse_weight: float = WORSE_WEIGHT
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    fit: FitConfig = field(default_factory=lambda: FitConfig(epochs=25))
