"""The smallest of clang's own object and models', which is never larger than clang's own."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.model import find_model
from tests.conftest import require
from tests.driver.conftest import CHANNEL, MODELS, SOURCE, UNADVISED, Driver, scraps
from tests.driver.test_streams import in_place_of_clang

OTHER, NEVER = str(MODELS / "inliner"), str(MODELS / "never")
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


@pytest.mark.parametrize(
    "line",
    [
        "-Oz -c f.c",
        "-Oz -c f.c -of.o",
        "-Oz f.c -c -o sub/f.o -MD -MF f.d",
        "-Oz -x c -c - -o f.o",
        "-Oz -c @f.rsp",
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


def test_what_has_no_code_is_clang_s_own(driver: Driver, work: Path) -> None:
    log = work / "kept.tsv"
    command = ("-x", "c-header", "-Oz", "-c", "f.c", "-o", "f.pch")
    done = driver.run(*command, f"--mlgo-keep-smaller={NEVER}", f"--mlgo-kept-log={log}", cwd=work)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.pch").exists()
    assert not log.exists()


def files(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    "line",
    [
        "-Oz -S f.c",
        "-Oz f.c -shared -o f.so",
        "-Oz -c f.c -gsplit-dwarf",
        "-Oz -c f.c -fstack-usage",
        "-Oz -c f.c -save-stats=obj",
    ],
)
def test_what_cannot_be_compared_is_clang_s_own(
    driver: Driver, work: Path, way: Mapping[str, str], line: str
) -> None:
    words = shlex.split(line)
    assert driver.plain(*words, cwd=work).returncode == 0
    expected = files(work)
    settings = {"MLGO_KEEP_SMALLER": OTHER, "MLGO_KEPT_LOG": "kept.tsv", **way}
    done = driver.run(*words, cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    assert files(work) == expected


EDITING = 'for word; do shift; set -- "$@" "$(echo "$word" | sed s/^f.o$/g.o/)"; done\n'
ELSEWHERE = {
    "a folder": ("-Oz -c f.c -working-directory={}/sub", {}),
    "a mode": ("--driver-mode=cl -O1 -Brepro -c f.c", {}),
    "edits": ("-Oz -c f.c -o f.o", {"CCC_OVERRIDE_OPTIONS": "#s/^f.o$/g.o/"}),
    "a script": ("-Oz -c f.c -o f.o", {"MLGO_CLANG": "editing"}),
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
    before = {*files(work)}
    assert driver.run(*words, cwd=work, settings=settings).returncode == 0
    expected = files(work)
    (made,) = {*expected} - before
    Path(made).unlink()
    keep = {**settings, "MLGO_KEEP_SMALLER": NEVER, **way}
    done = driver.run(*words, cwd=work, settings=keep)
    assert (done.returncode, done.stderr) == (0, b"")
    assert files(work) == expected


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
            "keep-smaller: expected an inlining-model to compare with clang's own, found none",
        ),
        (
            {"MLGO_KEEP_SMALLER": "1", "MLGO_REGALLOC_MODEL": "regalloc-eviction"},
            "keep-smaller: expected an inlining-model to compare with clang's own, found none",
        ),
        (
            {"MLGO_KEEP_SMALLER": f"nothing,{NEVER}"},
            "model 'nothing': cannot be read: No such file or directory",
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


def test_a_log_that_cannot_be_written(driver: Driver, work: Path) -> None:
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_KEPT_LOG": str(work / "none" / "log")}
    done = driver.run("-Oz", "-c", "f.c", cwd=work, settings=settings)
    assert done.returncode == 0
    assert done.stderr == (
        b"mlgo-cc: warning: cannot write to the log of what was kept: No such file or directory\n"
    )
    assert (work / "f.o").exists()


def test_the_fingerprint_names_all_that_are_compared(driver: Driver, work: Path) -> None:
    def of(value: str) -> list[bytes]:
        settings = {"MLGO_KEEP_SMALLER": value}
        done = driver.run("--mlgo-fingerprint", cwd=work, settings=settings)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[2:]

    one, two = of(OTHER), of(f"{OTHER},{NEVER}")
    assert (one[0], len(one), two[:2], len(two)) == (b"keep-smaller", 2, one, 3)
    assert not scraps(driver)
