"""A server of S3 for tests: moto's, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

PROGRAM = """
import sys
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Storage:
    """A bucket ``lab``, and what puts objects into it past this project."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = boto3.client("s3")
        self.client.create_bucket(Bucket="lab")

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket="lab", Key=key, Body=data)

    def put_folder(self, folder: Path, key: str) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())

    def names(self, key: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket="lab", Prefix=key).get("Contents", [])
        return [each["Key"] for each in found]

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket="lab", Key=key)["Body"].read())

    def clear(self) -> None:
        for name in self.names(""):
            self.client.delete_object(Bucket="lab", Key=name)


@contextmanager
def served() -> Iterator[str]:
    """A server, by its address."""
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            server.stdout.readline()  # it greets
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@contextmanager
def settings(endpoint: str, cache: Path) -> Iterator[None]:
    """What AWS's tools read is for this server alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-word")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("MLGO_CACHE", str(cache))
        yield
