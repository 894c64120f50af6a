"""Commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {"bench": "compare policies on fixed suites, and verify what others submit"}
