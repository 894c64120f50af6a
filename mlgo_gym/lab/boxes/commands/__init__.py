"""Commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {"box": "repeat one call of a program's function under many compilations of it"}
