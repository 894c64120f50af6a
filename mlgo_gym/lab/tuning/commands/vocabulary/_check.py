"""The lines of ``mlgo-gym doctor`` about the tools for vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlgo_gym.cli import Extension


class VocabularyExtension(Extension):
    """A check for ``llvm-ir2vec``."""

    def checks(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The tool that makes triplets."""
        yield "llvm-ir2vec, for vocabulary train", _llvm_ir2vec


def _llvm_ir2vec() -> str:
    from mlgo_gym.lab.tuning._seed_vocabulary import TripletTool

    tool = TripletTool.find()
    return f"{tool.version}, {tool.path}"
