"""Programs that can start no other, and clang's driver as one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from corpus_tools import Clang, sandbox
from corpus_tools.children import start_alone
from corpus_tools.clang import run_clang
from corpus_tools.errors import CompileError

HELD = sys.platform == "linux" and sandbox._landlock_abi() > 0
RUNNING = ["-###", "-fopenmp", "-fopenmp-targets=amdgcn-amd-amdhsa", "-nogpulib", "-c", "a.c"]


@pytest.mark.skipif(not HELD, reason="the kernel has no Landlock")
def test_a_driver_that_would_run_a_program_does_not(clang22: Clang, tmp_path: Path) -> None:
    """As if the list of options had a hole: the fence stands by itself."""
    (tmp_path / "a.c").write_text("int a;\n")
    tool = tmp_path / "amdgpu-arch"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho gfx906\n")
    tool.chmod(0o755)
    options = [*RUNNING, "-ccc-install-dir", str(tmp_path)]
    run = partial(run_clang, clang22, options, source="a.c", root=tmp_path, deadline_s=60)
    with pytest.raises(CompileError) as caught:
        run(starts_others=False)
    assert "posix_spawn failed: Permission denied" in caught.value.stderr_tail
    assert not (tmp_path / "ran").exists()
    with contextlib.suppress(CompileError):  # it finds no GPU in what the program prints
        run()
    assert (tmp_path / "ran").exists(), "nothing was held back"


@pytest.mark.skipif(not HELD, reason="the kernel has no Landlock")
def test_it_writes_nothing(tmp_path: Path) -> None:
    command = ["/bin/cp", __file__, str(tmp_path / "copy")]
    done = start_alone(Path("/bin/cp"), partial(subprocess.run, command, capture_output=True))
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run(command, check=False).returncode == 0, "the caller is as free as before"


def test_a_script_starts_others(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n/bin/echo here\n")
    script.chmod(0o755)
    done = start_alone(script, lambda: subprocess.run([script], capture_output=True, check=True))
    assert done.stdout == b"here\n"
