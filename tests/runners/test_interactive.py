"""Interactive runners over FIFOs: LLVM's own tools, independent processes, and rude peers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import RunnerError, TrainingLogError
from mlgo_gym.runners._base import MLModelRunner, NoInferenceModelRunner, ScriptedRunner
from mlgo_gym.runners._interactive import InteractiveModelRunner, PipeHost
from mlgo_gym.stream._training_log import Header
from mlgo_gym.testing import check_runner

INPUTS = (TensorSpec("a", "int64_t", (1,)), TensorSpec("b", "float", (2, 3)))
OUTPUT = TensorSpec("advice", "int64_t", (1,))


def echo(inputs: Sequence[TensorSpec], output: TensorSpec) -> ScriptedRunner:
    return ScriptedRunner(lambda values: values["a"], inputs, output)


@pytest.fixture
def hosts() -> Iterator[list[threading.Thread]]:
    threads: list[threading.Thread] = []
    yield threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def hosted(
    inputs: Sequence[TensorSpec], output: TensorSpec, threads: list[threading.Thread]
) -> InteractiveModelRunner:
    """The compiler's end in this thread, a host in another."""
    host = PipeHost(echo, deadline_s=30)

    def serve() -> None:
        with host:
            host.serve(lambda: True)

    thread = threading.Thread(target=serve)
    thread.start()
    threads.append(thread)
    return InteractiveModelRunner(host.base, inputs, output, deadline_s=30)


def test_both_ends_keep_the_contract(hosts: list[threading.Thread]) -> None:
    check_runner(lambda inputs, output: hosted(inputs, output, hosts), INPUTS, OUTPUT)


HOST = textwrap.dedent("""
    import json, os, struct, sys
    base = sys.argv[1]
    for end in (".in", ".out"):
        os.mkfifo(base + end)
    print("ready", flush=True)
    replies = open(base + ".in", "wb", buffering=0)
    stream = open(base + ".out", "rb")
    header = json.loads(stream.readline())
    assert [each["name"] for each in header["features"]] == ["a", "b"], header
    assert header["advice"]["name"] == "advice"
    seen = []
    while line := stream.readline():
        event = json.loads(line)
        if "context" in event:
            seen.append(event["context"])
            continue
        (a,) = struct.unpack("=q", stream.read(8))
        stream.read(24)
        assert stream.read(1) == b"\\n"
        seen.append(event["observation"])
        replies.write(struct.pack("=q", 2 * a))
    print(seen, flush=True)
""")


