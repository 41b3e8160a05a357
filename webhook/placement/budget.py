"""How much work a search may do, counted in steps: the same question ends the same way on every machine."""


class OutOfSteps(Exception):
    """The steps are used up before the question was decided."""


class Budget:
    """Steps that may still be taken; a part of another budget takes its steps from that one too."""

    __slots__ = ("_whole", "left", "spent")

    def __init__(self, steps: int, whole: "Budget | None" = None) -> None:
        """steps: the most that may be taken. whole: what this is a part of."""
        self.left = steps
        self.spent = 0
        self._whole = whole

    def part(self, steps: int) -> "Budget":
        """A budget of its own for something that may use at most so many of the steps left here."""
        return Budget(min(steps, self.left), self)

    def spend(self, steps: int = 1) -> None:
        """Take steps. Raises OutOfSteps once more are taken than there were."""
        self.spent += steps
        self.left -= steps
        if self._whole is not None:
            self._whole.spend(steps)
        if self.left < 0:
            raise OutOfSteps
