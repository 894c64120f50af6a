"""Measures of boxes: what one call of a function costs, for a corpus of saved boxes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from typing import ClassVar, Final

from corpus_tools.staging import WORKLOADS, digests_of
from mlgo_gym.base import ModuleError, WorkloadError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.boxes._box import MOST_STEPS, Box
from mlgo_gym.lab.boxes._boxed_program import BoxedProgram
from mlgo_gym.lab.boxes._described import BOXES
from mlgo_gym.lab.programs import RunMeasure, Runs
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import Measure, MeasureSetting


class RecordedBoxes(Runs):
    """The boxes of a folder, by the module whose function they are of.

    Args:
        setting: whose corpus the folder is.
    """

    def __init__(self, setting: MeasureSetting) -> None:
        super().__init__()
        self._folder = setting.corpus.folder
        self.program: Final = BoxedProgram.load(self._folder)
        self.of: Final[defaultdict[str, list[Box]]] = defaultdict(list)
        try:
            for box in self.program.recorded():
                self.of[self.program.module(box.function).name].append(box)
        except BaseException:
            self.program.close()
            raise

    def inputs_sha256(self) -> str:
        """The hash of the program, of what it reads, and of what is boxed."""
        files = json.dumps(digests_of(self._folder / WORKLOADS), sort_keys=True)
        return sha256(files.encode()).hexdigest()

    def end(self) -> None:
        """End all boxes."""
        self.program.close()


class _Boxed(RunMeasure[RecordedBoxes]):
    """The sum of what the boxed calls of a module's function cost."""

    times: ClassVar[bool] = False

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> Measure:
        """Record the folder's boxes."""
        return cls(setting.once(RecordedBoxes))

    @classmethod
    def check(cls, corpora: Mapping[str, Corpus]) -> None:
        """See that packages are folders of boxes."""
        for name, corpus in corpora.items():
            if not (corpus.folder / WORKLOADS / BOXES).is_file():
                expected = (
                    f"expected a folder that 'mlgo-gym box record' writes for --reward {cls.key}"
                )
                raise WorkloadError(f"corpus {name!r}: {expected}, found another corpus")

    def cost(self, result: CompilationResult) -> float:
        """Repeat the boxed calls."""
        boxes = self.runs.of[result.module]
        if not boxes:
            raise ModuleError(result.module, "expected a boxed call of its function, found none")
        image = self.runs.program.image(boxes[0].function, result.object_bytes or b"")
        total = 0.0
        for box in boxes:
            trial = box.trial(image, counted=not self.times, timed=self.times)
            if trial.difference:
                raise box.error(trial.difference)
            cost = trial.nanoseconds if self.times else trial.instructions
            if cost is None:
                what = "a call that can be timed" if self.times else f"{MOST_STEPS:,} instructions"
                raise box.error(f"expected at most {what}, found more")
            total += cost
        return total


class BoxedInstructions(_Boxed):
    """The instructions of the boxed calls of a function, those that it calls included."""

    key: str = "box"
    title: str = "box"
    meaning: str = "instructions of its boxed calls"


class BoxedTime(_Boxed):
    """The nanoseconds of the boxed calls of a function, called again and again."""

    key: str = "box-time"
    title: str = "box ns"
    meaning: str = "nanoseconds of its boxed calls"
    times: ClassVar[bool] = True
