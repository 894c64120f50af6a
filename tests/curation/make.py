"""Small corpora of real bitcode, assembled by the embedded LLVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from corpus_tools.manifest import encode_command
from mlgo_gym.llvm.worker import _binding as binding


def program(*tags: str, shared: int = 0, header: int = 0) -> bytes:
    """Bitcode with two functions of its own for each tag.

    Args:
        tags: two programs with a tag in common have its functions in common.
        shared: how many internal functions it has that every program has.
        header: how many ``linkonce_odr`` functions it has that every program has.
    """
    functions = [
        _function(f"{tag}_{index}", "", f"{tag}{index}") for tag in tags for index in range(2)
    ]
    functions += [_function(f"shared_{n}", "internal", f"shared{n}") for n in range(shared)]
    functions += [_function(f"header_{n}", "linkonce_odr", f"header{n}") for n in range(header)]
    return assembled("\n".join(functions))


def assembled(text: str) -> bytes:
    """The bitcode of a module's text."""
    binding.Session()
    with binding.parse(text.encode(), is_text=True, verify=True) as module:
        return binding.to_bitcode(module)


def make_corpus(
    folder: Path,
    modules: Mapping[str, bytes],
    *,
    info: Mapping[str, str] | None = None,
    **manifest: object,
) -> Path:
    """A corpus of these modules; ``info`` is its ``corpus_info.json``."""
    for name, data in modules.items():
        path = folder / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_name(f"{path.stem}.cmd").write_bytes(encode_command(["-cc1", "-O2"]))
    description = {"modules": list(modules), "has_thinlto": False} | manifest
    (folder / "corpus_description.json").write_text(json.dumps(description))
    if info is not None:
        (folder / "corpus_info.json").write_text(json.dumps(info))
    return folder


def _function(name: str, linkage: str, content: str) -> str:
    """A function of 16 instructions that depend on its content."""
    steps = [f"  %v{n + 1} = xor i32 %v{n}, {ord(content[n % len(content)])}" for n in range(15)]
    return "\n".join([f"define {linkage} i32 @{name}(i32 %v0) {{", *steps, "  ret i32 %v15", "}"])
