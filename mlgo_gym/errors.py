"""Every exception that mlgo_gym raises, split by whose fault it is.

::

    MlgoGymError
      InputError               what was given cannot be used
        SpecError              a tensor specification or a tensor
        TrainingLogError       a training log or channel stream
        CorpusError            a corpus folder or its manifest
        ModuleError            a module: parsing, target, verification, its command line
        ModelError             a model directory, its graph or its specs
        TraceError             a recorded compilation, or what it is replayed against
        DatasetError           a dataset of decisions, or what is put into one
        ProfileError           a profile, or what it is to be of
        WorkloadError          a program of a corpus's objects, or what it does
        BenchmarkError         a suite of the benchmark, or what is submitted to it
        OptionsError           a setting of a problem, compilation or environment
        TrainingError          the folder of a training run
      CompilationError         LLVM did not finish a compilation
        CompilerCrashError     the worker process died
        CompilationTimeoutError  LLVM outran its deadline
        DecisionLimitError     LLVM asked more often than it may
      RunnerError              the other end of an interactive runner failed
      PolicyError              a policy raised inside a worker
      EnvironmentSetupError    this machine lacks something: llvmlite, an extra, a tool
      UsageError               calls in an order that has no meaning
      InternalError            a state that should be impossible: please report it

Messages name the thing, what was expected and what was found.
"""

from mlgo_gym.base import (
    BenchmarkError,
    CompilationError,
    CompilationTimeoutError,
    CompilerCrashError,
    CorpusError,
    DatasetError,
    DecisionLimitError,
    EnvironmentSetupError,
    InputError,
    InternalError,
    MlgoGymError,
    ModelError,
    ModuleError,
    OptionsError,
    PolicyError,
    ProfileError,
    RunnerError,
    SpecError,
    TraceError,
    TrainingError,
    TrainingLogError,
    UsageError,
    WorkloadError,
)

__all__ = [
    "BenchmarkError",
    "CompilationError",
    "CompilationTimeoutError",
    "CompilerCrashError",
    "CorpusError",
    "DatasetError",
    "DecisionLimitError",
    "EnvironmentSetupError",
    "InputError",
    "InternalError",
    "MlgoGymError",
    "ModelError",
    "ModuleError",
    "OptionsError",
    "PolicyError",
    "ProfileError",
    "RunnerError",
    "SpecError",
    "TraceError",
    "TrainingError",
    "TrainingLogError",
    "UsageError",
    "WorkloadError",
]
