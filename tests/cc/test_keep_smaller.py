"""The smallest of clang's own object and models', which is never larger than clang's own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mlgo_gym.cc._builds import read_kept_log
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.model import find_model
from tests.cc.conftest import CHANNEL, MODELS, NOTHING, SOURCE, UNADVISED, Driver, scraps
from tests.cc.test_streams import in_place_of_clang
from tests.conftest import require
from tests.folders import tree

OTHER, NEVER = str(MODELS / "inliner"), str(MODELS / "never")
LARGER = f"""volatile int v, w;
static void g(void) {{ v = 1000000; w = 2000000; }}
void f(void) {{ {"g(); " * 8} }}
"""
"""What is larger by LLVM's own answers."""
FLAGS = ("-w", "-Oz", "-x", "ir", "-c")


def text_of(path: Path) -> int:
    """By another reader than the driver's."""
    done = subprocess.run(
        [require("llvm-size-22", "llvm-22"), "-A", path], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return sum(int(row[1]) for row in rows if row and row[0].startswith(".text"))


@pytest.mark.e2e
def test_the_smallest_is_kept(driver: Driver, sample: Corpus, work: Path) -> None:
    log = work / "kept.tsv"
    shipped = "inlining-for-size"
    settings = {"MLGO_KEEP_SMALLER": f"{shipped},{OTHER},{NEVER}", "MLGO_KEPT_LOG": str(log)}
    expected, kept = [], set()
    for name in ("lru_cache.cpp", "expr_compile.c", "json_write.c", "hash_map.c", "digest.c"):
        source = sample.folder / f"{name}.bc"
        target = work / "out.o"
        made = {}
        for each in ("LLVM", shipped, OTHER, NEVER):
            alone = {"MLGO_INLINING_MODEL": each, "MLGO_STRICT": "1"}
            if each == "LLVM":
                done = driver.plain(*FLAGS, source, "-o", target, cwd=work)
            else:
                done = driver.run(*FLAGS, source, "-o", target, cwd=work, settings=alone)
            assert done.returncode == 0, done.stderr
            made[each] = (text_of(target), target.read_bytes())
        target.unlink()
        done = driver.run(*FLAGS, source, "-o", target, cwd=work, settings=settings)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        best = min(made, key=lambda each: made[each][0])
        assert target.read_bytes() == made[best][1]
        who = find_model(best) if best == shipped else best
        expected.append([who, str(made[best][0]), str(made["LLVM"][0]), str(target)])
        kept.add(best)
    assert len(kept) > 1
    assert [line.split("\t") for line in log.read_text().splitlines()] == expected
    assert {path.name for path in work.iterdir()} == {"f.c", "kept.tsv", "out.o"}


@pytest.mark.parametrize("way", [NOTHING, CHANNEL], ids=["in-process", "channel"])
def test_eviction_alone(driver: Driver, sample: Corpus, work: Path, way: Mapping[str, str]) -> None:
    log, target = work / "kept.tsv", work / "out.o"
    evict = {"MLGO_REGALLOC_MODEL": "regalloc-eviction", "MLGO_STRICT": "1", **way}
    keep = evict | {"MLGO_KEEP_SMALLER": "1", "MLGO_KEPT_LOG": str(log)}
    for name in ("expr_vm.c", "json_write.c", "graph.cpp"):
        source = sample.folder / f"{name}.bc"
        made = []
        for settings in (None, evict):
            line = (*FLAGS, source, "-o", target)
            if settings:
                driver.run(*line, cwd=work, settings=settings)
            else:
                driver.plain(*line, cwd=work)
            made.append((text_of(target), target.read_bytes()))
        done = driver.run(*line, cwd=work, settings=keep)
        assert (done.returncode, done.stderr) == (0, b"")
        assert target.read_bytes() == min(made, key=lambda each: each[0])[1]
    kept = [line.split("\t")[0] for line in log.read_text().splitlines()]
    assert set(kept) <= {"LLVM", find_model("regalloc-eviction")}
    assert len(kept) == 3


@pytest.mark.parametrize(
    "line",
    [
        "-Oz -c f.c",
        "-Oz -c f.c -of.o",
        "-Oz f.c -c -o sub/f.o -MD -MF f.d",
        "-Oz -x c -c - -o f.o",
        "-Oz -c @f.rsp",
        "-Oz -c f.c -Xclang -fembed-bitcode=all",
    ],
)
def test_command_lines_that_make_one_object(driver: Driver, work: Path, line: str) -> None:
    (work / "sub").mkdir()
    (work / "f.rsp").write_text("f.c -o f.o -w")
    words = shlex.split(line)
    source = (work / "f.c").read_bytes()
    log = work / "kept.tsv"
    done = driver.run(
        *words, f"--mlgo-keep-smaller={NEVER}", f"--mlgo-kept-log={log}", cwd=work, stdin=source
    )
    assert (done.returncode, done.stderr) == (0, b"")
    (made,) = (path for path in (work / "f.o", work / "sub" / "f.o") if path.exists())
    (row,) = (line.split("\t") for line in log.read_text().splitlines())
    assert row[3] == str(made)
    assert int(row[1]) == text_of(made) <= int(row[2])


def test_a_name_is_one_line_of_the_log(driver: Driver, work: Path) -> None:
    """Nor does a message bring it to a terminal as it is."""
    name, shown = (
        "a\nLLVM\t1\t2\tb\x1b[31m\x9b1m\u202e\u200bü.o",
        "a\\x0aLLVM\\x091\\x092\\x09b\\x1b[31m\\xc2\\x9b1m\\xe2\\x80\\xae\\xe2\\x80\\x8bü.o",
    )
    log = work / "kept.tsv"
    line = ("-Oz", "-c", "f.c", "-o", name, f"--mlgo-keep-smaller={NEVER}")
    done = driver.run(*line, f"--mlgo-kept-log={log}", cwd=work)
    assert (done.returncode, done.stderr) == (0, b"")
    (row,) = log.read_text().splitlines()
    assert row.split("\t")[3] == str(work / shown)
    (group,) = read_kept_log(log)
    assert group.objects == 1
    done = driver.run("-c", "f.c", f"--mlgo-inlining-model={work / name}", cwd=work)
    assert f"model '{work / shown}'".encode() in done.stderr


def test_a_model_s_name_is_a_field_of_the_log(driver: Driver, work: Path) -> None:
    model, log = work.parent / "a\tb\nc", work / "kept.tsv"
    shutil.copytree(NEVER, model)
    (work / "f.c").write_text(LARGER)
    line = ("-Oz", "-c", "f.c", f"--mlgo-keep-smaller={model}", f"--mlgo-kept-log={log}")
    done = driver.run(*line, cwd=work)
    assert (done.returncode, done.stderr) == (0, b"")
    (group,) = read_kept_log(log)
    assert group.kept == str(work.parent / "a\\x09b\\x0ac")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(os.mkdir, "Is a directory"), (os.mkfifo, "No such device or address")],
    ids=["folder", "FIFO"],
)
def test_a_log_that_cannot_be_written(
    driver: Driver, work: Path, make: Callable[[Path], None], reason: str
) -> None:
    log = work.parent / "log"
    make(log)
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_KEPT_LOG": str(log)}
    words = f"cannot write to the log of what was kept: {reason}"
    for strict, kind in (("0", "warning"), ("1", "error")):
        done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": strict})
        said = (done.returncode, done.stderr.decode())
        assert said == (int(strict), f"mlgo-cc: {kind}: {words}\n")
        assert (work / "f.o").exists() == (strict == "0")


