"""The features of a problem that a network is given: ``core-edge_count``, say.

A text of names, joined by ``+`` and ``-``: sets, such as ``core``, what LLVM's advisor sends,
``ir2vec``, embeddings of callee and caller, or ``counts``, the same where the vocabulary counts,
``derived``, what is read from LLVM's module besides, and single features. What comes first is what
there is to begin with; a text that begins with ``-`` leaves out of all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from corpus_tools.printable import listed
from mlgo_gym.base import OptionsError
from mlgo_gym.problems import Problem, Vocabulary

CORE: Final = "core"
EMBEDDINGS: Final = "ir2vec"
"""The set of the features that LLVM sends where it has a vocabulary."""
COUNTS: Final = "counts"
"""The name of that set where the vocabulary is one that counts."""
ALL_FEATURES: Final = ""
"""The text of all features that there are."""
_MASK: Final = "mask"
_TERM: Final = re.compile(r"([+-]?)([^+-]+)")


def feature_sets(problem: Problem) -> dict[str, tuple[str, ...]]:
    """The sets that a text can name, each with its features: all but masks.

    >>> from mlgo_gym.problems import InliningForSize
    >>> feature_sets(InliningForSize(ir2vec="ones"))["counts"]
    ('callee_embedding', 'caller_embedding')
    """
    names = tuple(name for name in problem.layout.feature_names if name != _MASK)
    sets = {CORE: tuple(name for name in names if name not in problem.optional_names())}
    for setting, optional in problem.optional.items():
        if there := tuple(name for name in names if name in optional):
            sets[setting] = there
    if EMBEDDINGS in sets and _counts(problem):
        sets[COUNTS] = sets[EMBEDDINGS]
    return sets


def _counts(problem: Problem) -> bool:
    """Whether a setting names a vocabulary that counts."""
    files = (getattr(problem, name, None) for name in problem.file_settings)
    return any(isinstance(each, Vocabulary) and each.counts for each in files)


def choose_features(problem: Problem, text: str, needed: Sequence[str]) -> tuple[str, ...]:
    """The features that a text chooses, in LLVM's order.

    Args:
        problem: whose features these are.
        text: names joined by ``+`` and ``-``; empty chooses all.
        needed: what the network cannot do without, since LLVM's own rule is a part of it.

    Raises:
        OptionsError: a name is unknown, or one that is needed is left out.

    >>> from mlgo_gym.problems import InliningForSize
    >>> choose_features(InliningForSize(), "core-edge_count", ("cost_estimate",))[:2]
    ('sroa_savings', 'sroa_losses')
    >>> choose_features(InliningForSize(), "callee_users+cost_estimate", ("cost_estimate",))
    ('cost_estimate', 'callee_users')
    """
    sets = feature_sets(problem)
    every = tuple(dict.fromkeys(name for names in sets.values() for name in names))
    if text and "".join(sign + name for sign, name in _TERM.findall(text)) != text:
        raise OptionsError(f"features: expected names joined by + and -, found {text!r}")
    chosen = set() if re.match(r"[^+-]", text) else {*every}
    for sign, name in _TERM.findall(text):
        names = sets.get(name, (name,))
        if name not in sets and name not in every:
            known = listed((*sets, *every), name)
            raise OptionsError(f"features: expected some of {known}, found {name!r}")
        chosen = chosen.difference(names) if sign == "-" else chosen.union(names)
    for name in needed:
        if name not in chosen:
            raise OptionsError(
                f"features: expected {name!r}, by which LLVM's rule goes that the network adds to, "
                f"found {text!r}"
            )
    return tuple(name for name in every if name in chosen)
