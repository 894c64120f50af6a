"""``mlgo-gym bench``: suites, runs, submissions and the table."""

DESCRIPTION = (
    "Run policies on fixed suites of modules. A submission has every decision, so that anyone can "
    "repeat it on real LLVM and compare the objects, byte for byte."
)
EXAMPLE = "mlgo-gym bench run --model inlining-for-size"
COMMANDS = {
    "_suites": "list the suites that ship",
    "_fetch": "get a suite's files, from an archive or by recipes",
    "_pack": "make a suite's archive from corpora",
    "_run": "run policies on a suite",
    "_submit": "give a run a name, for a table",
    "_verify": "repeat a submission's decisions and compare the results",
    "_table": "rank verified submissions",
}
