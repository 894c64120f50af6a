"""Commands of this wing."""

COMMANDS = {"tiers": "record when a program's functions run, and decide when to compile them"}
