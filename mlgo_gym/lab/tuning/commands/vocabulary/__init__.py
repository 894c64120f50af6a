"""``mlgo-gym vocabulary``: what IR2Vec's embeddings are made of."""

DESCRIPTION = "Vocabularies of IR2Vec, which --ir2vec of other commands takes."
EXAMPLE = "mlgo-gym vocabulary train --corpus corpora --output vocabulary.json"
COMMANDS = {"_train": "train a vocabulary on corpora"}
