"""Plain clang forks for each model whose object is compared: what that makes, and leaves.

Where it does not fork, each model has a compilation of its own; both ways make the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus
from tests.cc.conftest import CHANNEL, MODELS, SOURCE, Driver
from tests.cc.test_kills import left_over
from tests.cc.test_streams import in_place_of_clang
from tests.waiting import wait_for

OTHER, NEVER = str(MODELS / "inliner"), str(MODELS / "never")
LOWEST = str(MODELS / "lowest_density")
TWO = {"MLGO_KEEP_SMALLER": f"{OTHER},{NEVER}"}
UNKNOWN = {"MLGO_KEEP_SMALLER": str(MODELS / "unknown_feature")}
COUNTING = (
    'case "$*" in *-###*) ;; *" -c "*) echo >> $(dirname $0)/count;; esac\nexec $clang "$@"\n'
)

# A library that a user preloads: LLVM's options are set through it, which forked processes do.
BEFORE_OPTIONS = """
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
void LLVMParseCommandLineOptions(int count, const char *const *words, const char *text) { %s; }
"""


def prepared(driver: Driver, work: Path, script: str = COUNTING) -> dict[str, str]:
    """Settings for the driver, which has frozen the models."""
    folder = work.parent / "program"
    folder.mkdir(exist_ok=True)
    settings = in_place_of_clang(driver, folder, script) | TWO
    del settings["MLGO_INLINING_MODEL"]
    assert driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings).returncode == 0
    (work / "f.o").unlink()
    (folder / "count").unlink(missing_ok=True)
    return settings


def preloading(driver: Driver, work: Path, words: str) -> dict[str, str]:
    """Settings under which forked processes do something else than to set LLVM's options."""
    settings = prepared(driver, work)
    folder = work.parent / "users"
    folder.mkdir()
    (folder / "users.c").write_text(BEFORE_OPTIONS % words)
    flags = ("-shared", "-fPIC", "users.c", "-o", "users.so")
    assert driver.plain(*flags, cwd=folder).returncode == 0
    return {**settings, "LD_PRELOAD": str(folder / "users.so")}


def compilations(work: Path) -> int:
    """How often clang was started to compile."""
    count = work.parent / "program" / "count"
    lines = len(count.read_text().splitlines())
    count.unlink()
    return lines


def files(work: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in work.iterdir()}


def made(
    driver: Driver, work: Path, line: tuple[str, ...], settings: dict[str, str]
) -> tuple[dict[str, bytes], bytes, list[str]]:
    """The files that a command line leaves, what it says, and the log."""
    before = set(files(work))
    log = work / "kept.tsv"
    log.unlink(missing_ok=True)
    done = driver.run(*line, cwd=work, settings={"MLGO_KEPT_LOG": str(log), **settings})
    assert done.returncode == 0, done.stderr
    found = {name: data for name, data in files(work).items() if name not in before}
    for name in found:
        (work / name).unlink()
    kept = found.pop(log.name).decode().splitlines()
    return found, done.stdout + done.stderr, kept


LINES = {
    "C": ("-Oz", "-c", "{source}", "-o", "out.o", "-MD", "-MF", "out.d", "-g"),
    "C++": ("-Oz", "-c", "{source}", "-o", "out.o"),
    "bitcode": ("-Oz", "-x", "ir", "-w", "-c", "{source}", "-o", "out.o"),
}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("C", ("src/expr_compile.c", "src/digest.c", "src/json_write.c")),
        ("C++", ("src/graph.cpp", "src/lru_cache.cpp")),
        ("bitcode", ("corpus/expr_compile.c.bc", "corpus/lru_cache.cpp.bc")),
    ],
)
def test_forks_make_what_compilations_make(
    driver: Driver, sample: Corpus, work: Path, kind: str, names: tuple[str, ...]
) -> None:
    settings = prepared(driver, work) | {"MLGO_KEEP_SMALLER": f"inlining-for-size,{OTHER}"}
    kept = []
    for name in names:
        source = sample.folder.parent / name
        line = tuple(word.format(source=source) for word in LINES[kind])
        forked = made(driver, work, line, settings)
        assert compilations(work) == 1
        assert forked == made(driver, work, line, settings | CHANNEL)
        assert compilations(work) == 3
        kept += [row.split("\t")[0] for row in forked[2]]
    assert {*kept} - {"LLVM"}


@pytest.mark.e2e
def test_models_that_llvm_reads_files_of(driver: Driver, sample: Corpus, work: Path) -> None:
    """A vocabulary; and a model for register allocation beside the inliner's."""
    models = {"MLGO_KEEP_SMALLER": str(MODELS / "short"), "MLGO_REGALLOC_MODEL": LOWEST}
    settings = prepared(driver, work) | models
    line = ("-Oz", "-c", str(sample.folder.parent / "src" / "expr_compile.c"), "-o", "out.o")
    forked = made(driver, work, line, settings)
    assert forked == made(driver, work, line, settings | CHANNEL)
    assert forked[2][0].startswith(models["MLGO_KEEP_SMALLER"])


