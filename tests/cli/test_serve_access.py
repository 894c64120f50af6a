"""Who is let in by ``mlgo-gym serve``, and who is not; in processes of their own."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlgo_gym.model._freeze import freeze
from tests.cli.command import PROGRAM, Done, check_refused, run
from tests.conftest import require

MODEL = Path(__file__).parent.parent / "models" / "default"
TOKEN = "let-me-in"  # noqa: S105


@contextmanager
def serving(folder: Path, *options: str | Path, model: Path = MODEL) -> Iterator[str]:
    """The address of a host that runs meanwhile."""
    command = [*PROGRAM, "serve", "--model", str(model), "--json", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as host:
        assert host.stdout is not None
        try:
            yield json.loads("".join(iter(host.stdout.readline, "}\n")) + "}")["address"]
        finally:
            host.terminate()
    assert host.returncode == 0


def ask(address: str, corpus: Path, *options: str | Path, **environment: str) -> Done:
    asked = ("rollout", "--corpus", corpus, "--model", address, "--mode", "interactive")
    return run(*asked, *options, cwd=corpus.parent, **environment)


@pytest.fixture
def one(small_folder: Path) -> Path:
    """A corpus of one module."""
    manifest = {"modules": ["frame_stream.c"], "has_thinlto": False}
    (small_folder / "corpus_description.json").write_text(json.dumps(manifest))
    return small_folder


@pytest.mark.e2e
def test_by_default_only_this_user_reaches_it(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with serving(tmp_path) as address:
        assert address.startswith("unix:/")
        place = Path(address.removeprefix("unix:"))
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        done = ask(address, one)
        assert (done.returncode, done.stderr) == (0, "")
    assert not place.parent.exists()


@pytest.mark.e2e
def test_token_and_certificate(one: Path, tmp_path: Path) -> None:
    make = [
        *(require("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
        *("ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "crt"),
    ]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    ours = ("--tls-certificate", tmp_path / "crt", "--token-file", tmp_path / "token")
    # All interfaces: without both it would be refused.
    with serving(tmp_path, "--address", "0.0.0.0:0", "--tls-key", "key", *ours) as listens:
        address = f"localhost:{listens.rpartition(':')[2]}"
        assert ask(address, one, *ours).returncode == 0
        assert ask(address, one, *ours[:2], MLGO_TOKEN=TOKEN).returncode == 0
        for settings, words in (
            ({}, "expected a token, found none"),
            ({"MLGO_TOKEN": "guessed"}, "expected this host's token, found another"),
        ):
            done = ask(address, one, *ours[:2], **settings)
            assert done.returncode == 1
            assert f"gRPC host {address}: {words}" in done.stderr


@pytest.mark.parametrize("option", ["--token-file", "--tls-certificate"])
def test_access_without_a_host(option: str, tmp_path: Path) -> None:
    """What only a host would be told is not passed over."""
    message = f"{option}: expected '--mode interactive' beside it, found 'release'"
    check_refused(message, "rollout", option, "file", cwd=tmp_path)


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    message = "--tls-certificate 'junk': expected a certificate as PEM, found none"
    host = ("--mode", "interactive", "--model", "localhost:1", "--tls-certificate", "junk")
    check_refused(message, "rollout", *host, cwd=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--tls-key", "key"],
            "expected --tls-certificate and --tls-key, found one of them",
        ),
        (
            ["--tls-key", "junk", "--tls-certificate", "junk"],
            "--tls-certificate and --tls-key: expected a certificate and its key as PEM, without a "
            "password, found 'junk' and 'junk'",
        ),
        (["--token-file", "gone"], "gone: cannot be read: No such file or directory"),
        (
            ["--address", "0.0.0.0:0"],
            "gRPC host 0.0.0.0:0: an address that other machines reach needs TLS credentials and "
            "a token",
        ),
    ],
)
def test_hosts_that_cannot_be(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    check_refused(message, "serve", "--model", MODEL, *options, cwd=tmp_path)


def test_machine_code_of_others_is_not_served(tmp_path: Path) -> None:
    files = freeze(MODEL, tmp_path / "frozen", name="policy", trusted=True)
    described = json.loads(files.description.read_text())
    files.description.write_text(json.dumps(described | {"seal": None}))
    done = run("serve", "--model", tmp_path / "frozen", cwd=tmp_path)
    assert done.returncode == 1
    assert "expected machine code that this user has frozen on this machine" in done.stderr
