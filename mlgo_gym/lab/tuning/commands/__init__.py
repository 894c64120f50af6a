"""Commands and extensions of commands of this wing."""

GROUP = "train and tune"
COMMANDS = {
    "_tune": "tune a model to a project's own code",
    "vocabulary": "train a vocabulary for IR2Vec's embeddings",
    "_distill": "distil a model into a rule that can be read",
}
