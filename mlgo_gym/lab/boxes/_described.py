"""Programs whose functions are boxed: made of a corpus, or saved with their boxes in a folder.

A saved one is a corpus whose modules are one function each, as candidates are compiled from: all
that takes a corpus takes it. Its folder ``workloads`` holds the program, what it reads, and
``boxes.json``.

Everything that was local to a module gets a name of the whole program's, so that a candidate, which
is one function alone, refers to the same functions, variables and constants as the program does.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corpus_tools.errors import CorpusToolsError
from corpus_tools.manifest import Manifest, encode_command, write_json
from corpus_tools.reading import Shape, shaped
from corpus_tools.scratch import scratch_folder
from corpus_tools.staging import INFO_NAME, WORKLOAD_FILES, WORKLOADS, digests_of, staged_corpus
from corpus_tools.workloads import DESCRIPTION, Workload, load_workloads
from mlgo_gym.base import WorkloadError, read_bounded, read_json
from mlgo_gym.corpus import Corpus, Module
from mlgo_gym.curation import file_name
from mlgo_gym.lab.boxes._tracing import MOST_FUNCTIONS
from mlgo_gym.lab.programs import Programs, wrong
from mlgo_gym.llvm import (
    ATTRIBUTE_GROUP,
    NAME_PATTERN,
    OPTIMIZE,
    Compiler,
    Function,
    ModuleText,
    Task,
    embedded_version,
    exported,
    function_texts,
    linkage_of,
    name_in_assembly,
    options_of,
    variable_elsewhere,
)

NOP_BYTES: Final = 5
"""The length of the instruction that each boxed function begins with, which does nothing."""
ENTRY: Final = ".entry"
"""Behind a function's name: where the program has it, in a candidate of it."""

LOCAL: Final = ".of"
"""Behind the name of what was local to a module, before the module's number."""

_LOCAL: Final = frozenset({"private", "internal"})
_TOKEN: Final = re.compile(rf'@({NAME_PATTERN})|"[^"]*"')
_LINKAGE: Final = re.compile(r"^(define|@(?:\"[^\"]*\"|[-\w$.]+) =) (?:private|internal) ")
_TAIL: Final = re.compile(
    r"(?= (?:section |comdat|align |gc |prefix |prologue |personality |!|\{$))"
)
_MARKS: Final = f' noinline "patchable-function-entry"="{NOP_BYTES}"'
_ALWAYS: Final = re.compile(r"\b(?:alwaysinline|naked)\b")

BOXES: Final = "boxes.json"
PROGRAM: Final = "program"
_VERSION: Final = 1
_LARGEST_BYTES: Final = 1 << 26
_LARGEST_PROGRAM: Final = 1 << 30
_LIBRARY: Final = ("memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen")
"""Functions that LLVM may call where the source does not."""

_DAMAGED: Final = (OSError, ValueError)
_SHAPE: Final[Shape] = {
    "version": int,
    "llvm": str,
    "program_sha256": str,
    "opt_level": (str, type(None)),
    "headers": {"*": str},
    "boxes": [{"module": str, "function": str, "call": int, "effects": str}],
}


def opened(module: ModuleText, number: int) -> ModuleText:
    """The module with nothing that is local to it.

    Args:
        module: as LLVM printed it.
        number: what tells its names from those of other modules.
    """
    local = {
        *(name for name, line in module.variables.items() if linkage_of(line) in _LOCAL),
        *(name for name, each in module.functions.items() if each.linkage in _LOCAL),
    }
    names = {
        name: _with(name, f"{LOCAL}{number}") for name in local if not name.startswith("llvm.")
    }

    def renamed(text: str) -> str:
        return _TOKEN.sub(lambda m: f"@{names[m[1]]}" if m[1] in names else m[0], text)

    def line(name: str, text: str) -> str:
        return _LINKAGE.sub(r"\1 dso_local ", renamed(text)) if name in names else renamed(text)

    return replace(
        module,
        variables={
            names.get(name, name): line(name, each) for name, each in module.variables.items()
        },
        functions={
            names.get(name, name): Function(
                names.get(name, name),
                line(name, each.header),
                tuple(map(renamed, each.body)),
            )
            for name, each in module.functions.items()
        },
        declarations={name: renamed(each) for name, each in module.declarations.items()},
        metadata={name: renamed(each) for name, each in module.metadata.items()},
    )


def _with(name: str, suffix: str) -> str:
    if name.endswith('"'):
        return f'{name[:-1]}{suffix}"'
    return f"boxed.{name}{suffix}" if name.isdigit() else f"{name}{suffix}"


def boxable(module: ModuleText) -> Iterator[tuple[str, str]]:
    """The functions of a module that can be called: as they are written, and their symbols."""
    for written, function in module.functions.items():
        if function.linkage != "available_externally" and not _is_inlined(module, function):
            yield written, name_in_assembly(written)


def _is_inlined(module: ModuleText, function: Function) -> bool:
    words = [function.header, *(module.attribute_groups[g] for g in _groups(module, function))]
    return any(_ALWAYS.search(each) for each in words)


