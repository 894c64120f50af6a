"""Builds the documentation's site: the pages of docs/, an API reference and the command line's.

::

    make docs        # into build/site; open build/site/index.html
    make docs-links  # whether the links to other sites lead anywhere
    python -m scripts.docs_site names  # the tables of names in docs/reference/python.md

The pages of docs/ are those that are read on a code host. The site adds what a code host lacks: a
table of contents, made from the tables of docs/index.md; one page for each package, from the
docstrings; one page for each command, from the parsers; and the examples.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mlgo_gym.cli._main import CommandParser, whole

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
NAMES: Final = DOCS / "reference" / "python.md"
PAGES: Final = ROOT / "build" / "site-pages"
SITE: Final = ROOT / "build" / "site"
OUTSIDE: Final = {
    "README.md": "readme",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "models/README.md": "models",
}
"""Pages that lie outside docs/, by their names on the site."""
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".c": "c", ".sh": "sh"}
MOCKED: Final = ["keras", "sklearn", "tensorflow"]
"""Large packages that docstrings can be read without."""
INTERNAL: Final = "# isort: split"
"""Stands in a package's stub before the names that are not documented."""

CONFIGURATION: Final = '''\
project = "mlgo_gym"
author = "The mlgo_gym authors"
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton",
    "sphinx_llms_txt",
]
html_theme = "furo"
html_title = "mlgo_gym"
html_copy_source = True
html_show_sourcelink = False
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = {mocked}
python_use_unqualified_type_names = True
napoleon_use_ivar = True
copybutton_prompt_text = r">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True
llms_txt_summary = """{summary}"""
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure", "myst.header", "ref.python", "ref.ref"]
'''


def site_name(path: Path) -> str | None:
    """Return the page of the site that a file of the tree becomes, or None if none does."""
    try:
        inside = path.relative_to(ROOT).as_posix()
    except ValueError:
        return None
    if inside in OUTSIDE:
        return f"{OUTSIDE[inside]}.md"
    if inside.startswith("examples/"):
        return "examples.md"
    return inside.removeprefix("docs/") if inside.startswith("docs/") else None


def contents(index: str) -> str:
    """The table of contents, out of the tables of the index: a caption for each heading."""
    parts, listed = [], set[str]()
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        pages = re.findall(r"\]\(([\w./-]+\.md)\)", text)
        names = dict.fromkeys(_listed(page) for page in pages)
        listed |= names.keys()
        if title == "Reference":
            names |= dict.fromkeys(("api/index", "commands/index"))
        parts.append(_toctree(title, names))
    others = [name for name in OUTSIDE.values() if name not in listed]
    parts.append(_toctree("Project", ["examples", *others]))
    return "\n".join(parts)


def _listed(page: str) -> str:
    """How the table of contents names a page that the index links to."""
    return str(site_name((DOCS / page).resolve())).removesuffix(".md")


def _toctree(title: str, names: Iterable[str]) -> str:
    how = f":hidden:\n:caption: {title}" if title else ":maxdepth: 1"
    lines = "\n".join(names)
    return f"```{{toctree}}\n{how}\n\n{lines}\n```\n"


def relinked(text: str, page: Path) -> str:
    """The text with links as the site has them; what the site does not have is only named."""
    here = Path(site_name(page) or page.name).parent

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        name, hash_, anchor = target.partition("#")
        if re.match(r"\w+:", target) or not name:
            return match[0]
        there = site_name((page.parent / name).resolve())
        if there is None:
            return words
        return f"[{words}]({os.path.relpath(there, here)}{hash_}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def examples() -> Iterator[str]:
    """The page of the examples."""
    yield "# Examples\n"
    for path in sorted((ROOT / "examples").rglob("*")):
        language = LANGUAGES.get(path.suffix)
        if path.is_file() and language and "__pycache__" not in path.parts:
            name = path.relative_to(ROOT / "examples").as_posix()
            text = path.read_text(encoding="utf-8").rstrip()
            yield f"## {name}\n\n````{language}\n{text}\n````\n"


def public_names() -> dict[str, list[str]]:
    """By package, the names that its stub documents."""
    found = {}
    for stub in sorted((ROOT / "mlgo_gym").rglob("__init__.pyi")):
        users = stub.read_text(encoding="utf-8").partition(INTERNAL)[0]
        imports = [each for each in ast.parse(users).body if isinstance(each, ast.ImportFrom)]
        names = sorted(alias.name for each in imports for alias in each.names)
        if names:
            found[".".join(stub.relative_to(ROOT).parent.parts)] = names
    return found


