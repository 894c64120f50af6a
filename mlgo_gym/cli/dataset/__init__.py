"""``mlgo-gym dataset``: decisions in Parquet files, from rollouts, training logs and traces."""

DESCRIPTION = (
    "Datasets are folders of Parquet files with a row for each decision; docs/guides/datasets.md "
    "has the columns."
)
EXAMPLE = "mlgo-gym dataset record --corpus corpora/lupa --output sets/lupa"
COMMANDS = {
    "_record": "roll a policy out and record its decisions",
    "_info": "describe datasets, and whether they can be combined",
    "_import": "read training logs and traces into a dataset",
    "_export": "write datasets as a training log, as TFRecord or for Minari",
}
