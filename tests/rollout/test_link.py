"""What a linker keeps after --gc-sections and --icf=safe: the numbers are lld's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModuleError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default, never
from mlgo_gym.problems._policy import Answer
from mlgo_gym.rollout._link import ElfObject, LinkedSizes, linked_sizes
from mlgo_gym.rollout._linked_text import LinkedTextGc, LinkedTextIcf
from mlgo_gym.rollout._measures import MeasureSetting
from mlgo_gym.rollout._named import measure_named
from mlgo_gym.rollout._rollout import rollout
from tests.conftest import require

WAYS = (("--no-gc-sections",), ("--gc-sections",), ("--gc-sections", "--icf=safe"))
SHF_EXECINSTR = 4
FOLDED = """
target triple = "x86_64-pc-linux-gnu"
@kept = global ptr @pointed
define internal i32 @first(i32 %x) unnamed_addr { %y = mul i32 %x, 11 ret i32 %y }
define internal i32 @second(i32 %x) unnamed_addr { %y = mul i32 %x, 11 ret i32 %y }
define internal i32 @calls_first(i32 %x) unnamed_addr { %y = call i32 @first(i32 %x) ret i32 %y }
define internal i32 @calls_second(i32 %x) unnamed_addr { %y = call i32 @second(i32 %x) ret i32 %y }
define internal i32 @pointed(i32 %x) { %y = mul i32 %x, 11 ret i32 %y }
define hidden i32 @unused(i32 %x) { ret i32 7 }
define i32 @exported(i32 %x) {
  %a = call i32 @calls_first(i32 %x)
  %b = call i32 @calls_second(i32 %a)
  ret i32 %b
}
"""


def lld_sizes(objects: Sequence[bytes], folder: Path, exports: str = "*") -> LinkedSizes:
    """The sizes of the executable sections that lld writes of its input."""
    linker = require("ld.lld-22", "lld-22")
    script = folder / "exports"
    script.write_text(f"{{ global: {exports}; local: *; }};")
    files = [folder / f"{number}.o" for number in range(len(objects))]
    for file, data in zip(files, objects, strict=True):
        file.write_bytes(data)
    found = []
    for way in WAYS:
        output = folder / "linked.so"
        flags = ["-shared", "-z", "undefs", "--allow-multiple-definition", *way]
        flags += [f"--version-script={script}"] if exports != "*" else []
        subprocess.run([linker, *flags, "-o", output, *files], check=True, capture_output=True)
        linked = ElfObject.read(output.read_bytes())
        is_code = (linked.sections["flags"].astype(np.int64) & SHF_EXECINSTR) != 0
        own = [not name.startswith((b".plt", b".iplt")) for name in linked.names]
        found.append(int(linked.sections["size"][is_code & np.array(own)].sum()))
    return LinkedSizes(*found)


def objects_of(
    compiler: Compiler, corpus: Corpus, names: Sequence[str], policy: Answer
) -> list[bytes]:
    made = []
    for name in names:
        options = options_of(corpus[name]).with_sections()
        result = compiler.compile_module(
            corpus[name], options, problem=InliningForSize(), policy=policy, keep_object=True
        )
        made.append(result.object_bytes or b"")
    return made


@pytest.mark.parametrize("policy", [default, never, always])
@pytest.mark.parametrize("end", [".c", ".cpp"])
def test_the_sizes_are_lld_s(
    policy: Answer, end: str, sample: Corpus, compiler: Compiler, tmp_path: Path
) -> None:
    names = [each for each in sample if each.endswith(end)]
    objects = objects_of(compiler, sample, names, policy)
    assert linked_sizes(objects) == lld_sizes(objects, tmp_path)


def test_a_version_script(sample: Corpus, compiler: Compiler, tmp_path: Path) -> None:
    """What is not exported can be dropped and folded, in groups or not."""
    names = [each for each in sample if each.endswith(".cpp")]
    objects = objects_of(compiler, sample, names, never)
    whole = linked_sizes(objects)
    for exports in ("_ZN*", "*run*", "nothing*"):
        found = linked_sizes(objects, exports=[exports])
        assert found == lld_sizes(objects, tmp_path, exports)
        assert found.text == whole.text
        assert found.gc <= whole.gc
    assert linked_sizes(objects, exports=["_ZN*"]).icf < linked_sizes(objects, exports=["_ZN*"]).gc


def test_what_is_folded_and_dropped(compiler: Compiler, tmp_path: Path) -> None:
    """Callers of folded functions are folded as well; a function with an address is not."""
    options = CompileOptions("O0").with_sections()
    made = compiler.compile_module(Module.from_ir(FOLDED), options, keep_object=True)
    sizes = dict(made.sections)
    found = linked_sizes([made.object_bytes or b""])
    assert found == lld_sizes([made.object_bytes or b""], tmp_path)
    assert sizes[".text.first"] == sizes[".text.second"]
    assert sizes[".text.unused"] <= found.text - found.gc < sizes[".text.unused"] + 16
    assert found.gc - found.icf >= sizes[".text.first"] + sizes[".text.calls_first"]
    plain = compiler.compile_module(Module.from_ir(FOLDED), CompileOptions("O0"), keep_object=True)
    whole = linked_sizes([plain.object_bytes or b""])
    assert whole.text == whole.gc == whole.icf


@pytest.mark.parametrize("exports", [("*",), ("main",)])
def test_scores_differ_as_the_package_does(
    exports: tuple[str, ...], small: Corpus, compiler: Compiler
) -> None:
    setting = MeasureSetting(small, exports=exports)
    names = list(small)
    plain = objects_of(compiler, small, names, default)
    for measure in (LinkedTextGc.prepare(setting), LinkedTextIcf.prepare(setting)):
        (report,) = rollout(
            small.only([names[0]]), {"never": never}, InliningForSize(), measure=measure
        )
        assert report.baseline
        assert report.attempts[0].result
        other = objects_of(compiler, small, names[:1], never)
        key = "icf" if isinstance(measure, LinkedTextIcf) else "gc"
        before, after = (
            getattr(linked_sizes([*first, *plain[1:]], exports=exports), key)
            for first in (plain[:1], other)
        )
        change = measure.score(report.attempts[0].result) - measure.score(report.baseline)
        assert change == after - before
        assert (measure.score(report.baseline) > 0) == (exports == ("*",))  # it has no main


def test_rewards_by_name(small: Corpus) -> None:
    measure = measure_named("linked_text_icf:0.5,text:0.5", small)
    (report, *_) = rollout(small, {"never": never}, InliningForSize(), measure=measure)
    assert report.error is None
    result = report.attempts[0].result
    assert result
    assert {"linked_text_icf_bytes", "text_size_bytes"} <= measure.scores(result).keys()


def test_what_is_no_elf_object() -> None:
    with pytest.raises(ModuleError) as error:
        LinkedTextGc({"a.c": b"\0asm"})
    assert str(error.value) == (
        "module 'a.c': linked_text_gc, linked_text_icf: expected an ELF object, found another "
        "format"
    )


class Data(bytes):
    def __repr__(self) -> str:
        return "an object"


@pytest.fixture(scope="module")
def an_object(small: Corpus) -> Data:
    with Compiler() as compiler:
        return Data(objects_of(compiler, small, list(small)[:1], default)[0])


@settings(deadline=None, max_examples=60)
@given(some.floats(0, 1, exclude_max=True), some.none() | some.integers(0, 255))
def test_damaged_objects(an_object: Data, part: float, byte: int | None) -> None:
    """Cut off or changed, they are refused or have some size: there is no other error."""
    place = int(part * len(an_object))
    rest = b"" if byte is None else bytes([byte]) + an_object[place + 1 :]
    try:
        found = linked_sizes([an_object[:place] + rest])
    except ValueError:
        return
    assert found.text >= found.gc >= found.icf >= 0
