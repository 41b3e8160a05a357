"""What vector operations cost in steps of the budget: about a microsecond of CPU each, as measured.

Costs that do not fit a machine word are Python's integers, which take some thirty times as long.
"""

from typing import Final

PART: Final = 14
"""Of asking one part anything: vector operations take so long however short they are."""

SHIFTED: Final = 2
"""Of one shifted row however short."""


def added(elements: int, narrow: bool) -> int:
    """Of rows that are added and compared, of so many elements together. narrow: of machine words."""
    return elements // (1400 if narrow else 45)


def searched(elements: int, narrow: bool) -> int:
    """Of looking for the equal ones in a table of so many elements."""
    return elements // (90 if narrow else 20)


def summed(sums: int, narrow: bool) -> int:
    """Of so many sums of which the least are kept, each of its own pair."""
    return sums // (700 if narrow else 23)


def followed(steps: int) -> int:
    """Of so many ways from one row to the next."""
    return steps // 15
