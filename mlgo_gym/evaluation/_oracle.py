"""What a search has found, beside a policy: the size that is known to be possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlgo_gym.errors import InputError, TraceError
from mlgo_gym.evaluation._scores import ModuleScores
from mlgo_gym.records._trace import Trace, trace_path


def with_oracle(scores: ModuleScores, folder: Path | None) -> ModuleScores:
    """The scores with the size of the module's trace, where a folder has one.

    It is looked for as ``NAME.trace`` and, where several packages share a folder, as
    ``PACKAGE/NAME.trace``. The size of a trace of another module, LLVM or level says nothing
    here: the scores then say what is wrong with it.

    Args:
        scores: of the module.
        folder: where traces are; ``None`` where there are none.
    """
    if folder is None or not scores.is_complete:
        return scores
    paths = [trace_path(each, scores.module) for each in (folder / scores.package, folder)]
    path = next((each for each in paths if each.is_file()), None)
    if path is None:
        return scores
    try:
        trace = Trace.load(path)
        _check(trace, scores, path)
    except InputError as error:
        return replace(scores, trace_error=str(error))
    return replace(scores, oracle_text_bytes=trace.text_size_bytes)


def _check(trace: Trace, scores: ModuleScores, path: Path) -> None:
    expected: Mapping[str, Any] = {
        "module_sha256": scores.module_sha256,
        "llvm_version": scores.llvm_version,
    } | {name: scores.settings[name] for name in scores.settings}
    found = {"module_sha256": trace.module_sha256, "llvm_version": trace.llvm_version}
    found |= trace.settings
    for name, value in expected.items():
        if _plain(found.get(name)) != _plain(value):
            raise TraceError(str(path), f"{name}: expected {value}, found {found.get(name)}")


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
