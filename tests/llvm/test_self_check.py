"""What is taken of LLVM's memory is checked before it is used: each wrong fact is noticed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.llvm._self_check import FACILITIES

ROOT = Path(__file__).parents[2]
DERIVED, HOTNESS, SITES = {"derived features"}, {"hotness"}, {"names and sites of calls"}
LIVE, LEFT = {"live ranges"}, {"functions left to LLVM"}
SECTIONS = {"sections of functions and data"}
CALLS, RANGES = DERIVED | HOTNESS | SITES, LIVE | LEFT
PROGRAM = """
import json, sys
from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import Compiler
from mlgo_gym.llvm._self_check import FACILITIES, require
from contextlib import nullcontext

found = {}
for facility in FACILITIES:
    with Compiler() as compiler:
        compiler._is_checking = True
        try:
            require([facility], [compiler])
        except EnvironmentSetupError as error:
            found[facility] = str(error)
print(json.dumps(found))
"""


def failures(folder: Path, path: str, pattern: str, replacement: str) -> dict[str, str]:
    """The facilities that a process refuses whose code has another fact about LLVM's memory."""
    shutil.copytree(
        ROOT / "mlgo_gym", folder / "mlgo_gym", ignore=shutil.ignore_patterns("__pycache__", "lab")
    )
    code = folder / "mlgo_gym" / "llvm" / "inside" / path
    text, count = re.subn(pattern, replacement, code.read_text(), flags=re.MULTILINE)
    assert count > 0
    code.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    for facility, message in found.items():
        assert message.startswith(f"{facility}: not with this LLVM: ")
        assert message.endswith("; install the llvmlite that mlgo_gym asks for")
    return found


CALL, HOT, RANGE = "_call_site.py", "_hotness.py", "_live_range.py"
OPTIONS = "_target_options.py"
FACTS = [
    (CALL, r"MLInlineAdvisor18getAdviceFromModel", "MLInlineAdvisor18getAdvice", CALLS),
    (CALL, r'"_ZTVN4llvm15MLInlineAdvisorE"', '"_ZTVN4llvm13InlineAdvisorE"', CALLS),
    (CALL, r"^_SLOTS: Final = 24", "_SLOTS: Final = 1", CALLS),
    (CALL, "ptr sret\\(ptr\\) %advice, ptr %advisor, ptr %call, ptr %emitter\\) \\{\\{",
     "ptr %advisor, ptr %advice, ptr %call, ptr %emitter) {{", CALLS),
    (CALL, "LLVMGetVisibility", "LLVMGetLinkage", DERIVED),
    (CALL, "LLVMGetNextUse", "LLVMGetUser", DERIVED),
    (HOT, r'"advisor_module": 8,', '"advisor_module": 24,', HOTNESS),
    (HOT, r'"advisor_manager": 16,', '"advisor_manager": 8,', HOTNESS),
    (HOT, r'"analysis_result": 8,', '"analysis_result": 16,', HOTNESS),
    (HOT, r'"profile_summary_of": 8,', '"profile_summary_of": 16,', HOTNESS),
    (HOT, r'"total_count": 32,', '"total_count": 40,', HOTNESS),
    (HOT, r'"cutoffs_begin": 8,', '"cutoffs_begin": 0,', HOTNESS),
    (HOT, r'"cutoffs_end": 16,', '"cutoffs_end": 32,', HOTNESS),
    (HOT, r'"cutoff_size": 24,', '"cutoff_size": 16,', HOTNESS),
    (HOT, r'"cutoff_least": 8,', '"cutoff_least": 0,', HOTNESS),
    (HOT, r'"count_flag": 16,', '"count_flag": 20,', HOTNESS),
    (RANGE, r"^_REGISTER_OFFSET: Final = 112", "_REGISTER_OFFSET: Final = 104", LIVE),
    (RANGE, r"^_REGISTER_OFFSET: Final = 112", "_REGISTER_OFFSET: Final = 116", LIVE),
    (RANGE, r"^_OWN_OFFSET: Final = 96", "_OWN_OFFSET: Final = 88", LEFT),
    (RANGE, r"%advisor, i64 8$", "%advisor, i64 16", LEFT),
    (RANGE, r"^_TABLE_OFFSET: Final = 16", "_TABLE_OFFSET: Final = 0", LEFT),
    (RANGE, r"^_SLOTS: Final = 16", "_SLOTS: Final = 1", RANGES),
    (RANGE, "22DefaultEvictionAdvisorE\"", "22OtherEvictionAdvisorE\"", LEFT),
    (OPTIONS, r"^_WORD_OFFSET: Final = 772", "_WORD_OFFSET: Final = 764", SECTIONS),
    (OPTIONS, r"1 << 2, 1 << 3, 1 << 27", "1 << 3, 1 << 2, 1 << 26", SECTIONS),
    ("_sites.py", "LLVMDIBuilderCreateDebugLocation", "LLVMDIBuilderCreateExpression", SITES),
]  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize(("path", "pattern", "replacement", "refused"), FACTS)
def test_a_wrong_fact_is_noticed(
    path: str, pattern: str, replacement: str, refused: set[str], tmp_path: Path
) -> None:
    """What depends on it is refused, and nothing else."""
    assert failures(tmp_path, path, pattern, replacement).keys() == refused


def test_the_facts_hold(tmp_path: Path) -> None:
    assert failures(tmp_path, "_hotness.py", "never in there|^", "") == {}
    assert {each for *_, refused in FACTS for each in refused} == {*FACILITIES}
