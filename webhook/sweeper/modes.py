"""Modes of placement by the names that operators write, those that a release has removed included."""

import argparse
from collections.abc import Callable
from typing import Final

from webhook.placement import Mode

REMOVED: Final = {"least-free": Mode.KEEP_WHOLE, "balanced": Mode.BEST_FIT}
"""Removed modes, which are accepted for one release, and what is used instead of each."""


def mode_named(name: object, warn: Callable[[str], None]) -> Mode:
    """The mode of a name; warn: gets a sentence where the name is of a removed one. Raises ValueError."""
    if isinstance(name, str) and name in REMOVED:
        instead = REMOVED[name]
        warn(f"mode {name!r} was removed, and {instead} is used; the next release refuses it: set {instead}")
        return instead
    try:
        return Mode(str(name))
    except ValueError:
        raise ValueError(f"{name!r} is none of {', '.join(Mode)}") from None


def add_mode(parser: argparse.ArgumentParser) -> None:
    """Add the flag --mode; mode_named reads its value."""
    parser.add_argument(
        "--mode", choices=[*map(str, Mode), *REMOVED], metavar="MODE",
        help=f"how gangs are laid out: {', '.join(Mode)} ({Mode.BEST_FIT})",
    )  # fmt: skip
