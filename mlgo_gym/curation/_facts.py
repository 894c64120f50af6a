"""Facts that LLVM tells of a module before it is compiled: function bodies and profile."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mlgo_gym.corpus import Module, ModuleKey, Packages, PackagesLike
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    Body,
    Compiler,
    DescribeRequest,
    Done,
    Jobs,
    Profile,
    each,
)

_PROFILE_OPTIONS: Final = ("-fprofile-instrument-use-path=", "-fprofile-sample-use=")


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """A module's function definitions, its bitcode's profile, and the path its command names."""

    name: str
    sha256: str
    bodies: tuple[Body, ...]
    profile: Profile
    profile_path: str | None

    @property
    def instructions(self) -> int:
        return sum(body.instructions for body in self.bodies)

    @property
    def lacks_named_profile(self) -> bool:
        """Whether the command line names a profile that the bitcode does not carry."""
        return self.profile.kind is None and self.profile_path is not None


def describe_module(compiler: Compiler, module: Module) -> ModuleFacts:
    answer: dict[str, Any]
    answer, _ = compiler.inquire(module, DescribeRequest(module.is_text))
    return ModuleFacts(
        module.name,
        module.sha256,
        tuple(Body(*fields) for fields in answer["bodies"]),
        Profile(**answer["profile"]),
        profile_path(module.command or ()),
    )


def describe_modules(
    corpora: PackagesLike, *, jobs: Jobs = 1, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Generator[Done[ModuleKey, ModuleFacts]]:
    """Describe each of several modules, in their order.

    Args:
        corpora: the modules, of packages or of a corpus.
        jobs: how many are looked at at once.
        timeout_s: how long LLVM may take for a module, in seconds.

    Raises:
        OptionsError: ``jobs`` is not above 0.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> [done.item.name for done in describe_modules(corpus)]
    ['digest.c']
    """
    packages = Packages.of(corpora)
    compiler, read = partial(Compiler, timeout_s=timeout_s), packages.file
    return each(packages, describe_module, compiler, read=read, jobs=jobs, in_order=True)


def profile_path(command: Sequence[str]) -> str | None:
    """The profile that a ``clang -cc1`` command line applies, as it stands there.

    >>> profile_path(["-cc1", "-O2", "-fprofile-instrument-use-path=a.profdata"])
    'a.profdata'
    """
    for argument in reversed(command):
        for option in _PROFILE_OPTIONS:
            if argument.startswith(option):
                return argument.removeprefix(option)
    return None
