"""Every exception that mlgo_gym raises; `mlgo_gym.errors` offers them."""

from __future__ import annotations

import errno
import os
from typing import Any


class MlgoGymError(Exception):
    """Base of every error of this package. A copy, a pickled one too, has its message and data."""

    @property
    def errno(self) -> int | None:
        """The number of the system's error behind this one; ``None`` if there is none."""
        if "_errno" in vars(self):
            return vars(self)["_errno"]  # type: ignore[no-any-return]
        cause = self.__cause__
        while cause is not None and not isinstance(cause, MlgoGymError | OSError):
            cause = cause.__cause__
        return None if cause is None else cause.errno

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call the class with the message alone. The cause stays behind.
        number = self.errno
        known = {} if number is None else {"_errno": number}
        return BaseException.__new__, (type(self), *self.args), vars(self) | known


class InputError(MlgoGymError, ValueError):
    """The input cannot be used."""


class SpecError(InputError):
    """A tensor specification is malformed, or a tensor does not fit its specification."""


class TrainingLogError(InputError):
    """A training log, or the stream of a channel, breaks LLVM's format."""


class CorpusError(InputError):
    """A corpus folder or its manifest cannot be used."""


class OptionsError(InputError):
    """A setting has a value that it cannot have."""


class TrainingError(InputError):
    """The folder of a training run cannot be used."""


class ModelError(InputError):
    """A model cannot be used: its files, its graph, or inputs that it needs and nobody offers.

    Attributes:
        model: the file or folder.
        reason: the message without the model.
    """

    def __init__(self, model: str, message: str) -> None:
        super().__init__(f"model {model!r}: {message}")
        self.model = model
        self.reason = message


class ModuleError(InputError):
    """A module cannot be compiled: its bytes, its target or its command line.

    Attributes:
        module: the module's name.
        reason: the message without the name.
    """

    def __init__(self, module: str, message: str) -> None:
        super().__init__(f"module {module!r}: {message}")
        self.module = module
        self.reason = message


class TraceError(InputError):
    """A trace cannot be used: its file, or what it is replayed against.

    Attributes:
        trace: the file's or the module's name.
    """

    def __init__(self, trace: str, message: str) -> None:
        super().__init__(f"trace {trace!r}: {message}")
        self.trace = trace


class DatasetError(InputError):
    """A dataset cannot be used: its files, what they hold, or what is put into it.

    Attributes:
        dataset: the folder or file.
    """

    def __init__(self, dataset: str, message: str) -> None:
        super().__init__(f"dataset {dataset!r}: {message}")
        self.dataset = dataset


class ProfileError(InputError):
    """A profile cannot be used: its file, or what it is used for.

    Attributes:
        profile: the file.
    """

    def __init__(self, profile: str, message: str) -> None:
        super().__init__(f"profile {profile!r}: {message}")
        self.profile = profile


class WorkloadError(InputError):
    """A program cannot be made of a corpus's objects, or does not do what it must."""


class BenchmarkError(InputError):
    """A suite or a submission of the benchmark is damaged, or is not what it says."""


class CompilationError(MlgoGymError):
    """LLVM did not finish a compilation.

    Attributes:
        module: the module's name.
        exit_status: the worker's exit status; negative is the signal that ended it; ``None``
            where it was still alive.
        stderr_tail: the last lines that LLVM wrote to its standard error.
    """

    def __init__(
        self, module: str, message: str, *, exit_status: int | None, stderr_tail: tuple[str, ...]
    ) -> None:
        tail = "".join(f"\n  {line}" for line in stderr_tail)
        super().__init__(f"module {module!r}: {message}{tail and '; its last words:' + tail}")
        self.module = module
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail

    @property
    def errno(self) -> int | None:
        """The system's error; LLVM prints its text as the last of its words, and no number."""
        last = "".join(self.stderr_tail[-1:])
        found = (each for each in errno.errorcode if last.endswith(f": {os.strerror(each)}"))
        return next(found, super().errno)


class CompilerCrashError(CompilationError):
    """The worker process died during a compilation."""


class CompilationTimeoutError(CompilationError):
    """LLVM outran its deadline; the worker has been killed."""


class DecisionLimitError(CompilationError):
    """LLVM asked for more decisions than it may; the compilation was given up."""

    def __init__(self, module: str, message: str) -> None:
        super().__init__(module, message, exit_status=None, stderr_tail=())


class RunnerError(MlgoGymError):
    """The other end of an interactive runner went away, broke the protocol or took too long."""


class PolicyError(MlgoGymError):
    """A policy raised an exception inside a worker, or cannot be loaded there.

    Attributes:
        traceback: the worker's, as Python prints it.
    """

    def __init__(self, traceback: str) -> None:
        super().__init__(
            f"a policy raised in the worker: {traceback.strip().splitlines()[-1]}\n\n{traceback}"
        )
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.traceback,)


class EnvironmentSetupError(MlgoGymError):
    """This machine lacks something; the message says what installs it."""


class UsageError(MlgoGymError):
    """Calls in an order that has no meaning, such as a step before the first reset."""


class InternalError(MlgoGymError):
    """A state that should be impossible. Please report it."""


for _kind in [each for each in vars().values() if isinstance(each, type)]:
    if issubclass(_kind, MlgoGymError):
        _kind.__module__ = "mlgo_gym.errors"  # where users find it
