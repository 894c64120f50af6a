"""Sites: every call has its id, nothing of the code changes, and nothing is guessed."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._functions import function_sizes
from mlgo_gym.corpus._inlined import function_code
from mlgo_gym.envs._making import make_env
from mlgo_gym.errors import InternalError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._site import Call, Site, site_of
from mlgo_gym.llvm._task import COMPILE, Task
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._regalloc_eviction import RegallocEviction

SITES = Task(sites=True)
PROBLEM = InliningForSize()
LEVELS = """
declare void @out(i32)
define internal i32 @third(i32 %x) {
  call void @out(i32 %x)
  call void @out(i32 7)
  %y = mul i32 %x, %x
  ret i32 %y
}
define internal i32 @second(i32 %x) {
  %y = call i32 @third(i32 %x)
  ret i32 %y
}
define internal i32 @first(i32 %x) {
  call void @out(i32 1)
  %y = call i32 @second(i32 %x)
  ret i32 %y
}
define i32 @top(i32 %x) {
  %a = call i32 @first(i32 %x)
  %b = call i32 @first(i32 %a)
  ret i32 %b
}
"""
IN_SOURCE = """
define internal i32 @add(i32 %x) !dbg !5 {
  %y = add i32 %x, 1, !dbg !8
  ret i32 %y, !dbg !8
}
define i32 @main(i32 %x) !dbg !6 {
  %y = call i32 @add(i32 %x), !dbg !9
  %z = call i32 @add(i32 %y), !dbg !10
  ret i32 %z, !dbg !10
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "sum.c", directory: "/src")
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !DISubroutineType(types: !{})
!5 = distinct !DISubprogram(name: "add", file: !1, line: 1, type: !4, unit: !0)
!6 = distinct !DISubprogram(name: "main", file: !1, line: 4, type: !4, unit: !0)
!7 = !DIFile(filename: "sum.h", directory: "/src")
!8 = !DILocation(line: 2, column: 3, scope: !5)
!9 = !DILocation(line: 5, column: 11, scope: !6)
!10 = !DILocation(line: 9, column: 2, scope: !11)
!11 = !DILexicalBlockFile(scope: !6, file: !7, discriminator: 0)
"""
MERGED = """
declare void @out(i32)
define internal i32 @callee(i32 %x) {
  call void @out(i32 %x)
  call void @out(i32 2)
  call void @out(i32 %x)
  ret i32 %x
}
define i32 @top(i1 %which, i32 %x) {
  br i1 %which, label %one, label %other
one:
  %a = call i32 @callee(i32 %x)
  br label %end
other:
  %b = call i32 @callee(i32 %x)
  br label %end
end:
  %c = phi i32 [ %a, %one ], [ %b, %other ]
  %d = call i32 @callee(i32 %c)
  ret i32 %d
}
"""


def sites(compiler: Compiler, module: Module, *, inline: int | None = None) -> list[Site]:
    found = []
    with compiler.start(module, PROBLEM, task=SITES) as compilation:
        while (observation := compilation.next_observation()) is not None:
            site = site_of(observation)
            assert site is not None
            found.append(site)
            compilation.answer(default(observation) if inline is None else inline)
    return found


def compiled(compiler: Compiler, module: Module, task: Task) -> tuple[bytes, list[list[str]]]:
    names = []
    with compiler.start(module, PROBLEM, task=task, keep_object=True) as compilation:
        while (observation := compilation.next_observation()) is not None:
            names.append(observation.context.split("\0")[:2])
            compilation.answer(default(observation))
        return compilation.result.object_bytes or b"", names


@pytest.mark.parametrize("module", ["digest.c", "interval_tree.cpp"])
def test_the_object_is_the_same(compiler: Compiler, sample: Corpus, module: str) -> None:
    plain, _ = compiled(compiler, sample[module], COMPILE)
    named, names = compiled(compiler, sample[module], Task(names=True))
    placed, callers = compiled(compiler, sample[module], SITES)
    assert plain == named == placed
    assert names == callers
    assert len(names) > 40


@pytest.mark.e2e
def test_the_code_of_a_corpus_is_the_same(compiler: Compiler, sample: Corpus) -> None:
    """Objects to the last byte; with debug information the functions, whose sizes it tells."""
    for name in sample:
        plain, _ = compiled(compiler, sample[name], COMPILE)
        assert compiled(compiler, sample[name], SITES)[0] == plain
        described, _ = compiled(compiler, sample[name], Task(sites=True, debug_info=True))
        sizes = {each: found.size_bytes for each, found in function_sizes(plain).items()}
        code = function_code(described)
        assert {each: found.size_bytes for each, found in code.items()} == {
            each: sizes[each] for each in code
        }
        assert len(code) > 0.9 * len(sizes)  # constructors of one body have several names


def test_a_call_has_its_place_through_three_levels(compiler: Compiler) -> None:
    found = sites(compiler, Module.from_ir(LEVELS), inline=1)
    assert [(each.caller, each.callee) for each in found] == [
        ("second", "third"), ("first", "second"), ("top", "first"), ("top", "first"),
    ]  # fmt: skip
    assert [str(each) for each in found] == ["second#0", "first#1", "top#0", "top#1"]


def test_what_came_by_inlining_names_the_calls(compiler: Compiler) -> None:
    """What is left at first and asked about again, where it has come to."""
    asked: list[Site] = []
    with compiler.start(Module.from_ir(LEVELS), PROBLEM, task=SITES) as compilation:
        while (observation := compilation.next_observation()) is not None:
            site = site_of(observation)
            assert site is not None
            asked.append(site)
            compilation.answer(int(site.callee != "third"))
    assert [str(each) for each in asked if each.callee == "third"] == [
        "second#0", "second#0 @ first#1",
        "second#0 @ first#1 @ top#0", "second#0 @ first#1 @ top#1",
    ]  # fmt: skip
    last = asked[-1]
    assert [call.function for call in last.calls] == ["second", "first", "top"]
    assert last.caller == "top"
    assert len({each.ids for each in asked if each.calls}) == len(asked)


def test_debug_information_tells_the_places(compiler: Compiler) -> None:
    found = sites(compiler, Module.from_ir(IN_SOURCE))
    assert [str(each) for each in found] == ["sum.c:5:11", "sum.h:9:2"]
    assert found[0].calls == (Call(1, "main", 0, "sum.c", 5, 11),)


def test_merged_calls_are_nobody_s(compiler: Compiler) -> None:
    """Two calls that LLVM has made one are neither the one nor the other."""
    found = sites(compiler, Module.from_ir(MERGED), inline=0)
    assert [(str(each), each.ids) for each in found] == [("shared", ()), ("top#2", (6,))]


def test_ids_are_the_same_under_every_policy(compiler: Compiler, sample: Corpus) -> None:
    known: dict[int, Call] = {}
    for inline in (None, 0, 1):
        for site in sites(compiler, sample["json_read.c"], inline=inline):
            for call in site.calls:
                assert known.setdefault(call.id, call) == call
    assert len(known) > 50


@pytest.mark.parametrize(
    ("written", "symbol"),
    [
        ("plain.1", "plain.1"),
        ("sp ace~", "sp ace~"),
        ("q\\22uote", 'q"uote'),
        ("b\\5cack", "b\\ack"),
        ("\\01marked", "marked"),
        ("\\c3\\bc\\7f\\0a", "ü\x7f\n"),
        ("\\ff", "\\xff"),
        ("x" * 70_000, "x" * 70_000),
    ],
)
def test_whatever_functions_are_called(written: str, symbol: str, compiler: Compiler) -> None:
    """Contexts are written by native code or by Python, and are the same."""
    text = LEVELS.replace("@first", f'@"{written}"')
    module = Module.from_ir(text)
    for task in (SITES, Task(names=True)):
        named = compiled(compiler, module, task)[1]
        assert [names[0] for names in named].count(symbol) == 1
        assert [names[1] for names in named].count(symbol) == 2
    expected = [
        replace(
            site,
            caller=site.caller.replace("first", symbol),
            callee=site.callee.replace("first", symbol),
            calls=tuple(
                replace(call, function=call.function.replace("first", symbol))
                for call in site.calls
            ),
        )
        for site in sites(compiler, Module.from_ir(LEVELS))
    ]
    assert sites(compiler, module) == expected


def test_branches_say_where(compiler: Compiler, sample: Corpus) -> None:
    module = sample["digest.c"]
    expected = sites(compiler, module, inline=0)
    with compiler.start(module, PROBLEM, task=SITES) as trunk:
        for _ in expected[:5]:
            trunk.next_observation()
            trunk.answer(0)
        trunk.next_observation()
        for compilation in (trunk.fork(), trunk):
            found = []
            while (observation := compilation.next_observation()) is not None:
                found.append(site_of(observation))
                compilation.answer(0)
            assert found == expected[5:]


def test_a_module_that_has_ids_gets_new_ones(compiler: Compiler, sample: Corpus) -> None:
    """What it had are its lines then, in a file that says so; its code is the same."""
    module = sample["digest.c"]
    task = Task(optimize=False, product="bitcode", sites=True, debug_info=True)
    again = Module("again", compiler.produce(module, None, task, {PROBLEM: default}).data)
    again = replace(again, command=module.command)
    first, second = sites(compiler, module), sites(compiler, again)
    assert [(each.caller, each.callee, each.ids) for each in first] == [
        (each.caller, each.callee, each.ids) for each in second
    ]
    calls = [call for site in second for call in site.calls]
    assert {(call.file, call.line - call.id) for call in calls} == {("calls", 0)}
    objects = [compiled(compiler, each, SITES)[0] for each in (module, again)]
    assert objects[0] == objects[1]


def test_a_module_that_asks_nothing(compiler: Compiler) -> None:
    assert sites(compiler, Module.from_ir("define i32 @f(i32 %x) { ret i32 %x }")) == []


def test_an_environment_says_where(sample: Corpus) -> None:
    env = make_env("inlining-for-size", sample, sites=True)
    try:
        _, info = env.reset(options={"module": "json_read.c"})
        assert info["context"] == ""
        site = Site.from_json(info["site"])
        assert (site.caller, site.callee) == ("accept", "skip_space")
        assert site.calls[0].function == "accept"
        branch = env.fork()
        try:
            told, again = (each.step(1)[4]["site"] for each in (branch, env))
            assert told == again != info["site"]
        finally:
            branch.close()
    finally:
        env.close()


@pytest.mark.parametrize("settings", [{}, {"reward": "text"}])
def test_other_problems_have_no_sites(sample: Corpus, settings: dict[str, str]) -> None:
    with pytest.raises(OptionsError) as raised:
        make_env(RegallocEviction(), sample, sites=True, **settings)
    expected = "sites: expected the inliner's decisions, found RegallocEviction"
    assert str(raised.value) == expected


def test_debug_information_without_sites() -> None:
    with pytest.raises(InternalError) as raised:
        Task(debug_info=True)
    assert str(raised.value) == "task: expected sites with debug_info, found none"


def test_a_site_s_record() -> None:
    call = Call(3, "main", 0, "main.c", 4, 5)
    assert asdict(Site("main", "add", (call,))) == Site("main", "add", (call,)).record()
