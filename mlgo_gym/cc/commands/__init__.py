"""Commands and extensions of commands of this wing."""

GROUP = "build"
COMMANDS = {
    "_project": "write which inline functions the objects of a build share, for mlgo-cc",
    "_size_report": "compare the code of two builds",
}