def _groups(module: ModuleText, function: Function) -> Iterator[str]:
    return (g for g in ATTRIBUTE_GROUP.findall(function.header) if g in module.attribute_groups)


def marked(module: ModuleText, names: Collection[str]) -> ModuleText:
    """The module in which functions are not inlined, and can be redirected where they begin."""
    return replace(
        module,
        functions={
            name: replace(each, header=_marked(each.header)) if name in names else each
            for name, each in module.functions.items()
        },
    )


def _marked(header: str) -> str:
    places = [match.start() for match in ATTRIBUTE_GROUP.finditer(header)]
    if not places:
        place = _TAIL.search(header, header.rindex(")"))
        places = [place.start() if place else len(header)]
    return header[: places[-1]] + _MARKS + header[places[-1] :]


def candidate(module: ModuleText, name: str) -> str:
    """A module that defines one function, and all else as the program has it.

    Functions that it calls can be inlined; what is left of their calls goes to the program's.

    Args:
        module: an opened one.
        name: the function, as it is written.
    """
    function = module.functions[name]
    alone = replace(
        module,
        comdats=[],
        variables={each: variable_elsewhere(each, line) for each, line in module.variables.items()},
        functions=module.functions | {name: replace(function, header=exported(function.header))},
    )
    ((_, text),) = function_texts(alone, [name], keeps_callees=True)
    entry = _with(name, ENTRY)
    taken = re.compile(rf"(?<!blockaddress\()@{re.escape(name)}(?![-\w$.(])")
    if taken.search(text):
        text = f"{taken.sub(f'@{entry}', text)}\ndeclare void @{entry}()\n"
    return text


@dataclass(frozen=True, slots=True)
class Described:
    """A program that can be run, and its functions.

    Attributes:
        workload: how it is run.
        path: its file.
        headers: the ``define`` line of each function, by its symbol.
        module_of: the module of one function, as a candidate is compiled from.
        opt_level: clang's level to compile candidates at; ``None`` takes each module's own.
        wanted: calls that are boxed where nothing else is asked for: function, number of the call
            and the hash of its effects.
    """

    workload: Workload
    path: Path
    headers: Mapping[str, str]
    module_of: Callable[[str], Module]
    opt_level: str | None = None
    wanted: tuple[tuple[str, int, str], ...] = ()


class Prepared:
    """A workload's program whose functions are not inlined, and the modules that it is made of.

    Args:
        corpus: whose modules it is linked of.
        workload: the name of the one that says how it is run.
        opt_level: clang's level to compile modules at; ``None`` takes each one's own.
        compiler: what compiles them.
        stack: removes its files.

    Attributes:
        workload: how it is run.
        texts: its modules, with nothing local to them.
        places: the module of each function, and its name in assembly, by its symbol.
    """

    def __init__(
        self,
        corpus: Corpus,
        workload: str,
        opt_level: str | None,
        compiler: Compiler,
        stack: ExitStack,
    ) -> None:
        self._corpus, self._opt_level, self._compiler = corpus, opt_level, compiler
        self._stack = stack
        self._folder = stack.enter_context(scratch_folder())
        self._programs = stack.enter_context(Programs(corpus, [workload], opt_level=opt_level))
        self.workload: Final = self._programs.workloads[workload]
        names = self._programs.modules(workload)
        self.texts: Final = {
            name: opened(self._text(corpus[name]), number) for number, name in enumerate(names)
        }
        self.places: Final[dict[str, tuple[str, str]]] = {}
        for name, text in self.texts.items():
            for written, symbol in boxable(text):
                self.places.setdefault(symbol, (name, written))
        if len(self.places) > MOST_FUNCTIONS:
            expected = f"expected at most {MOST_FUNCTIONS:,} functions"
            raise wrong(self.workload, f"{expected}, found {len(self.places):,}")

    def _text(self, module: Module) -> ModuleText:
        task = Task(optimize=False, product="text")
        options = options_of(module, self._opt_level)
        text = self._compiler.produce(module, options, task).data.decode()
        if "\nmodule asm " in text:
            found = f"found some in {module.name}"
            raise wrong(self.workload, f"expected modules without assembly, {found}")
        return ModuleText.read(text)

    def linked(self) -> Path:
        """The program, which goes with the stack."""
        objects, flags = [], [f"-Wl,-u,{name}" for name in _LIBRARY]
        for name, text in self.texts.items():
            own = {written for module, written in self.places.values() if module == name}
            made = self._module(name, str(marked(text, own)))
            options = options_of(self._corpus[name], self._opt_level)
            result = self._compiler.compile_module(made, options, keep_object=True)
            objects.append(self._written(result.object_bytes or b""))
        program = self._programs.linked_objects(self.workload, objects, flags)
        return self._stack.enter_context(program)

    def _written(self, data: bytes) -> Path:
        path = self._folder / f"{len(list(self._folder.iterdir()))}.o"
        path.write_bytes(data)
        return path

    def _module(self, name: str, text: str) -> Module:
        return replace(self._corpus[name], data=text.encode(), is_text=True)

    def module_of(self, function: str) -> Module:
        """The module of one function, which a candidate is compiled from."""
        name, written = self.places[function]
        return self._module(name, candidate(self.texts[name], written))

    def described(self) -> Described:
        """The program, linked."""
        headers = {
            symbol: self.texts[name].functions[written].header
            for symbol, (name, written) in self.places.items()
        }
        path = self.linked()
        return Described(self.workload, path, headers, self.module_of, self._opt_level)


