"""Targets that a tune makes larger keep LLVM's own answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.cc import Build, compile_objects, open_build
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.lab.tuning._tuned import verify
from tests.cc.conftest import MODELS, Driver
from tests.conftest import require

# Not to inline makes it larger; nothing calls anything in the other.
LARGER = "static int g(int x) { return x * x; } int f(int x) { return g(x) + g(x + 1); }\n"
EQUAL = "int h(int x) { return x * 3; }\n"
NEVER = f"--mlgo-inlining-model={MODELS / 'never'}"


@pytest.fixture
def build(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    clang = require("clang-22", "clang-22")
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)
    sources = {"larger.c": LARGER, "equal.c": EQUAL, "both.c": "int both(int x) { return x; }\n"}
    entries = []
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
        line = f"{clang} -Oz -ffunction-sections -c {name} -o {name[:-2]}.o"
        entries.append({"directory": str(tmp_path), "file": name, "command": line})
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps(entries))
    with open_build(database, 2, 60.0) as opened:
        yield opened


def keys(*names: str) -> tuple[ModuleKey, ...]:
    return tuple(ModuleKey("", f"{name}.o") for name in names)


def test_a_target_that_grows_keeps_llvms_own(build: Build) -> None:
    targets = {"libl.so": keys("larger", "both"), "libe.so": keys("equal", "both")}
    found = verify(build, targets, [NEVER], jobs=2, timeout_s=60.0)
    larger, equal = found["libl.so"], found["libe.so"]
    assert larger.why.startswith("grows: ")
    assert "bytes linked" in larger.why
    assert "after --icf=safe" in larger.why
    assert larger.built == larger.plain != None  # noqa: E711
    assert (equal.why, equal.built) == ("", equal.plain)


def test_a_target_grows_by_objects_that_another_keeps(build: Build) -> None:
    """Nothing is assumed of targets that share objects: they are linked again."""
    targets = {"libl.so": keys("larger"), "libx.so": keys("larger", "equal")}
    found = verify(build, targets, [NEVER], jobs=2, timeout_s=60.0)
    assert all(each.built == each.plain for each in found.values())


def test_what_cannot_be_compared_keeps_llvms_own(build: Build) -> None:
    targets = {"libe.so": keys("equal"), "liba.so": keys("equal", "missing")}
    found = verify(build, targets, [], jobs=2, timeout_s=60.0)
    assert found["liba.so"].why == "cannot be compared: missing.o: it has no command"
    assert found["liba.so"].plain is None
    assert found["libe.so"].why == ""


def test_objects_are_clangs_own_whatever_is_set(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, failures = compile_objects(build, (), jobs=2, timeout_s=60.0)
    assert (sorted(plain), failures) == (sorted(build.corpus), {})
    monkeypatch.setenv("MLGO_INLINING_MODEL", str(MODELS / "never"))
    assert compile_objects(build, (), jobs=1, timeout_s=60.0)[0] == plain
    assert compile_objects(build, [NEVER], jobs=1, timeout_s=60.0)[0] != plain


def test_what_fails_says_why(build: Build) -> None:
    _, failures = compile_objects(build, ["--no-such-option"], jobs=2, timeout_s=60.0)
    assert sorted(failures) == sorted(build.corpus)
    assert all("clang exited with 1" in why for why in failures.values())
