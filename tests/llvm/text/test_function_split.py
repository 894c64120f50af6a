"""One module a function: what the text becomes, and that the code stays what it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.curation._functions import FunctionModule, split_module
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.text._function_split import declaration, variable_declaration
from mlgo_gym.llvm.text._module_text import ModuleText
from mlgo_gym.llvm.worker import _binding as binding

TRICKY = r"""
void *memcpy(void *, const void *, unsigned long);
static const char text[] = "a string that is copied, with @names and {braces}";
static int counter;
static __thread int mine;
__thread int theirs;
extern int outside(int);
extern void weakly(void) __attribute__((weak));
__attribute__((visibility("hidden"))) int hidden_variable;
static __attribute__((noinline)) int helper(int x) { return x * counter + outside(x); }
__attribute__((noinline)) int visible(int x) { return helper(x) + helper(x + 1) + mine++; }
int other_name(int) __attribute__((alias("visible")));
static int (*const table[])(int) = {visible, other_name, helper};
void copy(char *to) { memcpy(to, text, 16); }
int calls(int x) { return table[x & 1](x) + other_name(x) + hidden_variable + theirs; }
int maybe(void) { if (weakly) weakly(); return ++counter; }
static int recursive(int n, int m) { return n ? recursive(n - 1, m) * outside(n) + m : 1; }
int starts(int n) { return recursive(n, 2) + recursive(n, 3); }
int interpret(const unsigned char *code) {
  static void *labels[] = {&&stop, &&add, &&twice, &&jump};
  int value = 1;
  goto *labels[*code];
add: value += outside(value); goto *labels[*++code];
twice: value *= 2; goto *labels[*++code];
jump: code += value; goto *labels[*code];
stop: return value;
}
const char *name(int x) { switch (x) { case 0: return "zero"; case 1: return "one";
  case 2: return "two"; case 3: return "three"; default: return "many"; } }
