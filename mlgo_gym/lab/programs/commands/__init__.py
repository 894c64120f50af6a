"""Commands and extensions of commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {
    "_measure": "compare size and speed of programs under models",
    "workload": "list, run and check the programs of corpora",
    "profile": "collect profiles of programs, and put them into corpora",
}
