"""A program whose functions are boxed: prepared, linked, and run to the calls that are wanted."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from corpus_tools.clang import find_clang
from corpus_tools.printable import listed
from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import Corpus, Module
from mlgo_gym.lab.boxes._box import Box, Frame
from mlgo_gym.lab.boxes._described import LOCAL, NOP_BYTES, Described, Prepared, saved, write
from mlgo_gym.lab.boxes._image import Image, Symbols, linked
from mlgo_gym.lab.boxes._traced_run import Counted, Run, traced
from mlgo_gym.lab.boxes._tracing import CANDIDATE, DATA, NAME, TIMER, Tracee, timer_text
from mlgo_gym.lab.programs import (
    check_end,
    check_machine,
    compare_output,
    wrong,
)
from mlgo_gym.llvm import Compiler, default_triple, options_of
from mlgo_gym.problems import PolicyLike, Problem

_TRAPS: Final = MappingProxyType(
    {
        **dict.fromkeys(("longjmp", "__longjmp"), "longjmp"),
        **dict.fromkeys(("_setjmp", "__sigsetjmp"), "setjmp"),
        "__cxa_throw": "__cxa_throw, an exception",
    }
)
"""Calls that cannot be in a box, by their symbols."""
_ENDBR: Final = b"\xf3\x0f\x1e\xfa"
_NOPS: Final = (b"\x0f\x1f\x44\x00", b"\x90" * NOP_BYTES)
"""Bytes that it begins with; LLVM puts any number behind the first."""
_SHOWN: Final = 5


class BoxedProgram(AbstractContextManager["BoxedProgram"]):
    """A program, any call of whose functions can be boxed.

    Its functions are not inlined, so that each call is one. All boxes end with it.

    Args:
        described: the program.
        compiler: what compiles candidates.
        stack: closed at the end.

    Attributes:
        workload: how it is run.
        path: its file.
        functions: the names of the functions that can be boxed.
        sha256: the hash of the program, in hexadecimal digits.
        wanted: calls that were boxed when it was saved: function, and number of the call.

    Raises:
        EnvironmentSetupError: the system lets no process be traced.
        ToolchainError: there is no clang to link with.
        OptionsError: this machine's code is not that of x86-64, or it is not Linux.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> with BoxedProgram.of(Corpus.load(SAMPLE_CORPUS), "json") as program:
    ...     box = program.box("parse_number.of0", call=10)
    ...     image = program.image(box.function, program.compiled(box.function))
    ...     box.trial(image).difference
    ''
    """

    @classmethod
    def of(cls, corpus: Corpus, workload: str, *, opt_level: str | None = None) -> Self:
        """The program of a workload, prepared and linked.

        Args:
            corpus: whose modules it is linked of.
            workload: the name of the one that says how it is run.
            opt_level: clang's level to compile modules at; ``None`` takes each one's own.

        Raises:
            WorkloadError: the workload cannot be used, or a module has assembly of its own.
        """
        return cls._made(lambda *how: Prepared(corpus, workload, opt_level, *how).described())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The program of boxes that were saved.

        Raises:
            WorkloadError: it cannot be read, or is no whole folder of this version.
            CorpusError: it has no modules.
        """
        return cls._made(lambda *_: saved(Path(folder)))

    @classmethod
    def _made(cls, described: Callable[[Compiler, ExitStack], Described]) -> Self:
        check_machine("boxes")
        with ExitStack() as stack:
            compiler = stack.enter_context(Compiler())
            made = cls(described(compiler, stack), compiler, stack)
            made._stack = stack.pop_all()
            return made

    def __init__(self, described: Described, compiler: Compiler, stack: ExitStack) -> None:
        self._described = described
        self._compiler = compiler
        self._clang = find_clang()
        self._boxes: list[Box] = []
        self._alone = stack.enter_context(ThreadPoolExecutor(1, "tracer"))
        stack.callback(self._end_boxes)
        self.workload: Final = described.workload
        self.path: Final = described.path
        self.wanted: Final = tuple((name, call) for name, call, _ in described.wanted)
        self.sha256: Final = hashlib.sha256(described.path.read_bytes()).hexdigest()
        self._symbols = Symbols(described.path)
        self._entries = self._alone.submit(self._look).result()
        self.functions: Final = tuple(self._entries)
        self._numbers = {name: number for number, name in enumerate(self.functions)}
        self._stack = stack

    def close(self) -> None:
        """End all boxes, and remove all files."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def calls(self) -> dict[str, int]:
        """How often a run of the program calls each of its functions, of those that it calls.

        Raises:
            WorkloadError: it does something else than it must.
        """
        return self._alone.submit(self._count).result()

    def box(self, function: str, call: int = 1) -> Box:
        """A call of a function, boxed.

        Args:
            function: its name.
            call: the number of the call; the first is 1.

        Raises:
            WorkloadError: there is no such function or no such call.
        """
        return self.boxes([(function, call)])[0]

    def boxes(self, wanted: Iterable[tuple[str, int]]) -> list[Box]:
        """Calls of functions, boxed in one run of the program, in the order of what is wanted.

        Args:
            wanted: each function's name, and the number of the call.

        Raises:
            WorkloadError: there is no such function or no such call.
        """
        return self._alone.submit(self._record, list(wanted)).result()

    def recorded(self) -> list[Box]:
        """The boxes that it was saved with.

        Raises:
            WorkloadError: a call does something else than it did when it was saved.
        """
        boxes = self.boxes(self.wanted)
        for box, (_, _, expected) in zip(boxes, self._described.wanted, strict=True):
            if (found := box.original.sha256()) != expected:
                raise box.error(f"expected effects {expected}, found {found}")
        return boxes

    def save(self, folder: Path | str, wanted: Sequence[tuple[str, int]]) -> None:
        """Write calls of functions to a folder, which is a corpus of these functions, too.

        It has all that is needed to box them again. An older one is replaced.

        Args:
            folder: which; it appears whole or not at all.
            wanted: each function's name, and the number of the call.

        Raises:
            WorkloadError: there is no such function or call, or it cannot be repeated.
            OutputError: something else than a corpus is there, or nothing can be written.
        """
        effects = [box.original.sha256() for box in self.boxes(wanted)]
        calls = [(*each, sha256) for each, sha256 in zip(wanted, effects, strict=True)]
        write(replace(self._described, wanted=tuple(calls)), Path(folder), self._compiler)

    def no_call(self, function: str, call: int, made: int) -> WorkloadError:
        """The error of a call that does not come.

        Args:
            function: its name.
            call: the number of the call.
            made: how many there are.
        """
        found = f"expected call {call:,}, found {made:,}"
        return wrong(self.workload, f"function {function!r}: {found}")

    def symbol(self, name: str) -> str:
        """The function of a name, or the only one that had the name in its module.

        Raises:
            WorkloadError: there is none, or several.
        """
        if name in self._numbers:
            return name
        local = [each for each in self.functions if each.rpartition(LOCAL)[0] == name]
        if len(local) > 1:
            raise wrong(self.workload, f"function {name!r}: expected one of {listed(local, name)}")
        if not local:
            self._check(name)
        return local[0]

    def module(self, function: str) -> Module:
        """The module of one function, which candidates are compiled from."""
        self._check(function)
        return self._described.module_of(function)

    def compiled(
        self,
        function: str,
        answers: Mapping[Problem, PolicyLike] = MappingProxyType({}),
        *,
        opt_level: str | None = None,
    ) -> bytes:
        """The object of a function alone, which has inlined of what it calls what policies want.

        Args:
            function: its name.
            answers: the policies; LLVM's own heuristics decide what they do not.
            opt_level: clang's level; ``None`` takes the program's.

        Raises:
            WorkloadError: the program has no such function.
            ModuleError: it cannot be compiled.
        """
        module = self.module(function)
        options = options_of(module, opt_level or self._described.opt_level)
        made = self._compiler.compile_module(module, options, also=answers, keep_object=True)
        return made.object_bytes or b""

    def image(self, function: str, made: bytes) -> Image:
        """An object of a function, linked to be tried in its boxes.

        Args:
            function: its name.
            made: the object, as of `compiled`.

        Raises:
            WorkloadError: it needs something that the program does not have.
        """
        self._check(function)
        return self._linked(made, function, CANDIDATE)

    def _linked(self, made: bytes, function: str, address: int) -> Image:
        clang, symbols = self._clang, self._symbols
        return linked(made, function, clang=clang, address=address, symbols=symbols)

    def _check(self, function: str) -> None:
        if function not in self._numbers:
            some = ", ".join(self.functions[:_SHOWN])
            count = len(self.functions)
            found = f"expected one of {count:,}, such as {some}; found none of this name"
            raise wrong(self.workload, f"function {function!r}: {found}")

    @contextmanager
    def _run(self) -> Iterator[Run]:
        """A run that has come to ``main``."""
        with traced(self.workload, self._described.path) as run:
            if (stop := run.until(self._symbols["main"].address)).status is not None:
                raise wrong(self.workload, f"expected to come to 'main', found {stop}")
            yield run

    def _look(self) -> dict[str, int]:
        """See what only a process that has started knows: where functions begin."""
        with self._run() as run:
            self._symbols.choose(run.process.word)
            found = {name: self._entry(run.process, name) for name in self._described.headers}
        # Of what several modules have the linker keeps one, which may be of the sources that drive.
        return {name: each for name, each in found.items() if each is not None}

    def _entry(self, process: Tracee, name: str) -> int | None:
        """The address of a function's instruction that does nothing, where it has one."""
        if name not in self._symbols:
            return None
        address = self._symbols[name].address
        if process.read(address, len(_ENDBR)) == _ENDBR:
            address += len(_ENDBR)
        is_there = process.read(address, NOP_BYTES).startswith(_NOPS)
        return address if is_there else None

    def _count(self) -> dict[str, int]:
        with self._run() as run:
            counted = Counted(run.process, list(self._entries.values()))
            if (stop := run.until(self._symbols["_exit"].address)).status is None:
                found = {name: counted.calls(number) for name, number in self._numbers.items()}
                stop = run.go_on()
            result = run.result(stop.status if stop.status is not None else -1)
            check_end(self.workload, result)
            compare_output(self.workload, result)
            return {name: calls for name, calls in found.items() if calls}

    def _record(self, wanted: Sequence[tuple[str, int]]) -> list[Box]:
        pending: dict[int, list[int]] = {}
        for name, call in sorted(set(wanted)):
            self._check(name)
            if call < 1:
                expected = f"expected call 1 or more, found {call}"
                raise wrong(self.workload, f"function {name!r}: {expected}")
            pending.setdefault(self._numbers[name], []).append(call)
        found: dict[tuple[str, int], Box] = {}
        with self._run() as run:
            counted = Counted(run.process, list(self._entries.values()))
            run.break_at(self._symbols["_exit"].address)
            for number, calls in pending.items():
                counted.stop_at(number, calls[0])
            while pending:
                at = self._next(run, counted)
                if at is None:
                    number, calls = next(iter(pending.items()))
                    name = self.functions[number]
                    raise self.no_call(name, calls[0], counted.calls(number))
                name, call = self.functions[at], pending[at].pop(0)
                found[name, call] = self._box(counted.boxed(at), name, call)
                self._boxes.append(found[name, call])
                if pending[at]:
                    counted.stop_at(at, pending[at][0])
                else:
                    del pending[at]
                    counted.stop_never(at)
        return [found[each] for each in wanted]

    def _next(self, run: Run, counted: Counted) -> int | None:
        """Go on to the next call that is wanted; ``None`` at the program's end."""
        stop = run.go_on()
        if stop.status is not None or stop.signal != signal.SIGTRAP:
            raise wrong(self.workload, f"expected a call or to end by 'exit', found {stop}")
        return counted.stopped_at()

    def _box(self, process: Tracee, name: str, call: int) -> Box:
        frame = replace(self._frame, name=name, header=self._described.headers[name])
        return Box(process, frame, call, self._alone)

    @cached_property
    def _frame(self) -> Frame:
        """Facts that all boxes share."""
        text = timer_text(DATA, default_triple())
        made = self._compiler.compile_module(Module.from_ir(text), keep_object=True)
        symbols = self._symbols
        traps = {symbols[name].address: each for name, each in _TRAPS.items() if name in symbols}
        return Frame(
            name="",
            header="",
            entries=frozenset(self._entries.values()),
            traps=traps,
            symbols=symbols,
            timer=self._linked(made.object_bytes or b"", NAME, TIMER),
        )

    def _end_boxes(self) -> None:
        for each in self._boxes:
            self._alone.submit(each.end).result()
        self._boxes.clear()
