"""``mlgo-gym workload``: list, run and check the programs of corpora."""

DESCRIPTION = (
    "Workloads are programs made of a corpus's objects. The sample has one, and recipes bring some "
    "for their packages. A workload.toml in CORPUS/workloads describes your own."
)
EXAMPLE = "mlgo-gym workload check --corpus corpora/lupa"
COMMANDS = {
    "_list": "the workloads of corpora, and what they do",
    "_new": "run a program of your own once, and record what it writes",
    "_run": "run a program, compiled plainly or with a model",
    "_check": "check that programs do the same under other compilations and meters",
}