def name_tables() -> str:
    """Return the part of docs/reference/python.md that lists the public names, from docstrings.

    Objects that are neither classes nor functions have no docstring; they keep the page's text.
    """
    kept = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", NAMES.read_text(encoding="utf-8"), re.MULTILINE)
    )
    parts = []
    for package, names in public_names().items():
        module = importlib.import_module(package)
        parts.append(f"## `{package}`\n\n{_summary(module)}\n\n| name | what it is |\n|---|---|\n")
        for name in sorted(names):
            value = getattr(module, name)
            documented = inspect.isclass(value) or inspect.isfunction(value)
            text = _summary(value).replace("|", "\\|") if documented else kept.get(name, "")
            parts.append(f"| `{name}` | {text} |\n")
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def _summary(value: object) -> str:
    """The first line of a docstring, in Markdown."""
    return inspect.cleandoc(value.__doc__ or "").splitlines()[0].replace("``", "`")


def write_names() -> None:
    """Bring the tables of docs/reference/python.md up to date."""
    text = NAMES.read_text(encoding="utf-8")
    before = text[: text.index("## `mlgo_gym`\n")]
    NAMES.write_text(before + name_tables(), encoding="utf-8")


def write_api() -> None:
    """Write a page for each package, with the docstrings of its public names."""
    from sphinx.ext.autodoc.mock import mock  # noqa: PLC0415 - of docs/requirements.txt

    folder = PAGES / "api"
    folder.mkdir()
    packages = public_names()
    index = "# API\n\nAll public names, by package, from their docstrings.\n\n"
    (folder / "index.md").write_text(index + _toctree("", packages), encoding="utf-8")
    homes = {name: package for package, names in packages.items() for name in names}
    for package, names in packages.items():
        module = importlib.import_module(package)
        summary = inspect.cleandoc(module.__doc__ or "")
        parts = [f"# {package}\n\n{summary.splitlines()[0]}\n"]
        for name in names:
            if homes[name] != package:
                parts.append(f"- {name}: see [{homes[name]}]({homes[name]}.md#{name.lower()})")
                continue
            with mock(MOCKED):
                value = getattr(module, name)
            kind, members = "autodata", ""
            if inspect.isclass(value):
                kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
                members = "   :members:\n"
            elif inspect.isfunction(value):
                kind = "autofunction"
            directive = f".. {kind}:: {package}.{name}\n{members}"
            parts.append(f"## {name}\n\n```{{eval-rst}}\n{directive}```\n")
        (folder / f"{package}.md").write_text("\n".join(parts), encoding="utf-8")


def write_commands() -> None:
    """Write a page for each command, with its help and that of its subcommands."""
    os.environ["COLUMNS"] = "80"
    folder = PAGES / "commands"
    folder.mkdir()
    top = whole()
    texts = {name: list(command_helps(each)) for name, each in sorted(top.commands.items())}
    index = f"# Commands\n\n```text\n{top.format_help()}```\n\n"
    (folder / "index.md").write_text(index + _toctree("", texts), encoding="utf-8")
    for name, helps in texts.items():
        (folder / f"{name}.md").write_text("\n".join(helps), encoding="utf-8")


def command_helps(command: CommandParser) -> Iterator[str]:
    """The sections of a command's page: its help, and that of each subcommand."""
    command.load()
    level = "#" * (len(command.prog.split()) - 1)
    yield f"{level} {command.prog}\n\n```text\n{command.format_help()}```\n"
    for _, each in sorted(command.commands.items()):
        yield from command_helps(each)


def write_pages() -> None:
    """Write the site's pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.md", "*.txt"))
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    summary = re.sub(r"\s+", " ", index.split("\n\n")[1])
    (PAGES / "conf.py").write_text(
        CONFIGURATION.format(summary=summary, mocked=MOCKED), encoding="utf-8"
    )
    for path in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE)]:
        text = relinked(path.read_text(encoding="utf-8"), path)
        if path == DOCS / "index.md":
            text += f"\n{contents(index)}"
        page = PAGES / str(site_name(path))
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    (PAGES / "examples.md").write_text("\n".join(examples()), encoding="utf-8")
    write_api()
    write_commands()


def main() -> int:
    """Build the site; a warning of Sphinx's, such as a link that leads nowhere, is an error.

    With the name of another of Sphinx's builders, such as ``linkcheck``, that has its turn.
    With ``names``, only docs/reference/python.md is written.
    """
    if sys.argv[1:] == ["names"]:
        write_names()
        return 0
    write_pages()
    builder = sys.argv[1] if len(sys.argv) > 1 else "html"
    output = SITE if builder == "html" else SITE.with_name(builder)
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run([*command, "-b", builder, PAGES, output], check=False)
    if done.returncode == 0 and builder == "html":
        sys.stdout.write(f"{SITE.relative_to(ROOT) / 'index.html'}\n")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
