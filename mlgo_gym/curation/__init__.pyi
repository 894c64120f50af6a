from ._facts import describe_modules as describe_modules
from ._verification import verify_corpus as verify_corpus
