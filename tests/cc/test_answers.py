"""What LLVM is told: nothing that its mask rules out, nothing of another model or another job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cc.conftest import AS_DEFAULT, CHANNEL, MODELS, Driver
from tests.cc.test_streams import in_place_of_clang

MANY_LIVE = """
long table[64];
long f(const long *a, const long *b) {
  long sum[20];
  for (int i = 0; i < 20; ++i) sum[i] = a[i];
  for (int j = 0; j < 64; ++j)
    for (int i = 0; i < 20; ++i) sum[i] = sum[i] * b[j] + table[(j + i) & 63];
  long all = 0;
  for (int i = 0; i < 20; ++i) all ^= sum[i];
  return all;
}
"""

# The compiler's end of a channel, as a job of clang's leaves it that is killed once it has asked: a
# header, one observation in which LLVM's own answer is to inline, and nobody who reads the answer.
# It ends when that has come and was taken back. "overlapping" ends after another header: the next
# job's, which has opened the channel before the end of this one was seen.
ASK = """
import array, fcntl, os, sys, termios, time
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.stream._training_log import Header
from mlgo_gym.stream._training_log import TrainingLogWriter
from mlgo_gym.base._tensor_spec import TensorSpec

option = "-inliner-interactive-channel-base="
bases = [word.removeprefix(option) for word in sys.argv if word.startswith(option)]
default = TensorSpec(DEFAULT_ADVICE, "int64_t", (1,))
specs = [*(each.spec for each in InliningForSize().layout.features), default]
inbound = os.open(f"{bases[0]}.in", os.O_RDONLY | os.O_NONBLOCK)

def wait_for(size):
    waiting = array.array("i", [-1])
    while waiting[0] != size:
        fcntl.ioctl(inbound, termios.FIONREAD, waiting)
        time.sleep(0.01)

header = Header(tuple(specs), advice=InliningForSize.advice)
with open(f"{bases[0]}.out", "wb") as file:
    log = TrainingLogWriter(file, header)
    log.start_context("f")
    log.log_observation(b"".join(bytes(spec.size_bytes) for spec in specs[:-1]) + b"\\1" + bytes(7))
    file.flush()
    wait_for(8)
    if sys.argv[1] == "overlapping":
        TrainingLogWriter(file, header)
        file.flush()
        wait_for(0)
wait_for(0)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("model", ["forbidden", "outside"])
def test_no_choice_that_the_mask_rules_out(
    driver: Driver, way: Mapping[str, str], tmp_path: Path, model: str
) -> None:
    (tmp_path / "f.c").write_text(MANY_LIVE)
    command = ("-O3", "-fno-vectorize", "-fno-slp-vectorize", "-c", "f.c")
    assert driver.plain(*command, cwd=tmp_path).returncode == 0
    expected = (tmp_path / "f.o").read_bytes()
    settings = {"MLGO_REGALLOC_MODEL": str(MODELS / model), **way}
    words = "the regalloc model: expected a choice that LLVM's mask allows"
    done = driver.run(*command, cwd=tmp_path, settings=settings)
    warning = f"mlgo-cc: warning: {words}; compiled by plain clang\n"
    assert (done.returncode, done.stderr.decode()) == (0, warning)
    assert (tmp_path / "f.o").read_bytes() == expected
    (tmp_path / "f.o").unlink()
    done = driver.run(*command, cwd=tmp_path, settings=settings | {"MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")
    assert not (tmp_path / "f.o").exists()


@pytest.mark.e2e
def test_a_model_of_the_same_size_in_the_same_files(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    """Device, inode and size are as they were; the time is another by a nanosecond, or a second."""
    model = tmp_path / "model"
    model.mkdir()
    sizes = {
        each.name: max((MODELS / name / each.name).stat().st_size for name in ("default", "never"))
        for each in (MODELS / "never").iterdir()
    }
    objects, facts = [], []
    start_ns = 10**18
    for name, later_ns in (("default", 0), ("never", 1), ("default", 1 + 10**9)):
        for file, size in sizes.items():
            padding = b"\0" if file == "model.tflite" else b" "
            (model / file).write_bytes((MODELS / name / file).read_bytes().ljust(size, padding))
            os.utime(model / file, ns=(0, start_ns + later_ns))
        os.utime(model, ns=(0, start_ns))
        abouts = [each.stat() for each in sorted(model.iterdir())]
        facts.append([(each.st_dev, each.st_ino, each.st_size) for each in abouts])
        settings = AS_DEFAULT | {"MLGO_INLINING_MODEL": str(model)}
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert (done.returncode, done.stderr) == (0, b"")
        objects.append((work / "f.o").read_bytes())
    assert facts[0] == facts[1] == facts[2]
    assert objects[0] == objects[2] != objects[1]


@pytest.mark.parametrize("jobs", ["one by one", "overlapping"])
def test_an_answer_that_nobody_took_is_not_the_next_job_s(
    driver: Driver, work: Path, jobs: str
) -> None:
    """Here it says that all is inlined, and clang's own heuristic would not."""
    (work / "f.c").write_text(
        """
        int h(int);
        static int big(int x) { ***; return x; }
        int f(int x) { return big(x) + big(x + 1); }
    """.replace("***", "; ".join(f"x += h(x * {each})" for each in range(40)))
    )
    (work / "ask.py").write_text(ASK)
    script = (
        f'case "$*" in *channel-base*) {sys.executable} {work}/ask.py "{jobs}" "$@" || exit\n'
        ";; esac\n"
        'exec $clang "$@"\n'
    )
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    expected = (work / "f.o").read_bytes()
    settings = in_place_of_clang(driver, work, script) | AS_DEFAULT | CHANNEL
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.o").read_bytes() == expected