def test_clang_says_everything_once(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text("#warning once\nint h(void) { int unused; return 1; }\n" + SOURCE)
    line = ("-Oz", "-Wall", "-c", "f.c", "-MD", "-o", "out.o")
    expected = driver.plain(*line, cwd=work)
    assert expected.stderr.count(b"warning: ") == 2
    own = {name: (work / name).read_bytes() for name in ("out.o", "out.d")}
    for each in own:
        (work / each).unlink()
    settings = prepared(driver, work) | {"MLGO_KEEP_SMALLER": NEVER}
    found, said, kept = made(driver, work, line, settings)
    assert (found["out.d"], said) == (own["out.d"], expected.stderr)
    assert [row.split("\t")[0] for row in kept] == ["LLVM" if found == own else NEVER]
    assert compilations(work) == 1


def test_no_fork_locks_what_clang_shares(driver: Driver, work: Path) -> None:
    settings = prepared(driver, work)
    (work / "f.c").write_text("#include <stdarg.h>\n" + SOURCE)
    line = ("-Oz", "-fmodules", "-fmodules-cache-path=cache", "-c", "f.c")
    done = driver.run(*line, cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [*(work / "cache").rglob("*.pcm")]
    assert not [*(work / "cache").rglob("*.lock*")]


def test_many_models_take_turns(driver: Driver, work: Path) -> None:
    settings = prepared(driver, work)
    two = made(driver, work, ("-Oz", "-c", "f.c"), settings)
    many = settings | {"MLGO_KEEP_SMALLER": ",".join([OTHER, NEVER] * 6)}
    assert made(driver, work, ("-Oz", "-c", "f.c"), many) == two
    assert compilations(work) == 2


@pytest.mark.parametrize("option", ["-fno-temp-file", "-fno-integrated-as"])
def test_where_clang_does_not_fork(driver: Driver, work: Path, option: str) -> None:
    """What it writes is not what it gives the object's name at the end."""
    line = ("-Oz", "-c", "f.c", option)
    settings = prepared(driver, work)
    forked = made(driver, work, line, settings)
    assert compilations(work) == 3
    assert forked == made(driver, work, line, settings | CHANNEL)
    assert {*files(work)} == {"f.c"}


@pytest.mark.parametrize("way", [{}, CHANNEL], ids=["forks", "compilations"])
def test_a_model_that_fails(driver: Driver, work: Path, way: dict[str, str]) -> None:
    words = "the inlining model needs inputs that this clang does not offer: 'moon_phase'"
    settings = prepared(driver, work) | UNKNOWN | way
    assert driver.plain("-Oz", "-c", "f.c", cwd=work).returncode == 0
    plain = (work / "f.o").read_bytes()
    done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings)
    expected = f"mlgo-cc: warning: {words}; not compared\n"
    assert (done.returncode, done.stderr.decode()) == (0, expected)
    assert files(work) == {"f.c": SOURCE.encode(), "f.o": plain}
    done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")
    assert files(work) == {"f.c": SOURCE.encode()}
    both = settings | {"MLGO_KEEP_SMALLER": f"{UNKNOWN['MLGO_KEEP_SMALLER']},{OTHER}"}
    assert driver.run("-Oz", "-c", "f.c", cwd=work, settings=both).stderr.decode() == expected


@pytest.mark.parametrize(
    "words", ["raise(SIGKILL)", "*(volatile int *)8 = 1", "abort()", "exit(0)", "write(1, text, 0)"]
)
def test_a_forked_process_that_ends(driver: Driver, work: Path, words: str) -> None:
    settings = preloading(driver, work, words)
    assert driver.plain("-Oz", "-c", "f.c", cwd=work).returncode == 0
    plain = (work / "f.o").read_bytes()
    (work / "f.o").unlink()
    found, said, kept = made(driver, work, ("-Oz", "-c", "f.c"), settings)
    assert (found, said) == ({"f.o": plain}, b"")
    assert [row.split("\t")[0] for row in kept] == ["LLVM"]
    assert compilations(work) == 1
    assert not list(Path(driver.environment["TMPDIR"]).iterdir())
    assert not left_over(work)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("which", ["driver", "clang"])
def test_kills(driver: Driver, work: Path, which: str, number: signal.Signals) -> None:
    """While forked processes hang; clang's own has ended, or waits for what is not theirs."""
    settings = preloading(driver, work, "for (;;) pause()")
    if which == "clang":
        models = ",".join([NEVER] * (1 + len(os.sched_getaffinity(0))))
        settings["MLGO_KEEP_SMALLER"] = models
    heard = ["env", "--default-signal=INT"]  # what a shell starts with & ignores it
    process = psutil.Popen(
        [*heard, *driver.command("-Oz", "-c", "f.c")],
        cwd=work, env={**driver.environment, **settings}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    if which == "clang":
        wait_for(lambda: len(process.children(recursive=True)) > len(os.sched_getaffinity(0)))
        (clang,) = process.children()
        clang.send_signal(number)
    else:
        wait_for(lambda: (work / "f.o").exists() and len(process.children()) == 2)
        process.send_signal(number)
    assert process.wait() in {-number, 128 + number}
    wait_for(lambda: not left_over(work))
    left = {*files(work)} - {"f.c", "f.o"}
    assert len(left) <= (number == signal.SIGKILL)  # clang's own, which it could not remove
