"""Sites: which call a decision is about, and through which it came to where it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, AnyStr, Final

from corpus_tools.reading import brief
from mlgo_gym.base import SpecError, parse_json
from mlgo_gym.stream import Observation

MAX_SITE_LENGTH: Final = 1 << 20
"""The most bytes, or characters, that one site in a file may take."""

MAX_SITES_LENGTH: Final = 1 << 26
"""The most that those of one compilation may take, all together."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it stands in a module before optimisation.

    Attributes:
        id: which of the module's calls it is, from 1.
        function: the symbol of the function that it stands in.
        number: how many calls stand before it there.
        file: the source's name; empty where the module has no debug information of it.
        line: in the source; 0 where it is unknown.
        column: in the source; 0 where it is unknown.

    >>> Call(7, "main", 2, "main.c", 12, 3).place, Call(7, "main", 2, "", 0, 0).place
    ('main.c:12:3', 'main#2')
    """

    id: int
    function: str
    number: int
    file: str
    line: int
    column: int

    @property
    def place(self) -> str:
        """The place in the source, or else in the function."""
        if self.line:
            return f"{self.file}:{self.line}:{self.column}"
        return f"{self.function}#{self.number}"


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a decision about a call.

    Attributes:
        caller: the symbol of the function that has the call now.
        callee: the symbol of the function that is called.
        calls: the call, and if it came by inlining, those through which it did, the innermost
            first; the last one stands in the caller. Empty where LLVM has merged several calls, or
            has made this one itself: it is nobody's.

    >>> inner, outer = Call(9, "parse", 0, "", 0, 0), Call(4, "main", 1, "", 0, 0)
    >>> print(Site("main", "skip", (inner, outer)))
    parse#0 @ main#1
    """

    caller: str
    callee: str
    calls: tuple[Call, ...]

    @classmethod
    def of_context(cls, context: str) -> Site | None:
        """The site that a context tells of, if it is of a compilation that tells it."""
        names = context.split("\0")
        if len(names) != 3:
            return None
        caller, callee, calls = names
        return cls(caller, callee, tuple(Call(*each) for each in json.loads(calls)))

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the calls, the same whatever is decided elsewhere."""
        return tuple(call.id for call in self.calls)

    def __str__(self) -> str:
        """The places, as LLVM's remarks write them."""
        return " @ ".join(call.place for call in self.calls) or "shared"

    def record(self) -> dict[str, Any]:
        """The site as JSON values."""
        return asdict(self)

    def to_json(self) -> str:
        """The site as a line of JSON: caller, callee, and the fields of each call."""
        calls = [astuple(call) for call in self.calls]
        return json.dumps([self.caller, self.callee, calls], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Site:
        """Read what `to_json` has written.

        Raises:
            SpecError: it is something else.

        >>> site = Site("main", "skip", (Call(4, "main", 1, "main.c", 12, 3),))
        >>> Site.from_json(site.to_json()) == site
        True
        """
        try:
            caller, callee, calls = parse_json(text)
            site = cls(caller, callee, tuple(Call(*each) for each in calls))
        except (ValueError, TypeError):
            site = None
        if site is None or not _is_typed(site):
            raise SpecError(f"site: expected [caller, callee, calls], found {brief(text)}")
        return site


def _is_typed(site: Site) -> bool:
    texts = [site.caller, site.callee, *(t for c in site.calls for t in (c.function, c.file))]
    numbers = [n for c in site.calls for n in (c.id, c.number, c.line, c.column)]
    return all(isinstance(each, str) for each in texts) and all(
        type(each) is int and each >= 0 for each in numbers
    )


def read_sites(texts: Sequence[AnyStr], whole: str) -> tuple[Site, ...]:
    """Read the sites of a compilation, which `Site.to_json` has written; equal ones are one object.

    Args:
        texts: one for each decision.
        whole: what they are called all together, for an error.

    Raises:
        SpecError: one is no site, or they are too long.
    """
    check_site_lengths(texts, whole)
    sites = {text: Site.from_json(text) for text in dict.fromkeys(texts)}
    return tuple(sites[text] for text in texts)


def check_site_lengths(texts: Sequence[AnyStr], whole: str) -> None:
    """See that no site, and not all of them, are longer than what is read."""
    unit = "bytes" if texts and isinstance(texts[0], bytes) else "characters"
    for what, found, most in (
        ("a site", max(map(len, texts), default=0), MAX_SITE_LENGTH),
        (whole, sum(map(len, texts)), MAX_SITES_LENGTH),
    ):
        if found > most:
            raise SpecError(f"{what}: expected at most {most} {unit}, found {found}")


def site_of(observation: Observation) -> Site | None:
    """Return the site of a pending decision, in a compilation that sends sites (`Task.sites`).

    Without sites, it is ``None``.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.llvm import Task
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     compilation = compiler.start(module, InliningForSize(), task=Task(sites=True))
    ...     site = site_of(compilation.next_observation())
    ...     compilation.close()
    >>> site.calls[-1].function == site.caller
    True
    """
    return Site.of_context(observation.context)