"""


def sections(bitcode: bytes, llc: str) -> list[bytes]:
    """The code of each function of a module, sorted."""
    done = subprocess.run(
        [llc, "-O2", "-function-sections", "-relocation-model=pic", "-filetype=obj", "-o", "-"],
        input=bitcode,
        capture_output=True,
        check=True,
    )
    return sorted(data for data in binding.section_contents(done.stdout, ".text") if data)


def optimised(module: Module) -> bytes:
    binding.Session()
    target = options_of(module).target()
    with binding.parse(module.data, is_text=module.is_text, verify=True) as whole:
        binding.optimize(whole, target)
        return binding.to_bitcode(whole)


def code_of(functions: tuple[FunctionModule, ...], llc: str) -> list[bytes]:
    return sorted(code for each in functions for code in sections(each.bitcode, llc))


@pytest.mark.parametrize(
    "flags",
    [["-O1"], ["-O2"], ["-O3"], ["-Oz"], ["-O2", "-g"], ["-O2", "-fno-pic"],
     ["-O2", "-fsemantic-interposition"], ["-O2", "-fcf-protection"],
     ["-O2", "--target=aarch64-linux-gnu"]],
    ids=" ".join,
)  # fmt: skip
def test_the_code_is_that_of_the_whole_module(
    flags: list[str], compiler: Compiler, clang22: str, llc22: str, tmp_path: Path
) -> None:
    (tmp_path / "tricky.c").write_text(TRICKY)
    command = [clang22, "-fPIC", *flags, "-c", "tricky.c", "-o", "tricky.bc"]
    subprocess.run(
        [*command, "-emit-llvm", "-Xclang", "-disable-llvm-optzns", "-w"], cwd=tmp_path, check=True
    )
    data = (tmp_path / "tricky.bc").read_bytes()
    module = Module("tricky.c", data, ("-cc1", flags[0]))
    functions = split_module(compiler, module)
    names = {each.function for each in functions}
    assert {"visible", "copy", "calls", "interpret", "name", "helper"} <= names
    assert code_of(functions, llc22) == sections(optimised(module), llc22)


@pytest.mark.e2e
def test_the_code_of_cpp_is_that_of_the_whole_module(
    compiler: Compiler, sample: Corpus, llc22: str
) -> None:
    module = sample[next(name for name in sample if name.endswith(".cpp"))]
    functions = split_module(compiler, module)
    assert len(functions) > 10
    assert code_of(functions, llc22) == sections(optimised(module), llc22)


def test_each_module_defines_one_function(compiler: Compiler) -> None:
    text = """
    @s = private constant [2 x i8] c"x\\00"
    @"a b" = internal constant i32 5
    @v = internal global i32 7
    define internal i32 @callee(i32 %x) noinline { %y = load i32, ptr @v ret i32 %y }
    define available_externally i32 @elsewhere() { ret i32 1 }
    define ptr @"odd name"() {
      %a = call i32 @callee(i32 1)
      %b = call i32 @elsewhere()
      store ptr @"a b", ptr @v
      store i32 %b, ptr @v
      ret ptr @s
    }
    """
    module = Module("x", text.encode(), ("-cc1", "-disable-llvm-passes"), is_text=True)
    callee, odd = split_module(compiler, module)
    assert (callee.function, callee.instructions) == ("callee", 2)
    assert (odd.function, odd.instructions) == ("odd name", 5)
    with binding.parse(odd.bitcode, is_text=False, verify=True) as parsed:
        parts = ModuleText.read(str(parsed))
    assert list(parts.functions) == ['"odd name"']
    assert parts.declarations == {
        "callee": "declare hidden i32 @callee(i32) #0",
        "elsewhere": "declare i32 @elsewhere()",
    }
    assert parts.variables == {
        '"a b"': '@"a b" = internal constant i32 5',
        "s": '@s = private constant [2 x i8] c"x\\00"',
        "v": "@v = external hidden global i32",
    }


def test_functions_that_are_too_small(compiler: Compiler) -> None:
    text = "define i32 @a() { ret i32 1 } define i32 @b(i32 %x) { %y = mul i32 %x, %x ret i32 %y }"
    module = Module.from_ir(text)
    functions = split_module(compiler, module, minimum_instructions=2)
    assert [each.function for each in functions] == ["b"]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("define i32 @f(i32 %0) {", "declare i32 @f(i32 %0)"),
        ("define internal fastcc void @f() #1 {", "declare hidden fastcc void @f() #1"),
        (
            'define linkonce_odr hidden noundef range(i32 0, 4) ptr @f(ptr "a"="b) {" %1) '
            'unnamed_addr #5 section ".x {" comdat($"a b") align 2 personality ptr @p !dbg !5 {',
            'declare hidden noundef range(i32 0, 4) ptr @f(ptr "a"="b) {" %1) '
            'unnamed_addr #5 section ".x {" align 2',
        ),
        (
            "define weak_odr dso_local { i64, ptr } @f(<2 x i64> %0, ...) comdat !prof !3 {",
            "declare dso_local { i64, ptr } @f(<2 x i64> %0, ...)",
        ),
    ],
)
def test_declarations_of_functions(definition: str, expected: str) -> None:
    (function,) = ModuleText.read(f"{definition}\n  unreachable\n}}\n").functions.values()
    assert declaration(function) == expected


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("@x = global i32 0, align 4", "@x = external global i32, align 4"),
        (
            "@x = internal thread_local(localexec) unnamed_addr global [2 x { i8, <2 x i64> }] "
            'zeroinitializer, section "x, align 2", align 16',
            "@x = external hidden thread_local(localexec) unnamed_addr global "
            "[2 x { i8, <2 x i64> }], align 16",
        ),
        (
            '@x = linkonce_odr dso_local constant %"class.a b" zeroinitializer, comdat, align 8',
            '@x = external dso_local constant %"class.a b", align 8',
        ),
        (
            "@x = private unnamed_addr constant ptr addrspace(1) @y",
            "@x = external hidden unnamed_addr constant ptr addrspace(1)",
        ),
        (
            "@x = unnamed_addr alias void (ptr, ...), ptr @y",
            "declare void @x(ptr, ...)",
        ),
        (
            "@x = linkonce_odr hidden alias { i64, ptr } (ptr), getelementptr (i8, ptr @y, i64 1)",
            "declare hidden { i64, ptr } @x(ptr)",
        ),
        ("@x = weak_odr alias i32, ptr @y", "@x = external global i32"),
        ("@x = ifunc void (i32), ptr @resolver", "declare void @x(i32)"),
    ],
)
def test_declarations_of_variables(definition: str, expected: str) -> None:
    assert variable_declaration("x", definition) == expected


@pytest.mark.parametrize("line", ["@x = nonsense", "@x = ", "nothing at all"])
def test_what_is_no_variable_stays(line: str) -> None:
    assert variable_declaration("x", line) == line


def test_metadata_about_other_functions(compiler: Compiler) -> None:
    """It says null instead, as after the function was deleted; its own stays."""
    text = """
    define void @f() !about !0 { ret void }
    define void @g() !about !1 { ret void }
    !0 = !{ptr @f, ptr @g, !2}
    !1 = !{ptr @g}
    !2 = !{ptr @g, i32 7}
    """
    functions = split_module(compiler, Module.from_ir(text))
    nodes = {}
    for each in functions:
        with binding.parse(each.bitcode, is_text=False, verify=True) as parsed:
            nodes[each.function] = sorted(ModuleText.read(str(parsed)).metadata.values())
    assert [line.partition(" = ")[2] for line in nodes["f"]] == [
        "!{ptr @f, ptr null, !1}", "!{ptr null, i32 7}",
    ]  # fmt: skip
    assert [line.partition(" = ")[2] for line in nodes["g"]] == ["!{ptr @g}"]
