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
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import MANIFEST_NAME, UNSPECIFIED, Manifest, read_command
from mlgo_gym.base import CorpusError, ModuleError, file_stamp, local_folder, read_bounded

SAMPLE_CORPUS = Path(__file__).parent / "sample" / "corpus"
"""The corpus that ships with the package: C and C++ written for it."""

_MAX_MODULE_BYTES = 1 << 30

# The module flag of a profile; bitcode has strings of metadata one behind the other, as they are.
_PROFILE: Final = re.compile(rb'ProfileFormat(?:", !")?(?:CS)?InstrProf')

OTHER_LANGUAGE: Final = "other"
"""The name of a language that is neither C nor C++, or not known."""

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

    >>> Module.from_ir("define void @f() { ret void }").is_text
    True
    """

    name: str
    data: bytes = field(repr=False)
    command: tuple[str, ...] | None = field(default=None, repr=False)
    is_text: bool = False

    @cached_property
    def sha256(self) -> str:
        """The hash of the bytes, in hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

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


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module of a corpus that is yet to be read, by this process or by another one.

    Attributes:
        stamps: the sizes and times of its files, as far as there are any; that of the command line
            only where it is read.
    """

    name: str
    path: str
    command: tuple[str, ...] | None
    stamps: tuple[tuple[int, int] | None, ...]

    @classmethod
    def of(cls, name: str, path: str, command: tuple[str, ...] | None) -> ModuleFile:
        """The file of that path, without ``.bc``."""
        return cls(name, path, command, _stamps(path, command))

    @property
    def is_there(self) -> bool:
        """Whether there was bitcode, where it was looked for."""
        return self.stamps[0] is not None

    @property
    def is_here(self) -> bool:
        """Whether this process sees the same files."""
        return _stamps(self.path, self.command) == self.stamps

    def read(self) -> Module:
        """The module.

        Raises:
            ModuleError: its files cannot be read, or its command line is not one of ``-cc1``.
        """
        return _read(self.name, Path(f"{self.path}.bc"), is_text=False, command=self.command)


def read_files(taken: Any) -> Any:
    """Return the value with its modules read, also those in tuples.

    Raises:
        ModuleError: one cannot be.
    """
    if isinstance(taken, ModuleFile):
        return taken.read()
    return tuple(map(read_files, taken)) if type(taken) is tuple else taken


def _stamps(path: str, command: tuple[str, ...] | None) -> tuple[tuple[int, int] | None, ...]:
    bitcode = file_stamp(f"{path}.bc")
    return (bitcode, file_stamp(f"{path}.cmd")) if command is None else (bitcode,)


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
        return name in self._known

    def __getitem__(self, name: str) -> Module:
        """Read a module.

        Raises:
            CorpusError: the corpus has no such module.
            ModuleError: its files cannot be read, or its command line is not one of ``-cc1``.
        """
        self._check(name)
        return _read(name, self.folder / f"{name}.bc", is_text=False, command=self.global_command)

    def file(self, name: str) -> ModuleFile:
        """A module that is yet to be read.

        Raises:
            CorpusError: the corpus has no such module.
        """
        self._check(name)
        return ModuleFile.of(name, f"{self._place}/{name}", self.global_command)

    def only(self, names: Iterable[str]) -> Corpus:
        """Return the corpus with some of its modules, in the order given.

        Raises:
            CorpusError: the corpus has no such module.
        """
        chosen = tuple(dict.fromkeys(names))
        for name in chosen:
            self._check(name)
        return replace(self, names=chosen)

    def size_bytes(self, name: str) -> int:
        """The size of a module's bitcode, about what it takes to compile it; 0 if it is missing."""
        stamp = file_stamp(f"{self._place}/{name}.bc")
        return stamp[0] if stamp else 0

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _place(self) -> str:
        return str(self.folder.absolute())

    def _check(self, name: str) -> None:
        if name not in self._known:
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
            folder: where it is; also by URI, such as ``s3://BUCKET/KEY``.
            allow_thinlto: take one that was made for ThinLTO too.

        Raises:
            CorpusError: there is no usable manifest, it names missing files or files elsewhere,
                it names no module, its command line was left open, or it is one for ThinLTO.
        """
        folder = local_corpora(folder)
        if not (folder / MANIFEST_NAME).exists():
            inside = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST_NAME}"))
            hint = "'mlgo-gym corpus build' makes a corpus"
            if inside:
                hint = f"one of the corpora in it is {str(folder / inside[0])!r}"
            raise CorpusError(
                f"corpus {str(folder)!r}: expected {MANIFEST_NAME} in it, found none; {hint}"
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


def local_corpora(given: str | Path) -> Path:
    """The folder here of a corpus, or of several, that is given by path or URI.

    Raises:
        CorpusError: it is given by URI and cannot be copied.
    """
    try:
        return local_folder(given)
    except OSError as error:
        where = error.filename or given
        raise CorpusError(f"corpus {str(where)!r}: cannot be read: {error.strerror}") from error


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
    """Return the value of an option; empty where it is not there."""
    at = command.index(option) + 1 if option in command else len(command)
    return next(iter(command[at : at + 1]), "")
