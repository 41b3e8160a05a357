"""A hook of mkdocs: takes the files outside of docs that a page links to into the site.

Pages in docs link to README.md, SECURITY.md, examples and pictures by their paths in the repository, so that
the links work there. In the site such a file is below `repository/`, by the same path. Every link to it and
in it is rewritten. A link to a folder becomes its text alone.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[2]
_DOCS: Final = "docs/"
_INDEXES: Final = ("README.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK: Final = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
"""A picture or a link to a path: the mark of a picture, the text, the path, and the anchor."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages of docs link to, and what those link to, of the repository's files."""
    waiting = [file.src_uri for file in files if file.src_uri.endswith(".md")]
    pages = {uri: (_ROOT / _DOCS / uri).read_text() for uri in waiting}
    seen = set()
    while waiting:
        uri = waiting.pop()
        source = _in_repository(uri)
        for _, _, target, _ in _LINK.findall(pages[uri]):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if path in seen or path.startswith((_DOCS, "..")) or not (_ROOT / path).is_file():
                continue
            seen.add(path)
            made = f"repository/{path}"
            if path.endswith(".md"):
                pages[made] = (_ROOT / path).read_text()
                files.append(File.generated(config, made, content=pages[made]))
                waiting.append(made)
            else:
                files.append(File.generated(config, made, abs_src_path=str(_ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to where their targets stand in the site."""
    source = _in_repository(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        picture, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (_ROOT / path).is_dir():
            return text
        uri = path.removeprefix(_DOCS) if path.startswith(_DOCS) else f"repository/{path}"
        there = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{picture}[{text}]({there}{anchor})"

    return _LINK.sub(moved, markdown)


def _in_repository(uri: str) -> str:
    """The path in the repository of a file of the site."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else _DOCS + uri


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """Watch what stands outside of docs, too, while the site is served."""
    config.watch.extend(str(_ROOT / name) for name in _INDEXES)
    return config
