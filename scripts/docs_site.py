"""Builds the documentation's site: the pages of docs/, with an index, a search and the examples.

::

    make docs        # into build/site; open build/site/index.html

The pages are those that are read on a code host, too. What they lack there is made here: the table
of contents, from the tables of docs/index.md, and a page for each folder of examples.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "site-pages"
SITE: Final = BUILD / "site"
OUTSIDE: Final = {
    "README.md": "readme",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "models/README.md": "models",
}
"""Pages that lie outside docs/, by their names on the site."""
RENAMED: Final = {"search.md": "searching.md"}
"""Pages whose names Sphinx has for pages of its own."""
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".c": "c", ".sh": "sh"}

CONFIGURATION: Final = """\
project = "mlgo_gym"
author = "The mlgo_gym authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "mlgo_gym"
html_copy_source = False
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
"""


def contents(index: str) -> str:
    """The table of contents, out of the tables of the index: a caption for each heading."""
    parts = ["```{toctree}\n:hidden:\n:caption: Start\n\nreadme\ntour\n```\n"]
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        names = dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)\)", text))
        lines = "\n".join(RENAMED.get(name, name).removesuffix(".md") for name in names)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    others = "\n".join(["examples", *list(OUTSIDE.values())[1:]])
    parts.append(f"```{{toctree}}\n:hidden:\n:caption: Project\n\n{others}\n```\n")
    return "\n".join(parts)


def relinked(text: str, page: Path) -> str:
    """The text with links as the site has them; what the site does not have is only named."""

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        name, hash_, anchor = target.partition("#")
        if re.match(r"\w+:", target) or not name:
            return match[0]
        path = (page.parent / name).resolve()
        try:
            inside = path.relative_to(ROOT).as_posix()
        except ValueError:
            return words
        if inside in OUTSIDE:
            return f"[{words}]({OUTSIDE[inside]}.md{hash_}{anchor})"
        if inside.startswith("examples/"):
            return f"[{words}](examples.md)"
        if inside.startswith("docs/"):
            page_name = inside.removeprefix("docs/")
            return f"[{words}]({RENAMED.get(page_name, page_name)}{hash_}{anchor})"
        return words

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, text)


def examples() -> Iterator[str]:
    """The page of the examples."""
    yield "# Examples\n"
    for path in sorted((ROOT / "examples").rglob("*")):
        language = LANGUAGES.get(path.suffix)
        if path.is_file() and language and "__pycache__" not in path.parts:
            name = path.relative_to(ROOT / "examples").as_posix()
            text = path.read_text(encoding="utf-8").rstrip()
            yield f"## {name}\n\n````{language}\n{text}\n````\n"


def write_pages() -> None:
    """Write the site's pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", PAGES / "images")
    (PAGES / "conf.py").write_text(CONFIGURATION, encoding="utf-8")
    pages = sorted((ROOT / "docs").glob("*.md"))
    sources = {path: RENAMED.get(path.name, path.name) for path in pages}
    sources |= {ROOT / name: f"{page}.md" for name, page in OUTSIDE.items()}
    for path, name in sources.items():
        text = relinked(path.read_text(encoding="utf-8"), path)
        text = text.replace("(docs/images/", "(images/")
        (PAGES / name).write_text(text, encoding="utf-8")
    (PAGES / "examples.md").write_text("\n".join(examples()), encoding="utf-8")
    index = PAGES / "index.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(f"{text}\n{contents(text)}", encoding="utf-8")


def main() -> int:
    """Build the site; a warning of Sphinx's, such as a link that leads nowhere, is an error."""
    write_pages()
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run([*command, "-b", "html", PAGES, SITE], check=False)
    if done.returncode == 0:
        sys.stdout.write(f"{SITE.relative_to(ROOT) / 'index.html'}\n")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
