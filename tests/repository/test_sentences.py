"""Sentences of the README and of docs can be read at once: none has more than 30 words.

A code span is one word. An item of a list ends a sentence, and so do a cell of a table and a semicolon in it.
Headings, code blocks and lists of code spans have none.
"""

import re
from collections.abc import Iterator

from hack.local.build import ROOT
from tests.repository.pages import path_in_repository

PAGES = sorted(
    path
    for pattern in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
)
MOST_WORDS = 30
ITEM = re.compile(r"^(?:[-*]|\d+\.)\s+")
END = re.compile(r"(?<=[.!?])[\"*)]*\s+(?=[A-Z0-9\"*(])")


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, each in one line, with a code span as one word."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        is_row = stripped.startswith("|")
        if not stripped or is_row or stripped.startswith("#") or ITEM.match(stripped):
            yield " ".join(paragraph)
            paragraph = []
        if is_row:
            yield from (item.strip() for item in re.split(r"[|;]", stripped))
        elif stripped and not stripped.startswith("#"):
            paragraph.append(ITEM.sub("", stripped, count=1))


def long_sentences(text: str) -> list[str]:
    """Sentences of more than 30 words, but for lists of code spans alone."""
    return [
        sentence
        for block in blocks(text)
        for sentence in END.split(block)
        if len(sentence.split()) > MOST_WORDS and set(re.findall(r"\w+", sentence)) != {"Code"}
    ]


def test_no_sentence_has_more_than_30_words() -> None:
    """Failed? Make two sentences of it: the rule first, the exception after it, the reason last."""
    assert [
        f"{path_in_repository(page)}: {sentence}"
        for page in PAGES
        for sentence in long_sentences(page.read_text())
    ] == []
