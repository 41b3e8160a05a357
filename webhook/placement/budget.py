"""How much work a question may take, counted in steps: it ends the same way on every machine, and every time.

A step stands for about a microsecond of CPU. What is remembered from an earlier question saves the time, not
the steps, so that an answer does not depend on what was asked before.

Vector operations have fixed prices: about a microsecond of CPU a step, as measured. Costs that do not fit a
machine word are Python's integers, which take some thirty times as long.
"""

from typing import Final


class OutOfSteps(Exception):
    """The steps are used up before the question was decided."""


class Budget:
    """Steps that may still be taken; a part of another budget takes its steps from that one too."""

    __slots__ = ("_parent", "left", "spent")

    def __init__(self, steps: int, parent: "Budget | None" = None) -> None:
        """steps: the most that may be taken. parent: what this is a part of."""
        self.left = steps
        self.spent = 0
        self._parent = parent

    def part(self, steps: int) -> "Budget":
        """A budget of its own for something that may use at most so many of the steps left here."""
        return Budget(max(0, min(steps, self.left)), self)

    @property
    def exhausted(self) -> bool:
        """Whether more steps were taken than there were, here or in the whole."""
        return self.left < 0 or (self._parent is not None and self._parent.exhausted)

    def take(self, steps: int) -> None:
        """Take steps, even if there are not so many: what is done already. `exhausted` tells."""
        self.spent += steps
        self.left -= steps
        if self._parent is not None:
            self._parent.take(steps)

    def spend(self, steps: int = 1) -> None:
        """Take steps. Raises OutOfSteps once more are taken than there were."""
        budget: Budget | None = self
        is_short = False
        while budget is not None:  # searches come here at each step: calls in calls take twice as long
            budget.spent += steps
            budget.left -= steps
            is_short |= budget.left < 0
            budget = budget._parent
        if is_short:
            raise OutOfSteps


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


def followed(steps: int) -> int:
    """Of so many ways from one row to the next."""
    return steps // 15
