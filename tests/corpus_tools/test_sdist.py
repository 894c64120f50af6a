"""Fetching sdists: from PyPI, from folders, and from servers that misbehave."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from corpus_tools import Recipe, load_recipe
from corpus_tools.errors import SdistError
from corpus_tools.sdist import fetch_sdist, sha256_of

MakeRecipe = Callable[..., Recipe]
Ask = Callable[..., None]
_DEAD = "http://127.0.0.1:9/simple/"


@pytest.fixture(autouse=True)
def own_pip(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Pip's one file of configuration, instead of the machine's and the user's."""
    path = tmp_path_factory.mktemp("pip") / "pip.conf"
    if request.node.get_closest_marker("network"):
        yield path
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", str(path))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", "")
        yield path


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Have pip look for packages in these indexes."""

    def ask_indexes(first: str, *others: str) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", first)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", " ".join(others))

    return ask_indexes


@contextmanager
def _index(pages: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """Serve a package index of these paths over HTTP, and 404 for all others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = pages.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


_LINK = b'<a href="/files/tiny-1.0.tar.gz">tiny-1.0.tar.gz</a>'


@pytest.mark.network
def test_pypi_has_the_sdist_of_a_recipe(tmp_path: Path) -> None:
    recipe = load_recipe("lz4")
    fetched = fetch_sdist(recipe, tmp_path / "new" / "cache")
    assert fetched == tmp_path / "new" / "cache" / recipe.sdist
    assert sha256_of(fetched) == recipe.sha256
    assert list(fetched.parent.iterdir()) == [fetched]


def test_a_file_in_the_cache_is_not_fetched_again(tmp_path: Path, tiny_recipe: MakeRecipe) -> None:
    (tmp_path / "tiny-1.0.tar.gz").write_bytes(b"cached")
    recipe = tiny_recipe(sha256=hashlib.sha256(b"cached").hexdigest())
    assert fetch_sdist(recipe, tmp_path).read_bytes() == b"cached"


def test_a_spoilt_file_in_the_cache_is_replaced(tmp_path: Path, make_sdist: MakeRecipe) -> None:
    recipe = make_sdist({"a.c": "int a;"})
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / recipe.sdist).write_bytes(b"half")
    assert sha256_of(fetch_sdist(recipe, cache)) == recipe.sha256


def test_a_folder_that_pip_looks_into_keeps_its_file(
    tmp_path: Path, make_sdist: MakeRecipe
) -> None:
    recipe = make_sdist({"a.c": "int a;"})
    fetch_sdist(recipe, tmp_path / "cache")
    assert sha256_of(tmp_path / "links" / recipe.sdist) == recipe.sha256


def test_another_hash_is_refused_and_nothing_kept(tmp_path: Path, make_sdist: MakeRecipe) -> None:
    recipe = make_sdist({"a.c": "int a;"}, sha256="0" * 64)
    with pytest.raises(SdistError) as caught:
        fetch_sdist(recipe, tmp_path / "cache")
    found = sha256_of(tmp_path / "links" / recipe.sdist)
    assert str(caught.value) == f"tiny-1.0.tar.gz: expected sha256 {'0' * 64}, found {found}"
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_index_over_http_serves_and_a_dead_one_before_it_does_not_matter(
    tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask
) -> None:
    recipe = tiny_recipe(sha256=hashlib.sha256(b"sdist").hexdigest())
    pages = {"/simple/tiny/": (200, _LINK), "/files/tiny-1.0.tar.gz": (200, b"sdist")}
    with _index(pages) as address:
        ask(_DEAD, f"{address}/simple/")
        assert fetch_sdist(recipe, tmp_path).read_bytes() == b"sdist"


def test_a_dead_network_is_called_that(tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask) -> None:
    ask(_DEAD)
    with pytest.raises(SdistError) as caught:
        fetch_sdist(tiny_recipe(), tmp_path)
    start = f"network failure while fetching package 'tiny': {_DEAD}: "
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("Connection refused")


