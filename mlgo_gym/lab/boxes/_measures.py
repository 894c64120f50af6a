"""Measures of boxes: what one call of a function costs, for a corpus of saved boxes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import ClassVar, Final

from corpus_tools.staging import WORKLOADS, digests_of
from mlgo_gym.base import InternalError, ModuleError, Users, WorkloadError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.boxes._box import MOST_STEPS, Box
from mlgo_gym.lab.boxes._described import BOXES
from mlgo_gym.lab.boxes._program import BoxedProgram
from mlgo_gym.lab.programs import remembered
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import KeptObjectUnit, Measure, MeasureSetting, Result, Unit


class RecordedBoxes(AbstractContextManager["RecordedBoxes"]):
    """The boxes of a folder, by the module whose function they are of; several may share them.

    Args:
        corpus: the folder, loaded.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.program: Final = BoxedProgram.load(corpus.folder)
        self._users = Users()
        self.of: Final[defaultdict[str, list[Box]]] = defaultdict(list)
        try:
            for box in self.program.recorded():
                self.of[self.program.module(box.function).name].append(box)
        except BaseException:
            self.program.close()
            raise

    def share(self) -> None:
        """Add a reference; each owner must call `close`."""
        self._users.add()

    def close(self) -> None:
        """End all boxes, once all users have done so."""
        if self._users.leave():
            self.program.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _Boxed(Measure):
    """The sum of what the boxed calls of a module's function cost."""

    unit: type[Unit] = KeptObjectUnit
    runs_programs: ClassVar[bool] = True
    times: ClassVar[bool] = False

    @classmethod
    def prepare(cls, setting: MeasureSetting) -> Measure:
        """Record the folder's boxes; measures of one reward share them."""
        if RecordedBoxes not in setting.shared:
            setting.shared[RecordedBoxes] = RecordedBoxes(setting.corpus)
            return cls(setting.shared[RecordedBoxes])
        boxes: RecordedBoxes = setting.shared[RecordedBoxes]
        return cls(boxes).share()

    @classmethod
    def check(cls, corpora: Mapping[str, Corpus]) -> None:
        """See that packages are folders of boxes."""
        for name, corpus in corpora.items():
            if not (corpus.folder / WORKLOADS / BOXES).is_file():
                expected = (
                    f"expected a folder that 'mlgo-gym box record' writes for --reward {cls.key}"
                )
                raise WorkloadError(f"corpus {name!r}: {expected}, found another corpus")

    @classmethod
    def inputs_sha256(cls, corpus: Corpus) -> str | None:
        """The hash of the program, of what it reads, and of what is boxed."""
        files = json.dumps(digests_of(corpus.folder / WORKLOADS), sort_keys=True)
        return sha256(files.encode()).hexdigest()

    def __init__(self, boxes: RecordedBoxes) -> None:
        self._boxes = boxes
        self._known: dict[tuple[str, ...], float | WorkloadError] = {}

    def score(self, result: Result) -> float:
        """Return the cost of the boxed calls with this object; an equal one is not tried again.

        Raises:
            ModuleError: no call of the module's function is boxed.
            WorkloadError: a call does something else than the program's own code, or is too long.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"{self.key}: expected an object's result, found {result!r}")
        key = (result.module, result.object_sha256)
        return remembered(self._known, key, lambda: self._cost(result))

    def _cost(self, result: CompilationResult) -> float:
        boxes = self._boxes.of[result.module]
        if not boxes:
            raise ModuleError(result.module, "expected a boxed call of its function, found none")
        image = self._boxes.program.image(boxes[0].function, result.object_bytes or b"")
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

    def share(self) -> Measure:
        """Add a reference; each owner must call `close`."""
        self._boxes.share()
        return self

    def close(self) -> None:
        """End the boxes, once all users have done so."""
        self._boxes.close()


class BoxedInstructions(_Boxed):
    """The instructions of the boxed calls of a function, those that it calls included.

    >>> BoxedInstructions.key
    'box'
    """

    key: str = "box"
    title: str = "box"
    meaning: str = "instructions of its boxed calls"


class BoxedTime(_Boxed):
    """The nanoseconds of the boxed calls of a function, called again and again.

    >>> BoxedTime.key
    'box-time'
    """

    key: str = "box-time"
    title: str = "box ns"
    meaning: str = "nanoseconds of its boxed calls"
    times: ClassVar[bool] = True
