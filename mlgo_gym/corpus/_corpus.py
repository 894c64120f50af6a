"""Corpora: folders of modules, in the layout of LLVM's mlgo-utils.

::

    corpus_description.json      {"modules": ["NAME", ...], "has_thinlto": false, ...}
    NAME.bc                      bitcode, before optimisation
    NAME.cmd                     the clang -cc1 command line, NUL-separated; optional here

`corpus_tools.manifest` reads the manifest; it refuses names that lead out of the folder.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import MANIFEST_NAME, UNSPECIFIED, Manifest, read_command
from mlgo_gym.errors import CorpusError, ModuleError
from mlgo_gym.files import read_bounded

SAMPLE_CORPUS = Path(__file__).parent / "sample" / "corpus"
"""The corpus that ships with the package: C and C++ written for it."""

_MAX_MODULE_BYTES = 1 << 30

# The module flag of a profile; bitcode has strings of metadata one behind the other, as they are.
_PROFILE: Final = re.compile(rb'ProfileFormat(?:", !")?(?:CS)?InstrProf')

OTHER_LANGUAGE: Final = "other"
"""What a language is called that is neither C nor C++, or not known."""

_BY_OPTION: Final[Mapping[str, str]] = MappingProxyType({"c": "C", "c++": "C++"})
_BY_SUFFIX: Final[Mapping[str, str]] = MappingProxyType(
    {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++"}
)


@dataclass(frozen=True)
class Module:
    """One bitcode file, or one file of LLVM assembly, in memory.

    Attributes:
        name: what it is called in results and errors.
        data: its bytes.
        command: the clang ``-cc1`` command line it was compiled with, if that is known.
        is_text: the bytes are LLVM assembly (``.ll``) and not bitcode.
        sha256: the hash of the bytes, in hexadecimal digits.

    >>> Module.from_ir("define void @f() { ret void }").is_text
    True
    """

    name: str
    data: bytes = field(repr=False)
    command: tuple[str, ...] | None = field(default=None, repr=False)
    is_text: bool = False
    sha256: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", hashlib.sha256(self.data).hexdigest())

    @property
    def has_profile(self) -> bool:
        """Whether there are counts in it, of instrumented code."""
        return _PROFILE.search(self.data) is not None

    @classmethod
    def from_ir(cls, text: str, name: str = "<ir>") -> Module:
        """A module written in LLVM assembly."""
        return cls(name, text.encode(), is_text=True)

    @classmethod
    def from_file(cls, path: str | Path) -> Module:
        """Read a ``.bc`` or ``.ll`` file, and the ``.cmd`` file beside it, if there is one.

        Raises:
            ModuleError: the file cannot be read, or its command line is not one of ``-cc1``.
        """
        path = Path(path)
        return _read(path.name, path, is_text=path.suffix == ".ll")


@dataclass(frozen=True)
class Corpus:
    """A folder of modules; they are read when they are asked for.

    Iterating yields the names in the manifest's order; ``corpus[name]`` reads a module.

    Attributes:
        folder: where it is.
        names: the modules' names.
        global_command: the command line that stands for every module's own, if there is one.
        has_thinlto: the modules are compiled with their ThinLTO indices, which the embedded
            compiler cannot do.

    >>> corpus = Corpus.load(SAMPLE_CORPUS)
    >>> corpus[corpus.names[0]].command[0]
    '-cc1'
    """

    folder: Path
    names: tuple[str, ...]
    global_command: tuple[str, ...] | None = None
    has_thinlto: bool = False

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Module:
        """Read a module.

        Raises:
            CorpusError: the corpus has no such module.
            ModuleError: its files cannot be read, or its command line is not one of ``-cc1``.
        """
        self._check(name)
        return _read(name, self.folder / f"{name}.bc", is_text=False, command=self.global_command)

    def only(self, names: Iterable[str]) -> Corpus:
        """The same corpus with some of its modules, in the order given.

        Raises:
            CorpusError: the corpus has no such module.
        """
        chosen = tuple(dict.fromkeys(names))
        for name in chosen:
            self._check(name)
        return replace(self, names=chosen)

    def size_bytes(self, name: str) -> int:
        """The size of a module's bitcode, about what it takes to compile it; 0 if it is missing."""
        path = self.folder / f"{name}.bc"
        return path.stat().st_size if path.exists() else 0

    def _check(self, name: str) -> None:
        if name not in self.names:
            near = [each for each in self.names if each.endswith(f"/{name}")]
            near = near or difflib.get_close_matches(name, self.names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise CorpusError(
                f"corpus {str(self.folder)!r}: expected one of its {len(self)} modules, "
                f"found {name!r}{hint}"
            )

    @classmethod
    def load(cls, folder: str | Path, *, allow_thinlto: bool = False) -> Corpus:
        """Open a corpus; the manifest is checked, the modules are not read yet.

        Args:
            folder: where it is.
            allow_thinlto: take one that was made for ThinLTO too.

        Raises:
            CorpusError: there is no usable manifest, it names missing files or files elsewhere,
                it names no module, its command line was left open, or it is one for ThinLTO.
        """
        folder = Path(folder)
        if not (folder / MANIFEST_NAME).exists():
            raise CorpusError(
                f"corpus {str(folder)!r}: expected {MANIFEST_NAME} in it, found none; "
                "'mlgo-gym corpus build' makes a corpus"
            )
        manifest = read_manifest(folder)
        if manifest.has_thinlto and not allow_thinlto:
            raise CorpusError(
                f"corpus {str(folder)!r}: expected has_thinlto false, found true: its modules "
                f"need ThinLTO's imports, which are not done here yet"
            )
        if manifest.global_command_override == UNSPECIFIED:
            raise CorpusError(
                f"corpus {str(folder)!r}: key 'global_command_override': expected the clang -cc1 "
                f"command line of its modules, found the placeholder {UNSPECIFIED[0]!r}: put the "
                "command line there"
            )
        return cls(folder, manifest.modules, manifest.global_command_override, manifest.has_thinlto)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus, which names a module."""
    try:
        manifest = Manifest.read(folder)
    except CorpusToolsError as error:
        raise CorpusError(str(error)) from error
    if not manifest.modules:
        raise CorpusError(f"corpus {str(folder)!r}: expected at least one module, found none")
    return manifest


def _read(
    name: str, path: Path, *, is_text: bool, command: tuple[str, ...] | None = None
) -> Module:
    command_path = path.with_suffix(".cmd")
    try:
        if command is None and command_path.exists():
            command = read_command(command_path)
        return Module(name, read_bounded(path, _MAX_MODULE_BYTES), command, is_text)
    except OSError as error:
        raise ModuleError(name, f"cannot read {str(path)!r}: {error.strerror}") from error
    except CorpusToolsError as error:
        raise ModuleError(name, str(error)) from error


def language_of(module: Module) -> str:
    """``C``, ``C++`` or `OTHER_LANGUAGE`, by ``-x``, else the module's name, else its source's.

    >>> language_of(Module("a.o", b"", ("-cc1", "-main-file-name", "a.cc")))
    'C++'
    """
    command = module.command or ()
    if language := _BY_OPTION.get(_value(command, "-x")):
        return language
    for source in (module.name, _value(command, "-main-file-name")):
        if language := _BY_SUFFIX.get(PurePosixPath(source).suffix):
            return language
    return OTHER_LANGUAGE


def _value(command: Sequence[str], option: str) -> str:
    """What stands behind an option; empty where it is not there."""
    at = command.index(option) + 1 if option in command else len(command)
    return next(iter(command[at : at + 1]), "")
