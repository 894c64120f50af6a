"""Commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {"tiers": "record when a program's functions run, and decide when to compile them"}
