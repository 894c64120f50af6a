"""What a child process runs that lists LLVM's options; LLVM ends the process when it has."""

from __future__ import annotations

from mlgo_gym.llvm.process import _binding as binding


def main() -> None:
    """Print LLVM's options, the hidden ones too, to standard output."""
    binding.Session().set_options(["-help-hidden"])
