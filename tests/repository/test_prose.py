"""Comments, docstrings and messages say what they mean in the field's words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

import pytest

from hack.local.build import ROOT

PHRASES = (
    r"rooms?",
    r"anew",
    r"told",
    r"unlike pods",
    r"odd pods?",
    r"shun(s|ned)?",
    r"strangers?",
    r"companions?",
    r"half[- ]dead",
    r"steer(s|ed|ing)?",
    r"passed over",
    r"kept off",
    r"put off",
    r"how-manieth",
    r"accuse[sd]?",
)
"""Of the words that docs/contributing/style.md replaces, those that have no plain meaning in our comments."""
_FURTHER = (
    r"goes|went|lets? (it|them|pods) go",
    r"tells?|said",
    r"unlike|alike",
    r"wish(es|ed)?",
    r"(any|some)body",
    r"(is|are|was|were|been|be) held",
    r"made again|makes? (it|them) again",
    r"heed(ed|s)?",
)
FURTHER = {
    "labeler": (
        r"tells?",
        r"goes",
        r"alike",
        r"wish(es|ed)?",
        r"whoever",
        r"made again",
        r"turns?(?! positions)",
    ),
    "hack": _FURTHER,
    "tests": _FURTHER,
    "webhook": _FURTHER,
}
"""More of these words, by package: those that none of its comments and docstrings needs."""
MESSAGE_PHRASES = (
    *PHRASES,
    r"goes|gone|went",
    r"tells?",
    r"unlike|alike",
    r"wish(es)?",
    r"turns?",
    r"(any|no|some)body",
    r"(is|are|was|were|been|be) (held|kept)",
    r"made again|makes? (it|them) again",
    r"be(gin|gan|gun)s? (anew|again)",
    r"mend(ed|s)?",
    r"heed(ed|s)?",
)
"""What no text has that a user or an operator reads."""


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring, also of constants, of each comment and of each test's claim."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(phrases)})\b", re.IGNORECASE)


def replaced(source: str, phrases: tuple[str, ...] = PHRASES) -> list[str]:
    """Each replaced phrase in the prose of a module, with the line where its text begins.

    Most modules have none anywhere, in code or prose: these need not be parsed.
    """
    if not _pattern(phrases).search(re.sub(r"[\s_]+", " ", source)):
        return []
    return _found(_prose(source), phrases)


def replaced_in_messages(source: str) -> list[str]:
    """Each replaced phrase in the strings of a module that look like sentences."""
    return _found(_messages(source), MESSAGE_PHRASES)


def _messages(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string of three words or more that is no docstring, with its values left out."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if len(re.findall(r"[a-z]{2,}", node.value)) >= 3 and " " in node.value.strip():
            yield node.lineno, node.value


def _found(texts: Iterable[tuple[int, str]], phrases: tuple[str, ...]) -> list[str]:
    return [
        f"{line}: {found[0]}"
        for line, text in texts
        for found in _pattern(phrases).finditer(re.sub(r"`[^`]*`|\s+", " ", text))
    ]


@pytest.mark.parametrize("package", FURTHER)
def test_no_comment_or_docstring_has_a_phrase_that_the_style_guide_replaces(package: str) -> None:
    """Failed? Write the term on the right in the table of docs/contributing/style.md, or say it plainly."""
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    phrases = (*PHRASES, *FURTHER[package])
    found = {
        str(path.relative_to(ROOT)): faults
        for path in modules
        if (faults := replaced(path.read_text(), phrases))
    }
    assert found == {}


def test_no_message_has_a_phrase_that_the_style_guide_replaces() -> None:
    """Failed? Say what happened, to which object, why, and what to do, in the words of Kubernetes."""
    found = {
        str(module.relative_to(ROOT)): faults
        for module in sorted((ROOT / "webhook").rglob("*.py"))
        if (faults := replaced_in_messages(module.read_text()))
    }
    assert found == {}
