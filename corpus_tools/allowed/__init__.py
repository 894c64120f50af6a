"""Limits on what others' data may ask of LLVM and clang: lists of all that is allowed.

Commands come from corpora, traces, datasets and builds, which may be anybody's. Options that are
not listed here do not reach a compiler, whoever passes them on: what starts a compiler asks here.

* `corpus_tools.allowed.llvm`: LLVM's own options (``-mllvm``); asked by the worker itself;
* `corpus_tools.allowed.cc1_table`: options of ``clang -cc1``; asked by `corpus_tools.replay`;
* `corpus_tools.allowed.driver`: options of clang's driver; asked by `corpus_tools.clang.dry_run`.

What is listed was seen to run no program, to read and write no file and to show nothing.
"""
