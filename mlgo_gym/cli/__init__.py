"""The command line: ``mlgo-gym`` and its subcommands."""

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
    "_tune": "tune a model to a project's own code",
    "vocabulary": "train a vocabulary for IR2Vec's embeddings",
    "_distill": "distil a model into a rule that can be read",
    "_evaluate": "compare models with LLVM's default over packages",
    "_measure": "compare what models make of programs that run",
    "workload": "list, run and check the programs of corpora",
    "profile": "collect profiles of programs, and put them into corpora",
    "_explain": "where a model decides differently, and what comes of it",
    "_explain_features": "what an inlining model's decisions rest on",
    "_freeze": "compile a model to an object, a C header and a shared library",
    "_compile": "compile bitcode with a model's advice",
    "_size_report": "compare the code of two builds",
    "_serve": "answer compilers over gRPC with a model",
}
