"""Sources of Debian packages, by ``apt-get source``, for projects whose sdists on PyPI lack parts.

A folder of its own holds the configuration, so that the machine's stays as it is. What counts is
the SHA-256 recorded beside the version, whoever signed the list of packages.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ARCHIVE = "http://deb.debian.org/debian bookworm main"


@dataclass(frozen=True)
class DebianSource:
    """The upstream tree of a source package.

    Attributes:
        package: the source package and its version, as apt takes them.
        file: of the tree.
        sha256: of that file, in hexadecimal digits.
    """

    package: str
    file: str
    sha256: str


def fetch_tree(source: DebianSource, cache: Path) -> Path:
    """The file, from the cache or from Debian's archive.

    Raises:
        RuntimeError: there is no apt-get, it fails, or the file is another one.
    """
    target = cache / source.file
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            _download(source, Path(folder))
            shutil.move(Path(folder) / source.file, target)
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != source.sha256:
        raise RuntimeError(f"{target}: expected sha256 {source.sha256}, found {found}")
    return target


def _download(source: DebianSource, folder: Path) -> None:
    (folder / "sources.list").write_text(f"deb-src [trusted=yes] {ARCHIVE}\n", encoding="ascii")
    (folder / "lists").mkdir()
    settings = {
        "APT::Sandbox::User": "root",  # apt's own user may not write to this folder
        "Dir::Etc::sourcelist": f"{folder}/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": f"{folder}/lists",
        "Dir::Cache": str(folder),
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    download = ["source", "--download-only", "--tar-only", source.package]
    apt = shutil.which("apt-get")
    if apt is None:
        raise RuntimeError(f"{source.file}: expected apt-get to fetch it, found none")
    for command in (["update"], download):
        done = subprocess.run(
            [apt, "-q", *options, *command],
            cwd=folder, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"apt-get {command[0]}: {done.stdout[-500:]}{done.stderr[-1000:]}")
