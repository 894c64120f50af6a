"""Profiles that were damaged or made to harm: LLVM's tools, which read them, are confined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import ModuleError, ProfileError
from mlgo_gym.lab.programs import (
    ProfileFile,
    attach_profile,
    collect_profile,
    counters_of,
    summary_of_profile,
)
from tests.fuzz.mutators import of_bytes

MANY = 150


@pytest.fixture(scope="module")
def profile() -> bytes:
    return collect_profile(Corpus.load(SAMPLE_CORPUS)).profile.data


@pytest.mark.e2e
def test_damaged_profiles(profile: bytes, tmp_path: Path) -> None:
    """Each is taken, or refused by an error that names it; most of what is changed is counts."""
    random = np.random.default_rng(7)
    corpus = Corpus.load(SAMPLE_CORPUS).only(["json_read.c"])
    refused = 0
    for number in range(MANY):
        data = of_bytes(random, profile)
        try:
            damaged = ProfileFile("p", data)
            summary_of_profile(damaged)
            counters_of(damaged)
            attach_profile(corpus, damaged, tmp_path / str(number))
        except (ProfileError, ModuleError) as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
        assert {each.name for each in tmp_path.iterdir()} <= set(map(str, range(number + 1)))
    assert 0 < refused < MANY
