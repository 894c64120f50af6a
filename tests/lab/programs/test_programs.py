"""Descriptions of workloads, and the programs that are made of them."""

from __future__ import annotations

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lief
import pytest

from corpus_tools.tables import read_table
from corpus_tools.workloads import Workload
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import EnvironmentSetupError, WorkloadError
from mlgo_gym.lab.programs._measures import Reach
from mlgo_gym.lab.programs._meters import Cost, Instructions, Seconds, count, meter_named
from mlgo_gym.lab.programs._program import Programs, find_workloads
from mlgo_gym.lab.programs._running import run_program
from mlgo_gym.lab.programs._workload_check import check_workloads
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.lab.programs.conftest import DESCRIPTION, MODULE, OUTPUT, MakeCorpus, sha256

TABLE = "[workload.twice]\n"


@pytest.mark.e2e
def test_a_corpus_of_ones_own(corpus: MakeCorpus) -> None:
    with Programs(corpus(DESCRIPTION)) as programs:
        workload = programs.workloads["twice"]
        with programs.linked(workload) as program:
            assert run_program(workload, program.path).stdout == OUTPUT.encode()
            path = program.path
        assert not path.exists()
        assert programs.modules("twice") == ("twice.c",)
    assert not path.parent.exists()


@pytest.mark.e2e
def test_threads_share_programs(corpus: MakeCorpus) -> None:
    """Who comes first compiles; what was given is gone with its program, what was kept is not."""
    with Programs(made := corpus(DESCRIPTION)) as programs, Compiler() as compiler:
        workload = programs.workloads["twice"]
        results = {"twice.c": compiler.compile_module(made["twice.c"], keep_object=True)}
        reach = Reach(programs)

        def hash_of(_: int) -> str:
            assert reach.workloads_of("twice.c") == (workload,)
            with programs.linked(workload, results) as program:
                return program.sha256

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(hash_of, range(6)))) == 1
        kept = programs.object_of("twice.c")
        assert set(kept.parent.glob("object.*")) == set()
        assert kept.read_bytes() == results["twice.c"].object_bytes


@pytest.mark.e2e
def test_cpp(corpus: MakeCorpus) -> None:
    """Its library is linked, and constructors run before the main function."""
    module = """#include <string>
    static std::string text(3, 'x');
    extern "C" int twice(int x) { text += text; return x * (int)text.size() / 3; }
    """
    with Programs(corpus(DESCRIPTION, {"twice.cpp": module})) as programs:
        workload = programs.workloads["twice"]
        with programs.linked(workload) as program:
            assert run_program(workload, program.path).status == 0


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("x = ", "workload.toml: expected TOML, found Invalid value"),
        ("", "workload.toml: expected a table [workload.NAME], found none"),
        ("[workload]\na = 3", "workload.toml: workload 'a': expected a table, found 3"),
        (
            "[workload.A]",
            "workload.toml: workload: expected lower-case letters, digits, '-', found 'A'",
        ),
        (f"{'a.' * 300}a = 1", "workload.toml: line 1: expected at most 256 dots, found 300"),
        (f"[{'a . ' * 300}a]", "workload.toml: line 1: expected at most 256 dots, found 300"),
        (
            DESCRIPTION + f"exclude = {['*a'] * 1025}",
            "key 'exclude': expected a list of patterns of modules' names, at most 1024 with",
        ),
        (f"{TABLE}abuot = 'x'", "workload 'twice': key 'abuot': expected one of about, modules"),
        (TABLE, "workload 'twice': key 'about': expected a non-empty string, found no such key"),
        (
            DESCRIPTION + 'files = ["../x"]',
            "key 'files': expected a list of names in its folder, without '..', found ['../x']",
        ),
        (
            DESCRIPTION + 'stdin = "/dev/zero"',
            "key 'stdin': expected a name in its folder, found '/dev/zero'",
        ),
        (
            DESCRIPTION + 'flags = ["-fplugin=x.so"]',
            "key 'flags': expected a list of -DNAME[=VALUE], -UNAME, -std=NAME and -IFOLDER, "
            "without '..', found ['-fplugin=x.so']",
        ),
        (DESCRIPTION + 'flags = ["-I../x"]', "without '..', found ['-I../x']"),
        (
            DESCRIPTION + 'libraries = ["m,-rpath"]',
            "key 'libraries': expected a list of libraries' names, as -l takes them, found",
        ),
        (DESCRIPTION + "exit_status = 256", "expected a whole number from 0 to 255, found 256"),
        (
            DESCRIPTION + "timeout_s = 0",
            "expected a whole number of seconds from 1 to 3600, found 0",
        ),
        (DESCRIPTION + "memory_mib = 1000000", "of MiB from 1 to 65536, found 1000000"),
        (DESCRIPTION + "exit_status = false", "number from 0 to 255, found False"),
        (DESCRIPTION + 'arguments = ["a\\u0000"]', "expected a list of strings without NUL, of at"),
        (DESCRIPTION + 'files = ["link"]', "expected 'link' in its folder, found a link to /etc"),
        (
            DESCRIPTION.replace('["main.c"]', '["main.c", "x.so"]'),
            "key 'sources': expected a list of names in its folder, without '..', of C, C++ or "
            "bitcode, each called otherwise, found ['main.c', 'x.so']",
        ),
        (DESCRIPTION.replace('["main.c"]', '["main.c", "a/main.c"]'), "each called otherwise"),
        (
            DESCRIPTION + 'files = ["none"]',
            "workload 'twice': expected 'none' beside workload.toml, found no such file",
        ),
    ],
)
def test_descriptions_that_are_wrong(corpus: MakeCorpus, description: str, expected: str) -> None:
    made = corpus(description)
    (made.folder / "workloads" / "link").symlink_to("/etc/passwd")
    with pytest.raises(WorkloadError, match=re.escape(expected)):
        find_workloads(made)


