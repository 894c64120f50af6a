"""distcc in front of the driver, with one server here: it compiles what this machine would.

The server runs as nobody where the tests run as root, which it refuses to be; so all that it needs
lies in a folder that everybody may read.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, NOTHING, SOURCE, Driver, free_port
from tests.conftest import require
from tests.waiting import wait_for

pytestmark = pytest.mark.e2e

SHARED = tempfile.gettempdir()  # and not the tests' own, which is for their user alone
ENDS = re.compile(r"COMPILE_OK|COMPILE_ERROR")  # of distccd's dcc_job_summary


@dataclass(frozen=True)
class Farm:
    """A client and a server.

    Attributes:
        folder: of the client and the server.
        port: of the server; nothing listens there where it is down.
    """

    distcc: str
    driver: Driver
    folder: Path
    port: int

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def model(self) -> str:
        return f"--mlgo-inlining-model={self.folder / 'models' / 'never'}"

    def compile(
        self, *arguments: str, settings: Mapping[str, str] = NOTHING
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **self.driver.environment,
            "DISTCC_DIR": str(self.folder / "client"),
            "DISTCC_HOSTS": f"127.0.0.1:{self.port}",
        }
        (self.work / "f.o").unlink(missing_ok=True)
        return subprocess.run(
            [self.distcc, "mlgo-cc", "-O2", "-c", "f.c", *arguments],
            cwd=self.work, env={**environment, **settings}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def object(self) -> bytes:
        return (self.work / "f.o").read_bytes()

    def served(self) -> list[str]:
        """How the server's jobs ended, of which there is one at least; it logs that afterwards."""
        wait_for(lambda: ENDS.search(self.log.read_text(errors="replace")))
        return ENDS.findall(self.log.read_text(errors="replace"))

    def expected(self, *arguments: str) -> bytes:
        """What this machine makes by itself."""
        done = self.driver.run("-O2", "-c", "f.c", *arguments, cwd=self.work)
        assert (done.returncode, done.stderr) == (0, b"")
        return self.object()


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def farm(driver: Driver) -> Iterator[Farm]:
    """A client whose server is down."""
    distcc = require("distcc", "distcc")
    with tempfile.TemporaryDirectory(dir=SHARED, prefix="mlgo-distcc-") as name:
        folder = Path(name)
        for part in ("work", "client", "temporary"):
            (folder / part).mkdir()
        (folder / "work" / "f.c").write_text(SOURCE)
        shutil.copytree(driver.scripts, folder / "bin")
        shutil.copytree(MODELS / "never", folder / "models" / "never")
        environment = {
            **driver.environment,
            "MLGO_CACHE": str(folder / "cache"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{driver.environment['PATH']}",
        }
        copied = replace(driver, environment=environment, scripts=folder / "bin")
        ready = Farm(distcc, copied, folder, free_port())
        ready.expected(ready.model)  # freezes the model
        for each in (folder, *folder.rglob("*")):
            each.chmod(each.stat().st_mode | 0o555)
        (folder / "temporary").chmod(0o777)
        yield ready


@contextmanager
def server(farm: Farm, *, knows_driver: bool = True) -> Iterator[None]:
    """A server; where it does not know the driver, it refuses to run it."""
    (farm.folder / "commands").write_text(f"{farm.folder}/bin/mlgo-cc\n")
    environment = {**farm.driver.environment, "TMPDIR": str(farm.folder / "temporary")}
    if knows_driver:
        environment["DISTCC_CMDLIST"] = str(farm.folder / "commands")
    command = [
        *(require("distccd", "distcc"), "--daemon", "--no-detach", "--user", "nobody"),
        *("--listen", "127.0.0.1", "--port", str(farm.port), "--allow", "127.0.0.1"),
        *("--log-level", "info", "--log-stderr"),
    ]
    with (
        farm.log.open("w") as log,
        subprocess.Popen(command, env=environment, cwd=farm.folder, stderr=log) as process,
    ):
        try:
            wait_for(lambda: is_listening(farm.port) or process.poll() is not None)
            assert process.poll() is None
            yield
        finally:
            process.terminate()


def test_the_server_compiles_with_the_model_of_the_command_line(farm: Farm) -> None:
    with server(farm):
        done = farm.compile(farm.model, "--mlgo-strict=1")
        assert (done.returncode, done.stderr) == (0, "")
        assert farm.served() == ["COMPILE_OK"]
        assert farm.object() == farm.expected(farm.model) != farm.expected()


def test_the_environment_stays_here(farm: Farm) -> None:
    """Why the model belongs on the command line: this object is plain clang's."""
    settings = {"MLGO_INLINING_MODEL": farm.model.partition("=")[2]}
    with server(farm):
        done = farm.compile(settings=settings)
        assert (done.returncode, done.stderr) == (0, "")
        assert farm.served() == ["COMPILE_OK"]
        assert farm.object() == farm.expected()


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_server_without_the_model(farm: Farm, *, is_strict: bool) -> None:
    """A relative name means nothing there. Only a failure makes distcc compile here."""
    (farm.work / "model").symlink_to(farm.folder / "models" / "never")
    option = "--mlgo-inlining-model=model"
    with server(farm):
        done = farm.compile(option, f"--mlgo-strict={int(is_strict)}")
        assert done.returncode == 0
        if is_strict:
            assert farm.served() == ["COMPILE_ERROR"]
            assert "failed, retrying locally" in done.stderr
            assert farm.object() == farm.expected(option)
        else:
            assert farm.served() == ["COMPILE_OK"]
            assert "model 'model': expected a folder, or one of " in done.stderr
            assert farm.object() == farm.expected()


def test_a_server_that_does_not_know_the_driver(farm: Farm) -> None:
    with server(farm, knows_driver=False):
        done = farm.compile(farm.model)
        assert done.returncode == 0
        assert "mlgo-cc not in /usr/lib/distcc" in farm.log.read_text()
        assert "running locally instead" in done.stderr
        assert farm.object() == farm.expected(farm.model)


def test_a_server_that_is_down(farm: Farm) -> None:
    done = farm.compile(farm.model)
    assert done.returncode == 0
    assert "running locally instead" in done.stderr
    assert farm.object() == farm.expected(farm.model)
