"""LLVM's own options in a module's command (``-mllvm``): which are passed on, and which not.

LLVM's options are process-wide and keep no record of their defaults, so a worker serves modules of
one set of them; `llvm._compiler` starts another worker for another set. An option that
LLVM does not know it ignores without a word, and a corpus may come from anywhere: so an option is
passed on only if `corpus_tools.allowed.llvm` has it, and the embedded LLVM lists it. The worker
asks the same of what reaches it.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Mapping
from typing import Final

from corpus_tools.allowed.llvm import PATTERNS, refusal_of_llvm
from corpus_tools.sandbox import confine
from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.llvm._launch import child_command, child_environment

_TIMEOUT_S: Final = 60.0
_LISTED: Final = re.compile(r"  (?:--?)([\w.-]+)(?:=<([^>]*)>)?(?: |$)")
_WORD: Final = re.compile(r"    =(\S+)")
_VALUES: Final = {
    **dict.fromkeys(("int", "uint", "long", "ulong", "N", "x"), PATTERNS["int"]),
    "number": PATTERNS["number"],
    "": PATTERNS["flag"],
}
_ADVISORS: Final = (
    *("enable-ml-inliner", "inliner-interactive-", "ml-advisor-", "ml-inliner-", "training-log"),
    *("regalloc-enable-", "regalloc-evict-interactive-", "regalloc-priority-interactive-"),
    *("regalloc-model", "regalloc-training-log", "regalloc-priority-", "mlregalloc-"),
    *("interactive-model-runner-", "ml-model-runner-"),
)


@functools.cache
def known_llvm_options() -> Mapping[str, str]:
    """Patterns of values by the options' names, asked of LLVM in a child once; no texts."""
    command = child_command("mlgo_gym.llvm.command._own_options")
    try:
        done = subprocess.run(
            command, capture_output=True, env=child_environment(), timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentSetupError(f"LLVM's options: cannot be listed: {error}") from error
    if known := parse_option_list(done.stdout.decode("utf-8", "replace")):
        return known
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise EnvironmentSetupError(f"LLVM's options: expected a list, found none: {said}")


def main() -> None:
    """Print LLVM's options, hidden ones included, and end: the child process's program."""
    from mlgo_gym.llvm.worker import _binding as binding  # noqa: PLC0415 - in the child alone

    session = binding.Session()
    confine()
    session.set_options(["-help-hidden"])


def parse_option_list(text: str) -> dict[str, str]:
    r"""Names, and patterns of values, in what LLVM's ``-help-hidden`` prints.

    >>> parse_option_list("  --a=<uint>  - A\n  --b=<value> - B\n    =x - X\n    =y - Y\n")["b"]
    'x|y'
    """
    known: dict[str, str] = {}
    words: list[str] = []
    name = ""
    for line in text.splitlines():
        if match := _LISTED.match(line):
            name, kind = match[1], match[2] or ""
            words = []
            if kind in _VALUES:
                known[name] = _VALUES[kind]
        elif name and (match := _WORD.match(line)):
            words.append(re.escape(match[1]))
            known[name] = "|".join(words)
    return known


def refusal(option: str, known: Mapping[str, str]) -> str | None:
    """Why an option is not passed on to an LLVM that lists these, or ``None`` where it is."""
    name = option.lstrip("-").partition("=")[0]
    if option.startswith("-") and name.startswith(_ADVISORS):
        return "mlgo_gym sets up LLVM's advisors itself"
    if reason := refusal_of_llvm(option):
        return reason
    return None if name in known else "the embedded LLVM has no such option"
