"""Every option of clang's driver, in several forms, through extraction: what it makes clang do."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_tools.allowed.driver import allowed_of_driver
from corpus_tools.clang import dry_run
from corpus_tools.errors import CompileError, ExtractionError
from tests.corpus_tools.conftest import Traced

# Of the fast tier is one in 200.
SHARES = [(200, 0), *(pytest.param(20, each, marks=pytest.mark.stress) for each in range(20))]
TOOLS = ("amdgpu-arch", "nvptx-arch", "offload-arch", "clang-22", "ld", "ld.lld", "as", "x")
VALUES = ("", "native", "tools/x", "amdgcn-amd-amdhsa", "hip", "=x", "1")
TRIPLES = """
x86_64-apple-darwin x86_64-pc-windows-msvc x86_64-w64-mingw32 x86_64-unknown-uefi i686-pc-haiku
x86_64-linux-android21 aarch64-none-elf aarch64-apple-ios14.0 armv7m-none-eabi x86_64-sie-ps5 avr
riscv64-unknown-elf powerpc64-ibm-aix mips64-linux-gnu s390x-ibm-zos loongarch64-linux-gnu xcore
sparcv9-sun-solaris wasm32-wasi hexagon-unknown-elf msp430-elf ve-linux bpf m68k-linux csky-linux
lanai arm64-fuchsia riscv32-unknown-linux-musl aarch64-unknown-freebsd14 x86_64-unknown-netbsd
"""
PURE = ["-c", "a.c"]


@functools.cache
def commands() -> list[tuple[str, ...]]:
    """What reaches clang of all options, each alone, with joined and with separate values."""
    clang = shutil.which("clang-22")
    if clang is None:
        return []
    listed = subprocess.run([clang, "--autocomplete=-"], capture_output=True, text=True, check=True)
    names = {line.partition("\t")[0] for line in listed.stdout.splitlines()}
    given = dict.fromkeys(each for name in sorted(names) for each in _given(name))
    for linker in ("-fuse-ld=tools/ld.lld", "--ld-path=tools/ld", "-fuse-ld=lld-22"):
        given[tuple(allowed_of_driver([linker, "-flto=thin", "a.c"]))] = None
    for triple in TRIPLES.split():
        target = [f"--target={triple}", *PURE]
        native = ("-march=native", "-mcpu=native", "-mtune=native", "-flto=thin -fuse-ld=lld")
        given |= {tuple(allowed_of_driver([*each.split(), *target])): None for each in native}
    return [each for each in given if each != tuple(PURE)]


def _given(name: str) -> Iterator[tuple[str, ...]]:
    for value in VALUES:
        for form in ([name + value], [name, value])[: 1 + bool(value)]:
            try:
                yield tuple(allowed_of_driver([*form, *PURE]))
            except ExtractionError:
                continue


@pytest.mark.parametrize(("share", "part"), SHARES)
def test_every_option(traced: Traced, tmp_path: Path, share: int, part: int) -> None:
    build = tmp_path / "build"
    (build / "tools").mkdir(parents=True)
    for name in TOOLS:
        (build / "tools" / name).write_text(f"#!/bin/sh\ntouch {build}/ran\n")
        (build / "tools" / name).chmod(0o755)
    (build / "a.c").write_text("int a;\n")
    mine = commands()[part::share]
    assert mine
    for each in mine:
        try:
            dry_run(traced.clang, each, build)
        except CompileError as error:
            assert error.exit_status, each
    assert len(traced.programs()) == 1
    assert traced.changed() == set()
    assert not [path for path in traced.opened() if path.startswith(("tools/", str(build)))]
