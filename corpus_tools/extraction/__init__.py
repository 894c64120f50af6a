"""From a build that was made with clang to a corpus: ``mlgo-extract-corpus``.

The objects of a build are listed from what its build system left (`list_compile_commands`,
`list_parameters`, `list_folder`, `list_aquery`, `list_thinlto_modules`), then `extract_corpus`
takes bitcode and commands out of them::

    from pathlib import Path
    from corpus_tools.extraction import extract_corpus, list_compile_commands

    listed = list_compile_commands(Path("build/compile_commands.json"))
    report = extract_corpus(listed, Path("corpus"))

Files and names are those of LLVM's mlgo-utils (``llvm/utils/mlgo-utils``, ``extract_ir_lib.py``).
"""

from corpus_tools.extraction.as_llvm import list_as_llvm
from corpus_tools.extraction.compile_commands import list_compile_commands
from corpus_tools.extraction.embedded import Extraction
from corpus_tools.extraction.inputs import Listed, ObjectInput, Outcome, Status
from corpus_tools.extraction.linker_parameters import list_aquery, list_parameters, read_parameters
from corpus_tools.extraction.run import ExtractionReport, extract_corpus
from corpus_tools.extraction.static_archive import list_folder, list_thinlto_modules

__all__ = [
    "Extraction",
    "ExtractionReport",
    "Listed",
    "ObjectInput",
    "Outcome",
    "Status",
    "extract_corpus",
    "list_aquery",
    "list_as_llvm",
    "list_compile_commands",
    "list_folder",
    "list_parameters",
    "list_thinlto_modules",
    "read_parameters",
]
