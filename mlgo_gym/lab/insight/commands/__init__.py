"""Commands and extensions of commands of this wing."""

GROUP = "measure and explain"
COMMANDS = {
    "_explain": "where a model decides differently, and what comes of it",
    "_explain_features": "what an inlining model's decisions rest on",
}
