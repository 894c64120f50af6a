"""``mlgo-gym profile``: collect profiles of corpora's programs, and put them into bitcode."""

DESCRIPTION = (
    "A profile says how often code runs. The programs of a corpus's workloads are instrumented and "
    "run, and the counts are put into the bitcode of the corpus, where LLVM and the reward "
    "'estimate' take them into account."
)
EXAMPLE = "mlgo-gym profile collect --output json.profdata"
COMMANDS = {
    "_collect": "run the programs of a corpus and write how often their code ran",
    "_attach": "write a corpus with a profile's counts in its bitcode",
    "_show": "print a profile, or the counts in a corpus",
    "_check": "check that the counts in a corpus add up",
}
