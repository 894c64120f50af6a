"""The settings of ``advantage``."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlgo_gym.training._fitting import FitConfig
from mlgo_gym.training._teacher import TeacherConfig
from mlgo_gym.training._validation import WORSE_WEIGHT


@dataclass(frozen=True)
class AdvantageConfig:
    """What decides the result; docs/training.md says what each setting means."""

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