def write(described: Described, folder: Path, compiler: Compiler) -> None:
    """Save a program with the boxes that are wanted of it.

    Args:
        described: the program.
        folder: what is written; it appears whole or not at all.
        compiler: makes bitcode of its functions.
    """
    functions = dict.fromkeys(name for name, _, _ in described.wanted)
    modules = {name: file_name(name) for name in functions}
    workload = described.workload
    with staged_corpus(folder) as staged:
        for function, name in modules.items():
            module = described.module_of(function)
            options = options_of(module, described.opt_level)
            task = replace(OPTIMIZE, optimize=False)
            bitcode = compiler.produce(module, options, task).data
            (staged / f"{name}.bc").write_bytes(bitcode)
            if command := _command(module, described.opt_level):
                (staged / f"{name}.cmd").write_bytes(encode_command(command))
        own = staged / WORKLOADS
        own.mkdir()
        shutil.copy(described.path, own / PROGRAM)  # with the right to execute it
        for name in {*workload.files, *filter(None, [workload.stdin])}:
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workload.folder / name, own / name)
        (own / DESCRIPTION).write_text(_table(workload), encoding="utf-8")
        boxes = [
            {"module": modules[function], "function": function, "call": call, "effects": sha256}
            for function, call, sha256 in described.wanted
        ]
        about = {
            "version": _VERSION,
            "llvm": embedded_version(),
            "program_sha256": hashlib.sha256(described.path.read_bytes()).hexdigest(),
            "opt_level": described.opt_level,
            "headers": {name: described.headers[name] for name in functions},
            "boxes": boxes,
        }
        write_json(own / BOXES, about)
        Manifest(tuple(modules.values())).write(staged)
        write_json(staged / INFO_NAME, {WORKLOAD_FILES: digests_of(own)})


def _command(module: Module, opt_level: str | None) -> tuple[str, ...]:
    """How it is compiled; nothing where its functions' attributes say so."""
    if opt_level is None:
        return module.command or ()
    return (*(module.command or ("-cc1",)), f"-{opt_level}")


def _table(workload: Workload) -> str:
    """A workload's description; it is linked already, and never again."""
    fields = ("about", "arguments", "files", "stdin", "stdout_sha256", "exit_status")
    values = {name: getattr(workload, name) for name in (*fields, "timeout_s", "memory_mib")}
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in values.items() if value or value == 0
    ]
    return "\n".join([f"[workload.{workload.name}]", 'modules = ["*"]', *lines, ""])


def saved(folder: Path) -> Described:
    """A program that was saved with boxes."""
    corpus = Corpus.load(folder)
    own = folder / WORKLOADS
    try:
        about = shaped(read_json(own / BOXES, _LARGEST_BYTES), _SHAPE)
        (workload,) = load_workloads(own)
        if about["version"] != _VERSION:
            raise ValueError(f"expected version {_VERSION}, found {about['version']!r}")
        boxes = tuple((each["function"], each["call"], each["effects"]) for each in about["boxes"])
        modules = {each["function"]: each["module"] for each in about["boxes"]}
        headers = about["headers"]
        found = hashlib.sha256(read_bounded(own / PROGRAM, _LARGEST_PROGRAM)).hexdigest()
        level = about["opt_level"]
        if not modules or set(modules) != set(headers) or not set(modules.values()) <= set(corpus):
            raise ValueError("expected a module and a definition of each function")
    except FileNotFoundError as error:
        name = Path(error.filename or own).name
        raise _wrong(
            folder, f"expected what 'mlgo-gym box record' writes, found no {name}"
        ) from error
    except (*_DAMAGED, CorpusToolsError) as error:
        expected = "expected what 'mlgo-gym box record' writes, found another or a damaged one"
        raise _wrong(folder, f"{expected}: {error}") from error
    if about["llvm"] != embedded_version():
        expected = f"expected LLVM {embedded_version()}"
        raise _wrong(folder, f"{expected}, found that it was recorded with {about['llvm']!r}")
    if found != about["program_sha256"]:
        expected = f"expected the program of SHA-256 {about['program_sha256']}"
        raise _wrong(folder, f"{expected}, found {found}; record it again")
    return Described(
        workload, own / PROGRAM, headers, lambda name: corpus[modules[name]], level, boxes
    )


def _wrong(folder: Path, problem: str) -> WorkloadError:
    return WorkloadError(f"boxes {str(folder)!r}: {problem}")
