"""A corpus whose modules are as ``mlgo-cc --mlgo-project`` hands them to LLVM's pipeline.

Whatever takes a corpus then sees the project as clang will: environments, evaluation, training,
search. The bitcode is another, all else is the corpus's::

    corpus_info.json    {..., "local_functions": {MODULE: how many functions became local}}
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from corpus_tools.manifest import Manifest
from corpus_tools.staging import INFO_NAME, staged_folder
from mlgo_gym.base import read_json, write_json
from mlgo_gym.cc._project_file import ObjectFacts
from mlgo_gym.corpus import Corpus
from mlgo_gym.llvm import Compiler, Jobs, LocalizeRequest, each, local_symbols

_COUNTS: Final = "local_functions"
_DIGEST: Final = "recipe_digest"
_MAX_BYTES: Final = 1 << 26


def write_localized(
    corpus: Corpus,
    facts: Mapping[str, ObjectFacts],
    output: Path,
    *,
    jobs: Jobs = 1,
    timeout_s: float,
    progress: Callable[[], None] = lambda: None,
) -> tuple[dict[str, int], dict[str, str]]:
    """Write a corpus with the modules of another in which functions are local.

    Args:
        corpus: the modules.
        facts: of the objects that modules stand for, by the modules' names; others stay as they
            are.
        output: the new corpus, which appears whole or not at all.
        jobs: how many modules are worked on at once.
        timeout_s: for one, in seconds.
        progress: is called when a module is done.

    Returns:
        How many functions of each module became local, and why modules are left out.

    Raises:
        OutputError: something else than a corpus is at the output.
        EnvironmentSetupError: the embedded LLVM lacks a function that this takes.
    """
    places = local_symbols()

    def work(compiler: Compiler, name: str) -> tuple[int, bytes]:
        module = corpus[name]
        known = facts.get(name)
        if known is None:
            return 0, module.data
        request = LocalizeRequest(
            module.is_text, tuple(sorted(known.shared)), known.is_exported, places
        )
        answer, data = compiler.inquire(module, request)
        return answer["functions"], data

    counts: dict[str, int] = {}
    failures: dict[str, str] = {}
    compilers = partial(Compiler, timeout_s=timeout_s)
    running = each(corpus, work, compilers, jobs=jobs, size=corpus.size_bytes)
    with staged_folder(output) as staged, closing(running):
        shutil.copytree(corpus.folder, staged, dirs_exist_ok=True)
        for done in running:
            path = staged / f"{done.item}.bc"
            if done.error is None:
                counts[done.item], data = done.value
                path.write_bytes(data)
            else:
                failures[done.item] = str(done.error)
                path.unlink()
            progress()
        names = tuple(name for name in corpus if name in counts)
        Manifest(names, corpus.has_thinlto, corpus.global_command).write(staged)
        info = staged / INFO_NAME
        known = read_json(info, _MAX_BYTES) if info.exists() else {}
        known.pop(_DIGEST, None)  # it is not what the recipe makes any more
        counts = {name: counts[name] for name in names}
        write_json(info, known | {_COUNTS: counts})
    return counts, failures