def test_an_independent_host_process(tmp_path: Path) -> None:
    """The host knows nothing but LLVM's format."""
    base = tmp_path / "channel"
    with subprocess.Popen(
        [sys.executable, "-c", HOST, base], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        host.stdout.readline()
        with InteractiveModelRunner(base, INPUTS, OUTPUT, deadline_s=30) as runner:
            for context in ("f", "g"):
                runner.switch_context(context)
                for value in (3, 4):
                    runner.get_tensor(0)[0] = value
                    assert runner.evaluate().tolist() == [2 * value]
        assert host.stdout.readline() == "['f', 0, 1, 'g', 0, 1]\n"


def default_of_llvm(inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
    return ScriptedRunner(lambda values: values["inlining_default"], inputs, output)


def first_legal(inputs: Sequence[TensorSpec], output: TensorSpec) -> MLModelRunner:
    return ScriptedRunner(lambda values: int(values["mask"][0].argmax()), inputs, output)


def test_serves_opt(opt22: str, sample: Corpus, tmp_path: Path) -> None:
    source, asked, plain = sample.folder / "matrix.cpp.bc", tmp_path / "a.bc", tmp_path / "b.bc"
    with PipeHost(default_of_llvm, deadline_s=60) as host:
        command: list[str | Path] = [
            opt22, "-passes=default<O2>", "-enable-ml-inliner=release",
            f"-inliner-interactive-channel-base={host.base}",
            "-inliner-interactive-include-default",
            "-ml-advisor-size-increase-threshold=1000", source, "-o", asked,
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            decisions = host.serve(lambda: process.poll() is None)
    subprocess.run([opt22, "-passes=default<O2>", source, "-o", plain], check=True)
    assert decisions > 200
    assert asked.read_bytes() == plain.read_bytes()


def test_serves_llc(opt22: str, llc22: str, sample: Corpus, tmp_path: Path) -> None:
    optimized, output = tmp_path / "x.bc", tmp_path / "x.o"
    subprocess.run([opt22, "-O2", sample.folder / "matrix.cpp.bc", "-o", optimized], check=True)
    contexts: list[str] = []

    class Noting(ScriptedRunner):
        def switch_context(self, name: str) -> None:
            contexts.append(name)

    with PipeHost(
        lambda inputs, output: Noting(
            lambda values: int(values["mask"][0].argmax()), inputs, output
        ),
        deadline_s=60,
    ) as host:
        command: list[str | Path] = [
            llc22, "-regalloc-enable-advisor=release", "-filetype=obj", optimized, "-o", output,
            f"-regalloc-evict-interactive-channel-base={host.base}",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            decisions = host.serve(lambda: process.poll() is None)
        assert process.returncode == 0
    assert decisions > 20
    assert output.read_bytes().startswith(b"\x7fELF")
    assert len(contexts) == len(set(contexts)) > 1


def test_a_compiler_that_asks_nothing(llc22: str, tmp_path: Path) -> None:
    (tmp_path / "empty.ll").write_text('target triple = "x86_64-pc-linux-gnu"\n')
    with PipeHost(first_legal, deadline_s=60) as host:
        command: list[str | Path] = [
            llc22, "-regalloc-enable-advisor=release", "-filetype=null", tmp_path / "empty.ll",
            f"-regalloc-evict-interactive-channel-base={host.base}",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            assert host.serve(lambda: process.poll() is None) == 0


def test_a_compiler_that_hangs(opt22: str, sample: Corpus) -> None:
    with PipeHost(default_of_llvm, deadline_s=1) as host:
        command: list[str | Path] = [
            opt22, "-passes=default<O2>", "-enable-ml-inliner=release", "-disable-output",
            f"-inliner-interactive-channel-base={host.base}",
            "-inliner-interactive-include-default", sample.folder / "matrix.cpp.bc",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            os.kill(process.pid, signal.SIGSTOP)
            with pytest.raises(RunnerError, match="expected the compiler's next word within 1 s"):
                host.serve(lambda: process.poll() is None)
            process.kill()


def test_no_host(tmp_path: Path) -> None:
    base = tmp_path / "channel"
    with pytest.raises(RunnerError) as missing:
        InteractiveModelRunner(base, INPUTS, OUTPUT)
    assert str(missing.value) == (
        f"interactive runner '{base}': cannot open .in: No such file or directory"
    )
    for end in (".in", ".out"):
        os.mkfifo(f"{base}{end}")
    with pytest.raises(RunnerError) as absent:
        InteractiveModelRunner(base, INPUTS, OUTPUT, deadline_s=0.1)
    assert str(absent.value) == (
        f"interactive runner '{base}': expected a host at .out within 0.1 s, found none; "
        "deadline_s lifts the limit"
    )


def test_files_where_fifos_should_be(tmp_path: Path) -> None:
    base = tmp_path / "channel"
    for end in (".in", ".out"):
        Path(f"{base}{end}").write_bytes(bytes(64))
    with pytest.raises(RunnerError, match="expected a FIFO at .in, found something else"):
        InteractiveModelRunner(base, INPUTS, OUTPUT)
    assert Path(f"{base}.out").read_bytes() == bytes(64)


def _half_host(base: Path) -> tuple[int, int]:
    for end in (".in", ".out"):
        os.mkfifo(f"{base}{end}")
    return os.open(f"{base}.in", os.O_RDWR), os.open(f"{base}.out", os.O_RDONLY | os.O_NONBLOCK)


def test_a_host_that_does_not_answer(tmp_path: Path) -> None:
    base = tmp_path / "channel"
    ends = _half_host(base)
    runner = InteractiveModelRunner(base, INPUTS, OUTPUT, deadline_s=0.2)
    message = "expected advice within 0.2 s, found none; deadline_s lifts the limit$"
    with pytest.raises(RunnerError, match=message):
        runner.evaluate()
    runner.close()
    for end in ends:
        os.close(end)


def _close_once_asked(stream: int, replies: int) -> None:
    select.select([stream], [], [])
    os.close(replies)


def test_a_context_is_sent_at_once(tmp_path: Path) -> None:
    """As LLVM does: a host may prepare for a function before it is asked about."""
    base = tmp_path / "channel"
    replies, stream = _half_host(base)
    with InteractiveModelRunner(base, INPUTS, OUTPUT, deadline_s=60) as runner:
        assert os.read(stream, 1 << 16).startswith(b'{"features":')
        runner.switch_context("f")
        assert os.read(stream, 1 << 16) == b'{"context":"f"}\n'
        os.close(stream)
        with pytest.raises(RunnerError, match="expected an open host, found that it has gone$"):
            runner.switch_context("g")
    os.close(replies)


def test_a_host_that_goes_away(tmp_path: Path) -> None:
    base = tmp_path / "channel"
    replies, stream = _half_host(base)
    with InteractiveModelRunner(base, INPUTS, OUTPUT, deadline_s=60) as runner:
        assert os.read(stream, 1 << 16).startswith(b'{"features":')
        threading.Thread(target=_close_once_asked, args=(stream, replies)).start()
        with pytest.raises(RunnerError, match="found that the host has closed its end$"):
            runner.evaluate()
        os.close(stream)
        with pytest.raises(RunnerError, match="expected an open host, found that it has gone$"):
            runner.evaluate()


def test_a_host_that_does_not_read(tmp_path: Path) -> None:
    """A question is longer than what a pipe takes in."""
    ends = _half_host(base := tmp_path / "channel")
    wide = TensorSpec("wide", "int64_t", (1 << 15,))
    runner = InteractiveModelRunner(base, [wide], OUTPUT, deadline_s=0.2)
    message = "expected a host that reads within 0.2 s, found [0-9]+ bytes unread; deadline_s lifts"
    with pytest.raises(RunnerError, match=message):
        runner.evaluate()
    runner.close()
    for end in ends:
        os.close(end)


def test_a_host_that_goes_away_before_the_header(tmp_path: Path) -> None:
    replies, stream = _half_host(base := tmp_path / "channel")
    many = [TensorSpec(f"{'x' * 200}{index}", "int64_t", (1,)) for index in range(1000)]
    threading.Thread(target=_close_once_asked, args=(stream, stream)).start()
    with pytest.raises(RunnerError, match="expected an open host, found that it has gone$"):
        InteractiveModelRunner(base, many, OUTPUT, deadline_s=60)
    os.close(replies)


WORDS = b'{"context":"f"}\n{"observation":0}\n' + bytes(32) + b"\n"


@pytest.mark.parametrize(
    "sent",
    [Header(INPUTS, advice=OUTPUT).to_json().encode()[:20]]
    + [Header(INPUTS, advice=OUTPUT).to_json().encode() + b"\n" + WORDS[:each] for each in (5, 40)],
)
def test_a_compiler_that_ends_in_the_middle(sent: bytes) -> None:
    with PipeHost(echo, deadline_s=30) as host:
        stream = os.open(f"{host.base}.out", os.O_WRONLY)
        os.write(stream, sent)
        os.close(stream)
        with pytest.raises(TrainingLogError, match="the stream ends in the middle of b"):
            host.serve(lambda: True)


def test_a_compiler_that_says_nothing_and_closes_its_end() -> None:
    """Nobody waits for it for longer than the deadline, nor looks all the time."""
    with PipeHost(echo, deadline_s=0.5) as host:
        os.close(os.open(f"{host.base}.out", os.O_WRONLY))
        looks = 0

        def is_alive() -> bool:
            nonlocal looks
            looks += 1
            return True

        with pytest.raises(RunnerError, match="next word within 0.5 s, found none after 0 decis"):
            host.serve(is_alive)
    assert looks < 20


def _asks(base: str, count: int) -> None:
    """Ask without reading the answers."""
    with suppress(BrokenPipeError), open(f"{base}.out", "wb") as stream:
        stream.write(Header(INPUTS, advice=OUTPUT).to_json().encode() + b"\n" + WORDS)
        stream.writelines(
            b'{"observation":%d}\n' % index + bytes(32) + b"\n" for index in range(1, count)
        )


def test_a_compiler_that_does_not_read_answers() -> None:
    with PipeHost(echo, deadline_s=30) as host:
        compiler = threading.Thread(target=_asks, args=(host.base, 1 << 15))
        compiler.start()
        with pytest.raises(TrainingLogError) as caught:
            host.serve(lambda: True)
    compiler.join()
    assert str(caught.value) == (
        "channel: expected room for 8 bytes of advice, found 0: answers before have not been read"
    )


def test_a_runner_that_raises() -> None:
    """The host's error reaches whoever serves; the compiler is theirs to kill."""
    with PipeHost(NoInferenceModelRunner, deadline_s=120) as host:
        code = (
            "import sys; from mlgo_gym.runners._interactive import InteractiveModelRunner as R; "
            "from tests.runners.test_interactive import *; "
            "R(sys.argv[1], INPUTS, OUTPUT).evaluate()"
        )
        root = Path(__file__).parent.parent.parent
        with subprocess.Popen([sys.executable, "-c", code, host.base], cwd=root) as process:
            with pytest.raises(Exception, match="^NoInferenceModelRunner: has no model to eval"):
                host.serve(lambda: process.poll() is None)
            process.kill()


def test_a_compiler_that_wants_no_advice() -> None:
    with PipeHost(echo, deadline_s=30) as host:
        replies = os.open(f"{host.base}.in", os.O_RDONLY)
        stream = os.open(f"{host.base}.out", os.O_WRONLY)
        os.write(stream, Header(INPUTS).to_json().encode() + b"\n")
        with pytest.raises(RunnerError) as caught:
            host.serve(lambda: True)
    assert str(caught.value) == f"pipe host '{host.base}': expected a header with an advice spec"
    os.close(replies)
    os.close(stream)
