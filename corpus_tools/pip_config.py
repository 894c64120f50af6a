"""Where pip is configured to look for packages.

Whoever has a mirror, a company index or a folder of files has told pip so already; corpora are
fetched from the same places. What ``pip download`` would obey is read from ``pip config list``,
and from the ``PIP_*`` variables alone where Python has no pip.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

PYPI = "https://pypi.org/simple/"

_DEADLINE_S = 60.0
_DEFAULT_TIMEOUT_S = 15.0
# Later sections win, as in pip's own Configuration.
_SECTIONS = ("global", "download", ":env:")


@dataclass(frozen=True, slots=True)
class PipConfig:
    """What pip is configured to do when it looks for packages.

    Attributes:
        index_urls: of package indexes, the first to be asked first.
        find_links: further folders, files and pages with links.
        trusted_hosts: hosts whose certificates are not checked.
        certificates: file of certificates to trust, or None for the default ones.
        timeout_s: seconds to wait for a connection, and for each piece of an answer.
    """

    index_urls: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    certificates: str | None = None
    timeout_s: float = _DEFAULT_TIMEOUT_S

    @classmethod
    def from_environment(cls) -> Self:
        """Ask pip, or the ``PIP_*`` variables where there is no pip."""
        return cls.from_options(_pip_options())

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read pip's options.

        >>> PipConfig.from_options({"extra-index-url": "https://a/ https://b/"}).index_urls
        ('https://pypi.org/simple/', 'https://a/', 'https://b/')

        Args:
            options: from the name of the long option, without dashes, to the value in pip's
                spelling: several values are separated by white space.
        """
        indexes = (options.get("index-url") or PYPI, *options.get("extra-index-url", "").split())
        return cls(
            index_urls=() if _is_true(options.get("no-index", "")) else indexes,
            find_links=tuple(options.get("find-links", "").split()),
            trusted_hosts=tuple(options.get("trusted-host", "").split()),
            certificates=options.get("cert") or None,
            timeout_s=_seconds(options.get("timeout") or options.get("default-timeout") or ""),
        )


def parse_config_list(text: str) -> dict[str, str]:
    r"""Merge the sections of what ``pip config list`` prints, the strongest last.

    >>> parse_config_list("global.index-url='https://a/'\n:env:.index-url='https://b/'\n")
    {'index-url': 'https://b/'}
    """
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if equals and section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {option: value for section in _SECTIONS for option, value in sections[section].items()}


def _pip_options() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return _variables(os.environ)
    return parse_config_list(process.stdout)


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_")
    }


def _is_true(value: str) -> bool:
    return value.lower() in {"1", "true", "yes", "y", "on", "t"}


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return _DEFAULT_TIMEOUT_S
