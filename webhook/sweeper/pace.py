"""How often work is done that only keeps something up to date: so that it takes a small share of the time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pace:
    """Says when such work is due again, by what it took last.

    due_at: by the clock. share: of the time, in the long run. least, most: seconds until the next time,
    whatever it took.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        least: float = 0.0,
        most: float = float("inf"),
        spent: Callable[[], float] | None = None,
    ) -> None:
        """spent: seconds that count as taken, from anywhere; the clock, where none is given."""
        self._share = share
        self._clock = clock
        self._least = least
        self._most = most
        self._spent = spent or clock
        self.due_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time."""
        return self._clock() >= self.due_at

    @contextmanager
    def work(self) -> Iterator[None]:
        """The work; what is raised in it leaves it due."""
        before = self._spent()
        yield
        seconds = (self._spent() - before) / self._share
        self.due_at = self._clock() + min(self._most, max(self._least, seconds))