def test_workloads_that_are_not_there(tmp_path: Path) -> None:
    sample = Corpus.load(SAMPLE_CORPUS)
    folder = SAMPLE_CORPUS / "workloads"
    with pytest.raises(WorkloadError) as caught:
        find_workloads(sample, ["jsn"])
    expected = f"expected a description in {folder}, found those of json"
    assert str(caught.value) == f"workload 'jsn': {expected}"
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "c", ignore=shutil.ignore_patterns("workloads"))
    with pytest.raises(WorkloadError) as caught:
        find_workloads(Corpus.load(tmp_path / "c"))
    expected = f"expected a description in {tmp_path / 'c' / 'workloads'}, found none"
    assert str(caught.value) == f"workloads: {expected}"


def test_patterns_are_of_names_in_the_corpus_s_order() -> None:
    names = ("b.c", "a.c", "sub/[x].c", "c.cpp")
    workload = Workload(name="w", folder=Path(), about="", stdout_sha256="", modules=("*.c",))
    assert workload.modules_of(names) == ("b.c", "a.c", "sub/[x].c")
    assert replace(workload, exclude=("a.c", "none")).modules_of(names) == ("b.c", "sub/[x].c")
    named = replace(workload, modules=("c.cpp", "a.c"), exclude=("[b-c]*",))
    assert named.modules_of(names) == ("a.c",)


def test_dots_in_strings_and_comments_are_no_keys() -> None:
    text = f'# {"." * 300}\na = [\'{"." * 300}\', "\\"{"." * 300}"]\n'
    assert read_table(text.encode(), "t", WorkloadError) == {"a": ["." * 300, '"' + "." * 300]}


def test_a_quote_that_is_not_closed() -> None:
    """A description's largest one, in time that grows with its length."""
    text = '"' + '\\"' * 500_000
    start_s = time.process_time()
    with pytest.raises(WorkloadError, match="expected TOML"):
        read_table(text.encode(), "t", WorkloadError)
    assert time.process_time() - start_s < 20


def test_objects_that_are_not_there(corpus: MakeCorpus) -> None:
    made = corpus(f'modules = ["thrice.c"]\n{DESCRIPTION}')
    with pytest.raises(WorkloadError) as caught:
        Programs(made)
    assert str(caught.value) == (
        "workload 'twice': expected objects that fit 'thrice.c', found none among the 1 modules of "
        "the corpus"
    )


@pytest.mark.e2e
def test_what_cannot_be_linked_or_compiled(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, main="int thrice(int);\nint main(void) { return thrice(1); }\n")
    with Programs(made) as programs:
        workload = programs.workloads["twice"]
        with pytest.raises(WorkloadError) as caught, programs.linked(workload):
            raise AssertionError
    text = str(caught.value)
    assert text.startswith("workload 'twice': cannot be linked: program.0: clang exited with 1\n")
    assert "undefined reference to `thrice'" in text
    (made.folder / "workloads" / "main.c").write_text("int main(void) { return no; }")
    with Programs(made) as programs:
        workload = programs.workloads["twice"]
        with pytest.raises(WorkloadError, match="use of undeclared identifier"):
            programs.linked(workload).__enter__()


