"""Vocabularies: presets, LLVM's own names, and files that are none."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corpus_tools import available_recipes, load_recipe
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._vocabulary import (
    ARGUMENTS,
    MAX_BYTES,
    OPCODES,
    PRESETS,
    TYPES,
    Vocabulary,
)
from tests.conftest import require

SMALL = {
    "Opcodes": {"Add": [1, 2.5]},
    "Types": {"VoidTy": [0, 0]},
    "Arguments": {"Function": [0, 0]},
}


def test_a_file_is_known_by_its_contents(tmp_path: Path) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text(json.dumps(SMALL))
    other.write_text(json.dumps(SMALL))
    found = Vocabulary.of(path)
    assert (found.name, found.dimension) == (str(path), 2)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == Vocabulary.of(str(other))
    assert json.loads(found.data) == SMALL
    one, two = InliningForSize(ir2vec=path), InliningForSize(ir2vec=other)
    assert (one == two, hash(one) == hash(two)) == (True, True)
    assert one != InliningForSize()
    assert one.settings() == InliningForSize().settings() | {
        "ir2vec": str(path),
        "ir2vec_sha256": found.sha256,
    }


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    found = Vocabulary.of(name)
    assert Vocabulary.parse(found.data, "x").dimension == found.dimension
    assert InliningForSize(ir2vec=name).layout.features[-1].spec.shape == (found.dimension,)


def test_the_one_that_ships() -> None:
    """Its card is of this file, of LLVM 22, and of packages that may be trained on."""
    (path,) = (Path(__file__).parents[2] / "models" / "ir2vec").glob("*-*[0-9].json")
    found = Vocabulary.of("seed-75")
    assert (found.name, found.dimension) == ("seed-75", 75)
    assert (found, found.data) == (Vocabulary.of(path), Vocabulary.of(path).data)
    assert found.sha256 == hashlib.sha256(found.data).hexdigest(), "models' cards have either"
    card = json.loads(path.with_suffix(".card.json").read_text())
    assert (card["sha256"], card["dimension"]) == (found.sha256, found.dimension)
    assert card["llvm_version"].startswith("22.")
    packages = {each.rpartition("/")[2] for each in card["trained_on"]["modules"]}
    recipes = {each.name: each for each in map(load_recipe, available_recipes())}
    assert {recipes[name].split for name in packages} == {"train"}
    assert path.stat().st_size < 100_000


def test_a_file_beside_a_preset_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ones").write_text(json.dumps(SMALL))
    assert [Vocabulary.of(each).dimension for each in ("ones", "./ones", Path("ones"))] == [1, 2, 2]


def test_the_names_are_those_of_llvm_22() -> None:
    tool = require("llvm-ir2vec-22", "llvm-22")
    text = subprocess.run([tool, "entities"], capture_output=True, check=True, text=True).stdout
    names = [line.split("\t")[0] for line in text.splitlines()[1:]]
    known = (*OPCODES, *TYPES, *ARGUMENTS)
    assert tuple(names[: len(known)]) == known
    assert all(name.startswith(("FCMP_", "ICMP_")) for name in names[len(known) :])


def changed(section: str, value: Any) -> bytes:
    return json.dumps(SMALL | {section: value}).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected JSON: Expecting value: line 1 column 1 (char 0)"),
        (json.dumps(SMALL).encode()[:-9], "expected JSON: Expecting"),
        (b"\xff\xfe\xfa", "expected JSON: 'utf-16-le' codec can't decode"),
        (b"[" * 200 + b"]" * 200, "expected JSON: expected at most 100 levels, found more"),
        (b"[]", "expected an object with Opcodes, Types, Arguments, found []"),
        (b"{}", "Opcodes: expected an object of vectors by name, found None"),
        (changed("Types", {}), "Types: expected an object of vectors by name, found {}"),
        (changed("Arguments", 7), "Arguments: expected an object of vectors by name, found 7"),
        (changed("Types", {"VoidTy": []}), "Types: 'VoidTy': expected a list of 1 to 4096 "
         "numbers, found 0 of them"),
        (changed("Types", {"VoidTy": [0] * 4097}), "Types: 'VoidTy': expected a list of 1 to 4096 "
         "numbers, found 4097 of them"),
        (changed("Types", {"VoidTy": 3}), "Types: 'VoidTy': expected a list of 1 to 4096 numbers, "
         "found 3"),
        (changed("Types", {"VoidTy": [0, True]}), "Types: 'VoidTy': expected numbers of at most "
         "1e+30, found True"),
        (changed("Types", {"VoidTy": [0, "1"]}), "Types: 'VoidTy': expected numbers of at most "
         "1e+30, found 1"),
        (changed("Types", {"VoidTy": [0, 1e31]}), "Types: 'VoidTy': expected numbers of at most "
         "1e+30, found 1e+31"),
        (changed("Types", {"VoidTy": [0, 10**90]}), "Types: 'VoidTy': expected numbers of at "
         "most 1e+30, found 1000000000000000000000000000000000000000..."),
        (changed("Types", {"VoidTy": [0, float("nan")]}), "Types: 'VoidTy': expected numbers of "
         "at most 1e+30, found nan"),
        (changed("Types", {"VoidTy": [1]}), "Types: 'VoidTy': expected 2 numbers as before, "
         "found 1"),
        (changed("Opcodes", {"Add": [1, 2], "Sub": [1, 2, 3]}), "Opcodes: 'Sub': expected 2 "
         "numbers as before, found 3"),
    ],
)  # fmt: skip
def test_what_is_no_vocabulary(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "v.json"
    path.write_bytes(data)
    with pytest.raises(OptionsError) as caught:
        InliningForSize(ir2vec=path)
    assert str(caught.value).startswith(f"ir2vec: {path}: {message}")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for given, message in (
        (tmp_path / "none", f"ir2vec: {tmp_path / 'none'}: cannot be read: No such file"),
        (tmp_path, f"ir2vec: {tmp_path}: cannot be read: "),
        ("one-hit", "ir2vec: one-hit: cannot be read: No such file or directory"),
        (75, "ir2vec: expected a vocabulary's path, or one of ones, one-hot, seed-75, found 75"),
    ):
        with pytest.raises(OptionsError) as caught:
            InliningForSize(ir2vec=given)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(OptionsError) as caught:
        Vocabulary.of(large)
    assert str(caught.value) == (
        f"ir2vec: {large}: cannot be read: expected at most {MAX_BYTES} bytes, "
        f"found {MAX_BYTES + 1}"
    )
