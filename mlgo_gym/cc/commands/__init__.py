"""Commands and extensions of commands of this wing."""

COMMANDS = {
    "_size_report": "compare the code of two builds",
}