@pytest.mark.e2e
def test_builds_that_differ(corpus: MakeCorpus) -> None:
    """The place of a function depends on the size of those before it."""
    module = """
    int after(int x);
    static int some(int x, int y) { return x * 3 + y / (x | 1) - (x ^ y) * 7; }
    int twice(int x) { return some(x, 3) + some(3, x) ? (int)(long)after : 0; }
    int after(int x) { return x; }
    """
    (found,) = check_workloads(corpus(DESCRIPTION, {"twice.c": module}))
    assert found.error is not None
    expected = "workload 'twice': expected the same standard output, found SHA-256"
    assert str(found.error).startswith(expected)
    told = found.record()
    assert (told["workload"], told["error"]) == ("twice", str(found.error))
    assert (told["cpu_s"], told["instructions"]) == (None, None)


@pytest.mark.e2e
def test_a_check(corpus: MakeCorpus) -> None:
    modules = {"twice.c": MODULE, "other.c": "int other(int x) { return x; }\n"}
    (found,) = check_workloads(corpus(DESCRIPTION, modules))
    assert found.error is None
    first, second = found.instructions
    assert second == pytest.approx(first, rel=1e-3)
    assert first > 1000
    assert (found.linked_modules, found.reached) == (2, ("twice.c",))


def test_where_there_is_no_valgrind(corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    with Programs(corpus(DESCRIPTION)) as programs:
        workload = programs.workloads["twice"]
        with programs.linked(workload) as program:
            monkeypatch.setenv("PATH", "/nowhere")
            for meter in (Instructions(), Cost()):
                with pytest.raises(EnvironmentSetupError) as caught:
                    meter.read(workload, [program])
                assert str(caught.value) == (
                    "valgrind: expected it, to count instructions, found none; on Debian or "
                    "Ubuntu: apt-get install valgrind"
                )


@pytest.mark.e2e
def test_seconds_take_turns(corpus: MakeCorpus) -> None:
    with Programs(corpus(DESCRIPTION)) as programs:
        workload = programs.workloads["twice"]
        with programs.linked(workload) as program:
            first, second = Seconds(repeats=3).read(workload, [program, program])
    assert (len(first.samples), len(first.again), len(second.samples)) == (3, 3, 3)
    assert second.again == ()
    assert 0 < first.value == sorted(first.samples)[1] < 10


@pytest.mark.e2e
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_layouts(corpus: MakeCorpus, language: str) -> None:
    """The same code at other addresses, which is the same each time that it is asked for."""
    modules = {f"a.{language}": "int other(int x) { return 3 * x; }\n", "twice.c": MODULE}
    with Programs(corpus(DESCRIPTION, modules)) as programs:
        workload = programs.workloads["twice"]
        places = []
        for _ in range(2):
            with programs.linked(workload, links=4) as program:
                assert {run_program(workload, each).status for each in program.layouts} == {0}
                found = [symbols(each) for each in (program.path, *program.layouts)]
                (reading,) = Seconds(repeats=1).read(workload, [program])
                places.append([(each["twice"], each["other"], each["main"]) for each in found])
    assert (reading.layouts, len(reading.samples), reading.again) == (4, 4, ())
    assert places[0] == places[1]
    assert len(set(places[0])) == 4
    orders = {twice < other for twice, other, _ in places[0]}
    assert orders == ({True, False} if language == "c" else {False})


def symbols(program: Path) -> dict[str, int]:
    """Addresses by name; those of C++ without what encodes their parameters."""
    elf = lief.ELF.parse(program)
    assert elf
    names = {str(each.name): each.value for each in elf.symtab_symbols}
    return names | {"other": names.get("_Z5otheri") or names["other"]}


@pytest.mark.e2e
def test_the_sample_s_trade_off() -> None:
    """Sizes to the byte, and ratios of instructions: always is larger and faster, never neither."""
    sample, problem = Corpus.load(SAMPLE_CORPUS), InliningForSize()
    read = meter_named("instructions").read
    with Programs(sample, ["json"]) as programs, Compiler() as compiler:
        workload = programs.workloads["json"]
        found = {}
        for name in ("default", "always", "never"):
            results = {
                module: compiler.compile_module(
                    sample[module],
                    options_of(sample[module]),
                    problem=problem,
                    policy=problem.policy(name),
                    keep_object=True,
                )
                for module in programs.modules("json")
            }
            with programs.linked(workload, results) as program:
                (reading,) = read(workload, [program])
                found[name] = (program.text_bytes, reading.value)
        with programs.linked(workload) as plain:
            again = count(workload, plain, Instructions.options)
    assert {name: size for name, (size, _) in found.items()} == {
        "default": 3566,
        "always": 6137,
        "never": 3736,
    }
    plain_count = found["default"][1]
    assert again["instructions"] == pytest.approx(plain_count, rel=1e-3)
    assert found["always"][1] / plain_count == pytest.approx(581.0 / 702.3, abs=0.01)
    assert found["never"][1] / plain_count == pytest.approx(715.0 / 702.3, abs=0.01)
    assert sha256("800ead45\n") == workload.stdout_sha256
