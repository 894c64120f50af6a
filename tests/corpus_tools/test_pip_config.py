"""pip's own configuration, as pip prints it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corpus_tools.pip_config import PYPI, PipConfig, parse_config_list


@pytest.fixture
def own_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip read one configuration file of the test's, and no variable of the machine's."""
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "TRUSTED_HOST"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.delenv("PIP_CERT", raising=False)
    path = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    return path


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({}, PipConfig()),
        ({"index-url": "https://a/"}, PipConfig(index_urls=("https://a/",))),
        (
            {"extra-index-url": "\nhttps://a/\nhttps://b/"},
            PipConfig(index_urls=(PYPI, "https://a/", "https://b/")),
        ),
        (
            {"no-index": "true", "find-links": "/a /b"},
            PipConfig(index_urls=(), find_links=("/a", "/b")),
        ),
        ({"no-index": "0"}, PipConfig()),
        ({"trusted-host": "a b:81"}, PipConfig(trusted_hosts=("a", "b:81"))),
        (
            {"cert": "/c.pem", "timeout": "3", "default-timeout": "9"},
            PipConfig(certificates="/c.pem", timeout_s=3.0),
        ),
        ({"default-timeout": "180"}, PipConfig(timeout_s=180.0)),
        ({"timeout": "soon"}, PipConfig(timeout_s=15.0)),
    ],
)
def test_options_are_read_as_pip_reads_them(options: dict[str, str], config: PipConfig) -> None:
    assert PipConfig.from_options(options) == config


def test_the_environment_beats_the_command_and_that_the_rest() -> None:
    text = (
        ":env:.index-url='https://env/'\nglobal.index-url='https://global/'\n"
        "download.timeout='5'\nglobal.timeout='60'\ninstall.find-links='/not/ours'\nnonsense\n"
    )
    assert parse_config_list(text) == {"index-url": "https://env/", "timeout": "5"}


def test_pip_is_asked(own_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_pip.write_text("[global]\nindex-url = https://file/\nextra-index-url =\n  https://c/\n")
    monkeypatch.setenv("PIP_FIND_LINKS", "/links")
    config = PipConfig.from_environment()
    assert config.index_urls == ("https://file/", "https://c/")
    assert config.find_links == ("/links",)


def test_without_pip_the_variables_are_read(own_pip: Path, tmp_path: Path) -> None:
    own_pip.write_text("[global]\nindex-url = https://file/\n")
    # A folder `pip` without __main__ in front of the real one: `python -m pip` fails.
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").write_text("")
    code = (
        "from corpus_tools.pip_config import PipConfig; "
        "print(PipConfig.from_environment().index_urls)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}",
            "PIP_INDEX_URL": "https://env/",
            "PIP_CONFIG_FILE": str(own_pip),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "('https://env/',)\n"


def test_without_python_the_variables_are_read(
    own_pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_pip.write_text("[global]\nindex-url = https://file/\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://env/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://more/")
    monkeypatch.setenv("INDEX_URL", "https://not/")
    monkeypatch.setattr(sys, "executable", str(own_pip.parent / "none"))
    assert PipConfig.from_environment().index_urls == ("https://env/", "https://more/")
