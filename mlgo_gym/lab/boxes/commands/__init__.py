"""Commands of this wing."""

COMMANDS = {"box": "repeat one call of a program's function under many compilations of it"}
