"""Several compilers at once, each with a worker of its own, over a list of names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Final, TypeVar

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm.compiler import Compiler

__all__ = ["over_compilers"]

_T = TypeVar("_T")

_AHEAD: Final = 4
"""How many names for each worker are started before the first of them is taken."""


def over_compilers(
    run: Callable[[Compiler, str], _T], names: Sequence[str], *, jobs: int, timeout_s: float
) -> Generator[_T]:
    """What a function returns for each name, in the order of the names.

    With one job it is called in the caller's thread, with more in as many threads at once; work
    runs ahead of the consumer by a few names, and no more. Closing the iterator early ends the
    workers.

    Args:
        run: called with a compiler that nobody else uses meanwhile.
        names: what it is called with.
        jobs: how many compilers there are.
        timeout_s: their deadline, in seconds.

    Raises:
        OptionsError: ``jobs`` is not above 0.
    """
    if jobs < 1:
        raise OptionsError(f"jobs: expected a number above 0, found {jobs}")
    with ExitStack() as stack:
        compilers = [stack.enter_context(Compiler(timeout_s=timeout_s)) for _ in range(jobs)]
        if jobs == 1:
            yield from (run(compilers[0], name) for name in names)
        else:
            yield from _in_parallel(run, compilers, names)


def _in_parallel(
    run: Callable[[Compiler, str], _T], compilers: Sequence[Compiler], names: Sequence[str]
) -> Iterator[_T]:
    idle: SimpleQueue[Compiler] = SimpleQueue()
    for compiler in compilers:
        idle.put(compiler)

    def run_with_idle(name: str) -> _T:
        compiler = idle.get()
        try:
            return run(compiler, name)
        finally:
            idle.put(compiler)

    ahead: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(len(compilers), "mlgo-gym-pool") as pool:
        try:
            for name in names:
                ahead.append(pool.submit(run_with_idle, name))
                if len(ahead) >= _AHEAD * len(compilers):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BaseException:  # also where the consumer closes this generator
            pool.shutdown(wait=False, cancel_futures=True)
            for compiler in compilers:
                compiler.interrupt()
            raise
