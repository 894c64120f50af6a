"""Commands and extensions of commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {
    "_explain": "show where a model decides differently, and the effect on the code",
    "_explain_features": "show which features an inlining model's decisions depend on",
}
