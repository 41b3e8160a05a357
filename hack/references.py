"""hack/reference: the tables of docs that are made from code, so that pages and programs agree.

A table stands in its page between two comments, `<!-- generated: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from labeler import config
from webhook.policy.fields import rows
from webhook.sweeper.settings import FILE

_MARKED: Final = r"(<!-- generated: {} -->\n).*?(<!-- end -->)"


def sweeper_settings() -> str:
    """All settings of the sweeper's file."""
    return _table(
        ("Setting", "Takes", "Default", "Meaning"),
        [(f"`{name}`", what, _default(default), meaning) for name, what, default, meaning in rows(FILE)],
    )


def labeler_keys() -> str:
    """All keys of the labeler's file."""
    return _table(
        ("Key", "Takes", "Default", "Meaning"),
        [
            (f"`{name}`", each.what, _default(each.default), each.meaning)
            for name, each in config.KEYS.items()
        ],
    )


TABLES: Final[Mapping[tuple[str, str], Callable[[], str]]] = {
    ("docs/operators/settings.md", "sweeper settings"): sweeper_settings,
    ("docs/operators/settings.md", "labeler keys"): labeler_keys,
}
"""By page and name of the table."""


def renewed(page: str, name: str, text: str) -> str:
    """A page's text with that table renewed. Raises LookupError if the page has no place for it."""
    marked = re.compile(_MARKED.format(re.escape(name)), re.DOTALL)
    if not marked.search(text):
        raise LookupError(f"{page} has no place for a table: <!-- generated: {name} --> and <!-- end -->")
    return marked.sub(lambda found: f"{found[1]}\n{TABLES[page, name]()}\n{found[2]}", text)


def main(root: Path) -> None:
    """Renew all tables below `root`."""
    for page, name in TABLES:
        path = root / page
        path.write_text(renewed(page, name, path.read_text()))


def _table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    made = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in made)


def _default(value: Any) -> str:
    """A default as a file would have it, in code; nothing where there is none."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, StrEnum | str):
        return f"`{value}`" if value else '`""`'
    if isinstance(value, float):
        return f"`{value:.12g}`"
    if isinstance(value, frozenset):
        return ", ".join(f"`{each}`" for each in sorted(value)) or "`[]`"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value) or "`[]`"
    if isinstance(value, Mapping):
        return "`{" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "}`"
    return f"`{value}`"


if __name__ == "__main__":
    main(Path(__file__).parent.parent)
