"""What tests of workers share: a compiler whose worker nobody used before."""

from __future__ import annotations

import pytest

from mlgo_gym.llvm._compiler import Compiler


@pytest.fixture
def compiler(own_compiler: Compiler) -> Compiler:
    return own_compiler