def test_a_download_that_fails_is_called_that(
    tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask
) -> None:
    with _index({"/simple/tiny/": (200, _LINK)}) as address:
        ask(f"{address}/simple/")
        with pytest.raises(SdistError, match=r"'tiny': .*/files/tiny-1\.0\.tar\.gz: .*404"):
            fetch_sdist(tiny_recipe(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_index_without_the_package_says_so_and_logs_nothing(
    tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask
) -> None:
    with _index({}) as address:
        ask(f"{address}/simple/")
        with pytest.raises(SdistError) as caught:
            fetch_sdist(tiny_recipe(), tmp_path)
    note = f"Failed to collect links from {address}/simple/tiny/: Client Error(404): Not Found"
    assert str(caught.value) == (
        f"package 'tiny': expected tiny-1.0.tar.gz in {address}/simple/; found {note}"
    )
    assert logging.getLogger("unearth.collector").handlers == []


def test_an_index_with_another_file_says_so(
    tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask
) -> None:
    with _index({"/simple/tiny/": (200, _LINK)}) as address:
        ask(f"{address}/simple/")
        with pytest.raises(SdistError) as caught:
            fetch_sdist(tiny_recipe(sdist="tiny-1.0.zip"), tmp_path)
    assert str(caught.value) == (
        f"package 'tiny': expected tiny-1.0.zip in {address}/simple/; found other files only"
    )


def test_passwords_of_an_index_are_not_repeated(
    tmp_path: Path, tiny_recipe: MakeRecipe, ask: Ask
) -> None:
    ask("http://me:secret@127.0.0.1:9/simple/")
    with pytest.raises(SdistError) as caught:
        fetch_sdist(tiny_recipe(), tmp_path)
    assert "secret" not in str(caught.value)


def test_a_folder_that_is_not_there_is_noted(
    tmp_path: Path, tiny_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    with pytest.raises(SdistError) as caught:
        fetch_sdist(tiny_recipe(), tmp_path)
    gone = f"{tmp_path}/gone"
    assert str(caught.value).endswith(
        f"; found {gone}: Invalid find link or non-existing path: {gone}"
    )


def test_the_environment_beats_the_command_and_that_the_rest(
    tmp_path: Path, tiny_recipe: MakeRecipe, own_pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is in the section of the command; a dead index and folders are in the others."""
    recipe = tiny_recipe(sha256=hashlib.sha256(b"sdist").hexdigest())
    pages = {"/simple/tiny/": (200, _LINK), "/files/tiny-1.0.tar.gz": (200, b"sdist")}
    with _index(pages) as address:
        own_pip.write_text(
            f"[global]\nindex-url = {_DEAD}\n[install]\nfind-links = {tmp_path}/gone\n"
            f"[download]\nindex-url = {_DEAD}\nextra-index-url =\n  {_DEAD}\n  {address}/simple/\n"
        )
        monkeypatch.setenv("PIP_NO_INDEX", "0")
        assert fetch_sdist(recipe, tmp_path).read_bytes() == b"sdist"
        (tmp_path / recipe.sdist).unlink()
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", _DEAD)
        with pytest.raises(SdistError, match="network failure") as caught:
            fetch_sdist(recipe, tmp_path)
    assert address not in str(caught.value)
    assert "gone" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[global]\ntimeout = soon\n", "pip config list: exit status 3: .*'soon'"),
        ("nonsense\n", "pip config list: exit status .*nonsense"),
    ],
)
def test_a_configuration_that_cannot_be_read(
    tmp_path: Path, tiny_recipe: MakeRecipe, own_pip: Path, text: str, problem: str
) -> None:
    own_pip.write_text(text)
    with pytest.raises(SdistError, match=f"^{problem}.*$"):
        fetch_sdist(tiny_recipe(), tmp_path)


def test_without_pip_there_is_no_configuration() -> None:
    code = """
import sys
sys.modules["pip"] = None
from corpus_tools import package_index
print(package_index._sources(package_index._pip_options()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[('index', 'https://pypi.org/simple/')]\n"
