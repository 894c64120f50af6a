"""The command line: ``mlgo-gym`` and its subcommands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

DESCRIPTION = "LLVM's machine-learning guided heuristics: corpora, rollouts, measurements, models."
EXAMPLE = "mlgo-gym demo"
COMMANDS = {
    "_demo": "train a small policy, evaluate it, freeze it and compile with it",
    "_doctor": "say what is installed, what is missing and how to get it",
    "corpus": "build corpora and look into them",
    "dataset": "record decisions for training, and read or write training logs",
    "_rollout": "run a policy over corpora and write a training log",
    "_search": "find the smallest code of each module in a given time",
    "_replay": "repeat recorded compilations and verify their objects",
    "_train": "train a policy on corpora",
    "_evaluate": "compare models with LLVM's default over packages",
    "_models": "list the trained models that ship",
    "_freeze": "compile a model to an object, a C header and a shared library",
    "_compile": "compile bitcode with a model's advice",
    "_serve": "answer compilers over gRPC with a model",
}
GROUPS = {
    "start": ("_demo", "_doctor", "_models"),
    "corpora": ("corpus", "dataset"),
    "train and tune": ("_train", "_search"),
    "measure and explain": ("_evaluate", "_rollout", "_replay"),
    "build": ("_freeze", "_compile", "_serve"),
}
"""The modules of the commands below each heading of the help."""
