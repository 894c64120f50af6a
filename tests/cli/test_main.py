"""The command line: output, exit status, files; a few times in processes, as users run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from corpus_tools import available_recipes
from mlgo_gym import __version__
from mlgo_gym.cli._main import START, parser
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.stream._training_log import TrainingLogReader
from tests.cli.command import PROGRAM, run, run_process
from tests.waiting import wait_for


@pytest.mark.smoke
@pytest.mark.e2e
def test_demo(small_folder: Path, tmp_path: Path) -> None:
    command: tuple[str | Path, ...] = (
        *("demo", "--corpus", small_folder, "--plot", "plot.svg", "--budget", "3s"),
    )
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith(tuple("┏┃┡│├└"))]
    assert len(table) == 8  # its heading has two lines
    assert max(len(line) for line in table) <= 80
    for word in ("1. Train a policy on 2 modules", "2. Search the answers of 1 other",
                 "3. Compare on these 1 modules", "shipped", "trained", "search", "smallest",
                 "total", "Plot: plot.svg", "4. Freeze the trained model: mlgo-gym-demo/frozen",
                 "5. Compile with it", "mlgo-gym-demo/frame_stream.c.o,"):  # fmt: skip
        assert word in done.stdout, done.stdout
    assert "1 of 1 objects are equal byte for byte" in " ".join(done.stdout.split())
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert (tmp_path / "mlgo-gym-demo" / "frame_stream.c.o").read_bytes().startswith(b"\x7fELF")
    assert (tmp_path / "mlgo-gym-demo" / "run" / "model" / "model.tflite").is_file()
    again = run(*command, "--json", cwd=tmp_path)  # goes on with the same run
    (module,) = json.loads(again.stdout)["modules"]
    assert set(module["policies"]) == {"default", "shipped", "trained", "search", "smallest"}
    assert module["policies"]["default"]["object_sha256"] == module["baseline"]["object_sha256"]
    assert module["policies"]["search"]["settings"]["size_increase_threshold"] == 2.0


def test_demo_for_machines(small_folder: Path, tmp_path: Path) -> None:
    arguments = ("demo", "--problem", "regalloc-priority", "--corpus", small_folder, "--json")
    done = run(*arguments, cwd=tmp_path)
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["total"]["modules"] == 3
    assert [each["module"] for each in result["modules"]] == list(Corpus.load(small_folder))
    for module in result["modules"]:
        assert set(module["policies"]) == {"random", "by-size"}
        assert module["policies"]["random"]["settings"]["problem"] == "RegallocPriority"
    assert (tmp_path / "mlgo-gym-demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.smoke
@pytest.mark.e2e
def test_rollout_writes_a_log(small_folder: Path, tmp_path: Path) -> None:
    done = run_process(
        "rollout", "--corpus", small_folder, "--policy", "random", "--seed", "3",
        "--log", "out.log", "--jobs", "2", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "out.log").open("rb") as file:
        records = list(TrainingLogReader(file))
    assert f"{len(records)} decisions in out.log" in done.stdout
    assert {record.observation.context for record in records} == set(Corpus.load(small_folder))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.log", "small corpus"]


@pytest.mark.e2e
def test_demo_of_register_allocation(small_folder: Path, tmp_path: Path) -> None:
    arguments = ("demo", "--problem", "regalloc-eviction", "--corpus", small_folder)
    done = run(*arguments, "--plot", "plot.svg", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("LLVM,", "score", "random", "first", "lowest-density", "Plot: plot.svg"):
        assert word in done.stdout
    assert "Geometric mean over the functions that ask: random" in done.stdout
    assert "byte for byte" not in done.stdout


@pytest.mark.smoke
@pytest.mark.e2e
def test_rollout_of_register_allocation(small_folder: Path, tmp_path: Path) -> None:
    arguments = ("--problem", "regalloc-eviction", "--policy", "lowest-use", "--json")
    done = run("rollout", "--corpus", small_folder, *arguments, "--log", "x.log", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert set(result["total"]) == {"modules", "baseline_score", "score"}
    assert result["geometric_mean"]["lowest-use"]["count"] > 0
    scores = {each["module"]: each["policies"]["lowest-use"] for each in result["modules"]}
    assert all(each["functions"] for each in scores.values())
    with (tmp_path / "x.log").open("rb") as file:
        records = list(TrainingLogReader(file))
    assert len(records) == sum(each["decisions"] for each in scores.values()) > 0
    functions = {
        f"{module}:{name}" for module, each in scores.items() for name in each["functions"]
    }
    assert {record.observation.context for record in records} <= functions
    again = run("rollout", "--corpus", small_folder, *arguments, cwd=tmp_path)
    assert again.stdout == done.stdout


@pytest.mark.e2e
def test_rollout_of_two_problems(small_folder: Path, tmp_path: Path) -> None:
    alone = run("rollout", "--corpus", small_folder, "--json", cwd=tmp_path)
    both = run(
        *("rollout", "--corpus", small_folder, "--json", "--also", "regalloc-eviction=first"),
        cwd=tmp_path,
    )
    assert both.returncode == 0
    decisions = [
        [each["policies"]["default"]["decisions"] for each in json.loads(done.stdout)["modules"]]
        for done in (alone, both)
    ]
    assert sum(decisions[0]) < sum(decisions[1])


def test_rollout_reports_bad_modules(small_folder: Path, tmp_path: Path) -> None:
    (small_folder / "hash_map.c.bc").write_bytes(b"BC\xc0\xde")
    done = run_process("rollout", "--corpus", small_folder, cwd=tmp_path)
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert done.stderr == (
        "mlgo-gym: module 'hash_map.c': LLVM bitcode parsing error\nExpected a single module\n"
    )


@pytest.mark.smoke
@pytest.mark.e2e
def test_corpus_stats(small_folder: Path, tmp_path: Path) -> None:
    done = run("corpus", "stats", "--corpus", small_folder, "--json", cwd=tmp_path)
    total = json.loads(done.stdout)["total"]
    assert (total["modules"], total["asking_modules"]) == (3, 3)
    assert total["decisions"] > 50
    assert "C" in run("corpus", "stats", "--corpus", small_folder, cwd=tmp_path).stdout


def test_doctor(tmp_path: Path) -> None:
    done = run_process("doctor", cwd=tmp_path)
    assert done.returncode == 0
    assert "asked 1 question" in done.stdout
    checks = {
        each["name"]: each for each in json.loads(run("doctor", "--json", cwd=tmp_path).stdout)
    }
    assert checks["embedded LLVM"]["found"].startswith("22.")
    assert re.match(r"(no )?Landlock.*, (no )?seccomp", checks["sandbox of workers"]["found"])


def test_doctor_without_tools(tmp_path: Path) -> None:
    done = run("doctor", "--json", cwd=tmp_path, PATH="")
    assert done.returncode == 0  # nothing but corpora of packages and programs needs them
    found = {each["name"]: each for each in json.loads(done.stdout)}
    for name, package in (
        ("clang, for corpus build and programs", "clang-22"),
        ("valgrind, for what programs take", "valgrind"),
    ):
        assert not found[name]["is_ok"]
        assert found[name]["found"].endswith(f"on Debian or Ubuntu: apt-get install {package}")


def test_version(tmp_path: Path) -> None:
    assert run_process("--version", cwd=tmp_path).stdout == f"mlgo-gym {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["rollout", "--corpus", "none"],
            "corpus 'none': expected corpus_description.json in it or in folders in it, "
            "found none; 'mlgo-gym corpus build' makes a corpus",
        ),
        (
            ["rollout", "--log", "no/where.log"],
            "--log: expected an existing folder, found 'no'",
        ),
        (
            ["demo", "--plot", "plot.txt"],
            "--plot: expected a file name ending in .png, .svg, .pdf, found 'plot.txt'",
        ),
        (
            ["rollout", "--problem", "regalloc-eviction", "--policy", "always"],
            "policy: expected one of random, first, keep, lowest-density, lowest-use, found "
            "'always'",
        ),
        (
            ["rollout", "--also", "regalloc=first"],
            "--also: expected one of inlining-for-size, regalloc-eviction, regalloc-priority "
            "before '=', found 'regalloc=first'",
        ),
        (
            ["rollout", "--problem", "regalloc-priority", "--also", "regalloc-eviction=first"],
            "RegallocPriority: expected no other problem beside it, found RegallocEviction; "
            "compare by code size instead, with it beside InliningForSize",
        ),
        (
            ["rollout", "--policy", "never", "--also", "inlining-for-size=always"],
            "InliningForSize: expected other problems beside it, found itself",
        ),
        (
            ["rollout", "--sites"],
            "--sites: expected --log or --traces, found neither",
        ),
        (
            ["rollout", "--problem", "regalloc-eviction", "--traces", "x"],
            "--traces: expected inlining-for-size alone, found regalloc-eviction",
        ),
        (
            ["rollout", "--also", "regalloc-eviction=first", "--traces", "x"],
            "--traces: expected inlining-for-size alone, found inlining-for-size, --also "
            "regalloc-eviction=first",
        ),
        (["demo", "--plot", "no/plot.png"], "--plot: expected an existing folder, found 'no'"),
        (
            ["corpus", "build", "lua", "--output", "x"],
            f"no recipe 'lua'; known recipes: lupa and {len(available_recipes()) - 1} more",
        ),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(*arguments, cwd=tmp_path, COLUMNS="400")
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", f"mlgo-gym: error: {message}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "--jobs: expected a whole number of at least 1, found '0'"),
        (["--seed", "-1"], "--seed: expected a whole number of at least 0, found '-1'"),
        (
            ["--timeout", "60"],
            "--timeout: expected a time above 0 with its unit, such as 90s, 30m or 1h30m, found "
            "'60'",
        ),
        (
            ["--size-increase-threshold", "nan"],
            "--size-increase-threshold: expected a number above 0, found 'nan'",
        ),
        (["--policy", "some"], "--policy: invalid choice: 'some'"),
        (["--opt-level", "O0"], "--opt-level: invalid choice: 'O0'"),
    ],
)
def test_bad_command_lines(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("rollout", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"mlgo-gym rollout: error: argument {message}" in done.stderr


def test_plot_of_a_folder_or_device(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "d.png").mkdir()
    command = ("demo", "--problem", "regalloc-eviction", "--corpus", small_folder, "--plot")
    done = run(*command, "d.png", cwd=tmp_path)
    assert done.stderr == ("mlgo-gym: error: --plot: expected a file, found the folder 'd.png'\n")
    (tmp_path / "full.png").symlink_to("/dev/full")
    done = run(*command, "full.png", cwd=tmp_path)
    assert done.returncode == 1
    assert "total" in done.stdout  # what was computed is not lost
    assert done.stderr == "mlgo-gym: error: cannot write 'full.png': No space left on device\n"


@pytest.mark.e2e
def test_log_into_what_is_no_file(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(tmp_path / "target.log")
    for log in ("/dev/null", "link.log"):
        done = run("rollout", "--corpus", small_folder, "--log", log, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "link.log").is_symlink()
    assert (tmp_path / "target.log").stat().st_size > 0
    done = run("rollout", "--corpus", small_folder, "--log", ".", cwd=tmp_path)
    assert done.stderr == "mlgo-gym: error: --log: expected a file, found the folder '.'\n"


def test_names_are_only_shown(small_folder: Path, tmp_path: Path) -> None:
    """Neither markup nor what a terminal obeys: escape sequences, text from right to left."""
    name = "a[red]b[/x]\x1b[31m\u202e.c"
    for suffix in ("bc", "cmd"):
        (small_folder / f"{name}.{suffix}").parent.mkdir(parents=True, exist_ok=True)
        (small_folder / f"frame_stream.c.{suffix}").rename(small_folder / f"{name}.{suffix}")
    manifest = {"modules": [name], "has_thinlto": False}
    (small_folder / "corpus_description.json").write_text(json.dumps(manifest))
    done = run("rollout", "--corpus", small_folder, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "x]\\x1b[31m\\u202e.c" in done.stdout
    (small_folder / f"{name}.bc").write_bytes(b"")
    done = run("rollout", "--corpus", small_folder, cwd=tmp_path)
    assert done.stderr.startswith("mlgo-gym: module ")
    assert all(each.isprintable() or each == "\n" for each in done.stdout + done.stderr)


def test_corpus_build_without_clang(tmp_path: Path) -> None:
    done = run("corpus", "build", "lupa", "--output", "x", cwd=tmp_path, PATH="", COLUMNS="400")
    assert done.returncode == 1
    assert done.stderr.endswith("on Debian or Ubuntu: apt-get install clang-22\n")
    assert not list(tmp_path.iterdir())


MODEL = Path(__file__).parent.parent / "models" / "inliner"


@pytest.mark.e2e
def test_a_model_in_every_mode_gives_the_same_code(small_folder: Path, tmp_path: Path) -> None:
    serve = [*PROGRAM, "serve", "--model", str(MODEL), "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as host:
        assert host.stdout is not None
        lines = "".join(iter(host.stdout.readline, "}\n")) + "}"
        address = json.loads(lines)["address"]
        hashes = []
        for mode, model in (
            ("release", MODEL),
            ("under-training", MODEL),
            ("interactive", address),
        ):
            done = run(
                "rollout", "--corpus", small_folder, "--model", model, "--mode", mode, "--json",
                cwd=tmp_path,
            )  # fmt: skip
            assert (done.returncode, mode) == (0, mode), done.stderr
            modules = json.loads(done.stdout)["modules"]
            name = address if mode == "interactive" else MODEL.name
            hashes.append([each["policies"][name]["object_sha256"] for each in modules])
        host.terminate()
    assert host.returncode == 0
    assert hashes[0] == hashes[1] == hashes[2]


@pytest.mark.smoke
@pytest.mark.e2e
def test_freeze(small_folder: Path, tmp_path: Path) -> None:
    done = run("freeze", "--model", MODEL, "--output", "frozen", "--name", "inliner", cwd=tmp_path)
    assert done.returncode == 0
    names = {path.name for path in (tmp_path / "frozen").iterdir()}
    linker = shutil.which("cc") or shutil.which("clang") or shutil.which("gcc")
    endings = ("o", "h", "json", *(["so"] if linker else []))
    assert names == {f"inliner.{ending}" for ending in endings}
    tables = []
    for model in (MODEL, "frozen"):
        done = run("rollout", "--corpus", small_folder, "--model", model, cwd=tmp_path)
        assert done.returncode == 0
        tables.append(re.sub(r"[━─ ]+", " ", done.stdout).replace(Path(model).name, "MODEL"))
    assert tables[0] == tables[1]


def test_freeze_with_a_profile(tmp_path: Path) -> None:
    options = ("freeze", "--model", "inlining-for-size", "--output", "frozen", "--profile")
    done = run(*options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    row = next(line for line in done.stdout.splitlines() if "dense_1/MatMul" in line)
    assert re.fullmatch(r"│ \d+ +│ +dense_1/MatMul │ +[\d,]+ │ +[\d.]+% │ +[\d,]+ │", row)
    assert max(map(len, done.stdout.splitlines())) <= 80
    told = json.loads(run(*options, "--json", cwd=tmp_path).stdout)
    assert [Path(name).name for name in told["files"]][:2] == ["model.json", "model.o"]
    assert {each["name"] for each in told["code"]} >= {"FULLY_CONNECTED", "relu"}


def test_freeze_to_c(tmp_path: Path) -> None:
    options = ("freeze", "--model", MODEL, "--output", "c", "--name", "inliner", "--emit", "c")
    done = run(*options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "c/inliner.c\nc/inliner.h\n")
    assert "*const callee_users = inputs[" in (tmp_path / "c" / "inliner.c").read_text()
    for option, *value in (("--cpu", "x"), ("--target", "aarch64-linux-gnu"), ("--profile",)):
        done = run(*options, option, *value, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.strip() == (
            f"mlgo-gym: error: --emit c: expected no {option}, the C compiler's options name it"
        )


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGHUP, "ended by SIGHUP"),
    ],
)
def test_interrupted(number: signal.Signals, message: str, tmp_path: Path) -> None:
    """In the middle: a line, an exit status, no log, no child, no leftovers."""
    corpus, work = tmp_path / "corpus", tmp_path / "work"
    corpus.mkdir()
    work.mkdir()
    names = [f"scene-{number}.cpp" for number in range(1000)]  # takes half a minute
    for name in names:
        (corpus / f"{name}.bc").symlink_to(SAMPLE_CORPUS / "scene.cpp.bc")
    (corpus / "corpus_description.json").write_text(
        json.dumps({"modules": names, "has_thinlto": False, "global_command_override": ["-cc1"]})
    )
    heard = ["env", "--default-signal"]  # what a shell starts with & ignores SIGINT
    command = [*heard, *PROGRAM, "rollout", "--log", "x.log"]
    with subprocess.Popen(
        [*command, "--corpus", corpus, "--jobs", "2"],
        cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for(psutil.Process(process.pid).children)  # it compiles
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, errors = process.communicate()
    # Interrupted while an extension runs Python, CPython ends by the signal, 130 to a shell, too.
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    assert (status, errors) == (128 + number, f"mlgo-gym: error: {message}\n")
    assert not list(work.iterdir())
    psutil.wait_procs(children)


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_temporary_folders_go_with_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    """A terminal that is closed sends SIGHUP, and its shell once more; nohup has it ignored."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    heard = ["env", "--default-signal", *["--ignore-signal=HUP"] * (number != signal.SIGHUP)]
    command = [*heard, *PROGRAM, "measure", "--policy", "never", "--meter", "size"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)}
    ) as process:
        wait_for(lambda: list(temporary.glob("corpus_tools.*")))
        process.send_signal(signal.SIGHUP)
        process.send_signal(number)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (
        128 + number,
        f"mlgo-gym: error: ended by {number.name}\n",
    )
    assert not list(temporary.iterdir())


def test_no_command_is_a_start_page(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", START)
    assert max(map(len, START.splitlines())) <= 80
    for line in re.findall(r"^  (mlgo-gym .*?)(?:   .*)?$", START, re.MULTILINE):
        parser().parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize("arguments", ["", "models", "models --json"])
def test_standard_output_that_is_closed(arguments: str) -> None:
    line = f"{shlex.join(map(str, PROGRAM))} {arguments} >&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = "standard output: expected an open one, found it closed"
    assert done.stderr == f"mlgo-gym: error: {found}\n"
