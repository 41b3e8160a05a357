"""The work budget of a question, counted in steps, so that the answer does not depend on the machine.

A step stands for about a microsecond of CPU. A cached result saves time but costs the same steps, so the
answer does not depend on earlier questions.

Vector operations have fixed prices, measured as about a microsecond of CPU per step. Costs that do not fit a
machine word are Python integers, which take about thirty times as long.
"""

from typing import Final


class OutOfSteps(Exception):
    """The budget is spent before the question is decided."""


class Budget:
    """The steps that are left. A part of another budget takes its steps from that budget too."""

    __slots__ = ("_parent", "left", "spent")

    def __init__(self, steps: int, parent: "Budget | None" = None) -> None:
        """steps: the most that may be taken. parent: the budget of which this is a part."""
        self.left = steps
        self.spent = 0
        self._parent = parent

    def part(self, steps: int) -> "Budget":
        """A budget for a part of the work, which may take at most so many of the steps left here."""
        return Budget(max(0, min(steps, self.left)), self)

    @property
    def exhausted(self) -> bool:
        """Whether more steps are taken than this budget, or a budget around it, had."""
        return self.left < 0 or (self._parent is not None and self._parent.exhausted)

    def take(self, steps: int) -> None:
        """Take steps for finished work, even if fewer are left; then `exhausted` is true."""
        self.spent += steps
        self.left -= steps
        if self._parent is not None:
            self._parent.take(steps)

    def spend(self, steps: int = 1) -> None:
        """Take steps. Raises OutOfSteps if fewer are left."""
        budget: Budget | None = self
        is_short = False
        while budget is not None:  # a hot loop of the searches: nested calls take twice as long
            budget.spent += steps
            budget.left -= steps
            is_short |= budget.left < 0
            budget = budget._parent
        if is_short:
            raise OutOfSteps


PART: Final = 14
"""Steps of any call on one part: even the shortest vector operations take this long."""

SHIFTED: Final = 2
"""Steps of one shifted row, even of the shortest."""


def added(elements: int, narrow: bool) -> int:
    """Steps to add and compare rows with so many elements in all. narrow: of machine words."""
    return elements // (1700 if narrow else 60)


def searched(elements: int, narrow: bool) -> int:
    """Steps to find the equal elements in a table of so many elements."""
    return elements // (110 if narrow else 25)


def followed(steps: int) -> int:
    """Steps to follow so many transitions from one row to the next."""
    return steps // 20
