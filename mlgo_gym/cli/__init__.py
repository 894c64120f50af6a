"""The command line: ``mlgo-gym`` and its subcommands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

DESCRIPTION = "LLVM's machine-learning guided heuristics: corpora, rollouts, measurements, models."
EXAMPLE = "mlgo-gym demo"
GROUPS = {
    "start": {
        "_demo": "compare LLVM with a model, a policy trained on the spot and a search",
        "_doctor": "say what is installed, what is missing and how to get it",
        "_models": "list the trained models that ship",
    },
    "corpora": {
        "corpus": "build corpora and look into them",
        "dataset": "record decisions for training, and read or write training logs",
    },
    "train and tune": {
        "_train": "train a policy on corpora",
        "_search": "find the smallest code of each module in a given time",
    },
    "measure and explain": {
        "_evaluate": "compare models with LLVM's default over packages",
        "_rollout": "run a policy over corpora and write a training log",
        "_replay": "repeat recorded compilations and verify their objects",
    },
    "build": {
        "_freeze": "compile a model to an object, a C header and a shared library",
        "_compile": "compile bitcode with a model's advice",
        "_serve": "answer compilers over gRPC with a model",
    },
}
"""The commands below each heading of the help: their modules, and a line for each."""
COMMANDS = {module: meaning for group in GROUPS.values() for module, meaning in group.items()}