def test_what_has_no_code_is_clang_s_own(driver: Driver, work: Path) -> None:
    log = work / "kept.tsv"
    command = ("-x", "c-header", "-Oz", "-c", "f.c", "-o", "f.pch")
    done = driver.run(*command, f"--mlgo-keep-smaller={NEVER}", f"--mlgo-kept-log={log}", cwd=work)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.pch").exists()
    assert not log.exists()


ABOUT = "writes about the code of clang's own object"
REFUSED = {
    "-c f.c -gsplit-dwarf": "'-gsplit-dwarf' puts a part of the object elsewhere",
    "-c f.c -fstack-usage": f"'-fstack-usage' {ABOUT}",
    "-c f.c -Xarch_host -fstack-usage": f"'-fstack-usage' {ABOUT}",
    "-c f.c --config=./f.cfg": "'--config=./f.cfg' names options that are not read here",
    "-c f.c --config ./f.cfg": "'--config' names options that are not read here",
    "-c f.c -save-temps": f"'-save-temps' {ABOUT}",
    "-c f.c -Xclang -stats-file=f.stats": f"'-stats-file=f.stats' {ABOUT}",
    "-c f.c -fembed-bitcode": "'-fembed-bitcode' takes no options of LLVM's beside it",
    "-c f.c -flto": "an object of -flto has no code yet",
    "-c f.c -flto=thin": "an object of -flto has no code yet",
    "-c f.c g.c": "expected one input, found 2",
    "-c f.c -o -": "the object goes to standard output",
    "-c -x c /dev/stdin -o f.o": "an input or output is a pipe or a device",
    "-c f.c --target=x86_64-apple-darwin": "expected an ELF object at 'f.o', found Mach-O",
    "-c f.c --target=x86_64-windows-gnu": "expected an ELF object at 'f.o', found COFF",
    "-c f.c --target=wasm32": "expected an ELF object at 'f.o', found WebAssembly",
    "-c f.c -Xclang -emit-llvm-bc": "expected an ELF object at 'f.o', found LLVM bitcode",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_compared_is_said(
    driver: Driver, work: Path, way: Mapping[str, str], line: str
) -> None:
    (work / "g.c").write_text("int h(void) { return 1; }\n")
    (work / "f.cfg").write_text("-fstack-usage\n")
    words, source = ["-Oz", "-ffreestanding", *shlex.split(line)], (work / "f.c").read_bytes()
    before = tree(work)
    plain = driver.plain(*words, cwd=work, stdin=source)
    assert plain.returncode == 0, plain.stderr
    expected = tree(work)
    for each in {*expected} - {*before}:
        (work / each).unlink()
    settings = {"MLGO_KEEP_SMALLER": OTHER, "MLGO_KEPT_LOG": "kept.tsv", **way}
    done = driver.run(*words, cwd=work, stdin=source, settings=settings)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    said = f"mlgo-cc: warning: keep-smaller: {REFUSED[line]}; compiled by plain clang\n"
    assert sorted(done.stderr.splitlines()) == sorted(
        [*plain.stderr.splitlines(), said[:-1].encode()]
    )
    assert tree(work) == expected
    for each in {*expected} - {*before}:
        (work / each).unlink()
    strict = settings | {"MLGO_STRICT": "1"}
    done = driver.run(*words, cwd=work, stdin=source, settings=strict)
    assert done.returncode == 1
    assert f"mlgo-cc: error: keep-smaller: {REFUSED[line]}\n".encode() in done.stderr
    assert tree(work) == before


NOTHING_TO_COMPARE = (
    "f.c -shared -o f.so",
    "-shared -flto -fuse-ld=lld f.c -o f.so",
    "-shared -gsplit-dwarf f.c g.c -o f.so",
    "-S f.c g.c",
    "-emit-llvm -c f.c",
    "-E f.c -o f.i",
    "-fsyntax-only f.c",
    "-c s.s -gdwarf-5",
    "-c -xassembler f.c -o f.o",
    "-x c-header -c f.c -o f.pch",
    "-c f.c -o /dev/null",
    "-c -flto f.c -###",
    "--version -c",
)


@pytest.mark.parametrize("line", NOTHING_TO_COMPARE)
def test_where_there_is_nothing_to_compare(
    driver: Driver, work: Path, way: Mapping[str, str], line: str
) -> None:
    """Links and probes of a build are plain clang's without a word, strict or not."""
    require("ld.lld-22", "lld-22")
    (work / "s.s").write_text("nop\n")
    (work / "g.c").write_text("int h(void) { return 1; }\n")
    if "assembler" in line:
        (work / "f.c").write_text("nop\n")
    before, words = {*tree(work)}, ["-Oz", *shlex.split(line)]
    plain = driver.plain(*words, cwd=work)
    assert plain.returncode == 0, plain.stderr
    expected = tree(work)
    for each in {*expected} - before:
        (work / each).unlink()
    settings = {"MLGO_KEEP_SMALLER": OTHER, "MLGO_KEPT_LOG": "kept.tsv", "MLGO_STRICT": "1", **way}
    done = driver.run(*words, cwd=work, settings=settings)
    said = (done.returncode, done.stdout)
    assert said == (0, plain.stdout)
    assert b"mlgo" not in done.stderr
    assert tree(work) == expected


WORTH_IT = """
static int g(int x, int y) { while (x > y) { x = x * y - 7; y += x >> 3; } return x ^ y; }
int f(int x) { return g(x, 3) + g(4, x) + g(x + 1, x); }
"""


@pytest.mark.parametrize(
    "target",
    ["s390x-linux-gnu", "powerpc-linux-gnu", "aarch64_be-linux-gnu", "armeb-none-eabi", "i386"],
)
def test_either_byte_order(driver: Driver, work: Path, way: Mapping[str, str], target: str) -> None:
    (work / "f.c").write_text(WORTH_IT)
    line = ("-O2", "-ffreestanding", f"--target={target}", "-c", "f.c")
    assert driver.plain(*line, cwd=work).returncode == 0
    plain = text_of(work / "f.o")
    log = work / "kept.tsv"
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_KEPT_LOG": str(log), "MLGO_STRICT": "1", **way}
    done = driver.run(*line, cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    kept, size_bytes, plain_bytes, _ = log.read_text().split("\t")
    assert (kept, int(size_bytes), int(plain_bytes)) == (NEVER, text_of(work / "f.o"), plain)
    assert int(size_bytes) < plain


EDITING = 'for word; do shift; set -- "$@" "$(echo "$word" | sed s/^f.o$/g.o/)"; done\n'
ELSEWHERE = {
    "-working-directory": ("-Oz -c f.c -working-directory={}/sub", {}),
    "--driver-mode": ("--driver-mode=cl -O1 -Brepro -c f.c", {}),
    "CCC_OVERRIDE_OPTIONS": ("-Oz -c f.c -o f.o", {"CCC_OVERRIDE_OPTIONS": "#s/^f.o$/g.o/"}),
    "found nothing": ("-Oz -c f.c -o f.o", {"MLGO_CLANG": "a script"}),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_an_object_of_another_name(
    driver: Driver, work: Path, way: Mapping[str, str], kind: str
) -> None:
    """What stands under the name that the command line tells stays as it was."""
    line, settings = ELSEWHERE[kind]
    words = line.format(work).split()
    (work / "sub").mkdir()
    (work / "sub" / "f.c").write_text(SOURCE)
    if settings.get("MLGO_CLANG"):
        settings = in_place_of_clang(driver, work, EDITING + 'exec $clang "$@"\n')
        del settings["MLGO_INLINING_MODEL"]
    assert driver.plain("-O0", "-c", "f.c", cwd=work).returncode == 0
    before = {*tree(work)}
    assert driver.run(*words, cwd=work, settings=settings).returncode == 0
    expected = tree(work)
    (made,) = {*expected} - before
    (work / made).unlink()
    keep = {**settings, "MLGO_KEEP_SMALLER": NEVER, **way}
    done = driver.run(*words, cwd=work, settings=keep)
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)
    assert done.stderr.startswith(b"mlgo-cc: warning: keep-smaller: ")
    assert kind.encode() in done.stderr
    assert done.stderr.endswith(UNADVISED)
    assert tree(work) == expected


LISTING = 'case "$*" in *channel-base*) echo $(ls) >> ../found;; esac\nexec $clang "$@"\n'


@pytest.mark.parametrize("model", [NEVER, str(MODELS / "unknown_feature")])
def test_only_what_is_kept_has_the_name(driver: Driver, work: Path, model: str) -> None:
    """A driver that is killed leaves clang's own object or none; who ends has put it back."""
    settings = in_place_of_clang(driver, work.parent, LISTING) | CHANNEL
    del settings["MLGO_INLINING_MODEL"]
    line = ("-Oz", "-c", "f.c", "-o", "f.o")
    assert driver.plain(*line, cwd=work).returncode == 0
    plain = work / "f.o"
    expected, mode = plain.read_bytes(), plain.stat().st_mode
    plain.unlink()
    default = str(MODELS / "default")
    threshold = {"MLGO_SIZE_INCREASE_THRESHOLD": "1e9"}
    models = {"MLGO_KEEP_SMALLER": f"{default},{model}"}
    done = driver.run(*line, cwd=work, settings={**settings, **models, **threshold})
    assert done.returncode == 0
    assert (plain.read_bytes(), plain.stat().st_mode) == (expected, mode)
    assert (work.parent / "found").read_text().splitlines() == ["f.c f.o", "f.c"]


def test_an_error_of_the_source_is_said_once(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text("int f(void) { return g; }\n")
    expected = driver.plain("-Oz", "-c", "f.c", cwd=work)
    done = driver.run("-Oz", "-c", "f.c", f"--mlgo-keep-smaller={OTHER},{NEVER}", cwd=work)
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr)
    assert [path.name for path in work.iterdir()] == ["f.c"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"MLGO_KEEP_SMALLER": "1"},
            "keep-smaller: expected a model to compare with clang's own, found none",
        ),
        (
            {"MLGO_KEEP_SMALLER": f"nothing,{NEVER}"},
            "model 'nothing': expected a folder, or one of inlining-for-size, "
            "inlining-for-size-derived, inlining-for-size-project, regalloc-eviction; "
            "found neither",
        ),
    ],
)
def test_bad_settings(driver: Driver, work: Path, settings: dict[str, str], message: str) -> None:
    done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings)
    compared = b"; not compared\n" if message.startswith("model") else UNADVISED
    said = f"mlgo-cc: warning: {message}".encode()
    assert (done.returncode, done.stderr) == (0, said + compared)
    (work / "f.o").unlink()
    done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings | {"MLGO_STRICT": "1"})
    assert (done.returncode, done.stderr) == (1, f"mlgo-cc: error: {message}\n".encode())
    assert not (work / "f.o").exists()


def test_the_fingerprint_names_all_that_are_compared(driver: Driver, work: Path) -> None:
    def of(value: str) -> list[bytes]:
        settings = {"MLGO_KEEP_SMALLER": value}
        done = driver.run("--mlgo-fingerprint", cwd=work, settings=settings)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[2:]

    one, two = of(OTHER), of(f"{OTHER},{NEVER}")
    assert (one[0], len(one), two[:2], len(two)) == (b"keep-smaller", 2, one, 3)
    assert not scraps(driver)
