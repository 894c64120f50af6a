"""``mlgo-gym profile`` as users have it: from programs to counts in bitcode, and back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.conftest import require

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", name="folder")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample's profile, and the sample with its counts."""
    require("llvm-profdata-22", "llvm-22")
    folder = tmp_path_factory.mktemp("profile")
    done = run("profile", "collect", "--output", "json.profdata", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"[\d,]+ bytes, that of json, in json\.profdata\n", done.stdout)
    done = run(
        *("profile", "attach", "--profile", "json.profdata", "--output", "counted"), cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"\d+ functions with counts, [\d,]+ that the profile does not know, 0 of another build, "
        r"in counted\n",
        done.stdout,
    )
    return folder


@pytest.mark.smoke
def test_show(folder: Path) -> None:
    found = {}
    for name in ("json.profdata", "counted"):
        done = run("profile", "show", name, "--json", cwd=folder)
        found[name] = json.loads(done.stdout)
    assert found["counted"]["summary"] == found["json.profdata"]["summary"]
    assert found["counted"]["summary"]["hot_threshold"] > 0
    entries = {each["function"]: each["entry"] for each in found["counted"]["functions"]}
    assert entries["json_parse"] > 0
    done = run("profile", "show", "counted", "--functions", "2", cwd=folder)
    assert re.search(r"^hot from [\d,]+, cold up to [\d,]+$", done.stdout, re.MULTILINE)


def test_check(folder: Path) -> None:
    done = run("profile", "check", "--corpus", "counted", cwd=folder)
    assert done.returncode == 0
    assert re.fullmatch(r"\d+ functions with counts, 0 that do not add up\n", done.stdout)
    done = run("profile", "check", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "expected counts in the bitcode of the corpus, found none; 'mlgo-gym profile attach' puts "
        "them there\n"
    )


def test_search_by_the_estimate(folder: Path) -> None:
    options = ("--reward", "text:0.5,estimate:0.5", "--budget", "3s", "--output", "found", "--json")
    done = run("search", "--corpus", "counted", *options, cwd=folder)
    assert "json_read.c" in done.stdout
    assert "module 'digest.c': expected counts of its functions in its bitcode" in done.stderr
