"""Work on many modules with several compilers at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Final, TypeVar

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler

_T = TypeVar("_T")

_AHEAD: Final = 4
"""How many names for each worker are started before the first of them is taken."""


def map_names(
    run: Callable[[Compiler, str], _T],
    names: Sequence[str],
    *,
    jobs: int,
    timeout_s: float,
    in_order: bool = True,
) -> Generator[_T]:
    """What a function makes of each name with a compiler of its own.

    Closing the iterator early ends the workers. With one job the function is called in the
    caller's thread, with more in as many threads at once.

    Args:
        run: called once for each name.
        names: of modules.
        jobs: how many compilers there are.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        in_order: what comes out keeps the names' order; otherwise it comes as it is finished.

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
            yield from _in_parallel(run, compilers, names, in_order=in_order)


def _in_parallel(
    run: Callable[[Compiler, str], _T],
    compilers: Sequence[Compiler],
    names: Sequence[str],
    *,
    in_order: bool,
) -> Iterator[_T]:
    """Work runs ahead of the consumer by a few names, and no more."""
    idle: SimpleQueue[Compiler] = SimpleQueue()
    for compiler in compilers:
        idle.put(compiler)

    def run_idle(name: str) -> _T:
        compiler = idle.get()
        try:
            return run(compiler, name)
        finally:
            idle.put(compiler)

    ahead: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(len(compilers), "mlgo-gym") as pool:
        try:
            for name in names:
                ahead.append(pool.submit(run_idle, name))
                if len(ahead) >= _AHEAD * len(compilers):
                    yield _next_of(ahead, in_order=in_order).result()
            while ahead:
                yield _next_of(ahead, in_order=in_order).result()
        except BaseException:  # also where the consumer closes this generator
            pool.shutdown(wait=False, cancel_futures=True)
            for compiler in compilers:
                compiler.interrupt()
            raise


def _next_of(ahead: deque[Future[_T]], *, in_order: bool) -> Future[_T]:
    """Take the first, or whichever is finished first."""
    if in_order:
        return ahead.popleft()
    finished = wait(ahead, return_when=FIRST_COMPLETED).done
    future = next(each for each in ahead if each in finished)
    ahead.remove(future)
    return future
