"""Which requests for cards are served by sets of cards, computed once for each set."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from webhook.placement.mix import WHOLE
from webhook.placement.model import Vector

UNLIMITED: Final = 1 << 40
"""Pods of a class that requests nothing."""

_BATCH: Final = 64
"""Sets that are valued at once, which bounds the memory."""

Array = npt.NDArray[np.int64]

CardRequests = tuple[tuple[int, Vector], ...]
"""Numbers of cards, and what is requested of each; (0, ()) for no cards."""

SetOfCards = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
"""For each card the free amounts of some resources, and the amounts that a free card has."""


class ServedRequests:
    """Sets of cards, by number, and which of these requests they serve. resources: of cards."""

    def __init__(self, requests: CardRequests, resources: Sequence[str]) -> None:
        self._counts = np.array([count for count, _ in requests], dtype=np.int64)
        self._requests = table([per_card for _, per_card in requests], resources)
        self._row_of: dict[int, int] = {}
        self._rows = np.zeros((_BATCH, 1 + 2 * len(requests)), dtype=np.int64)

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """The numbers of sets that are not yet here, each once."""
        return list(dict.fromkeys([number for number in numbers if number not in self._row_of]))

    def add(self, numbers: Sequence[int], sets: Sequence[SetOfCards]) -> None:
        """Add sets."""
        for start in range(0, len(numbers), _BATCH):
            rows = self._rows_of(sets[start : start + _BATCH])
            first = len(self._row_of)
            if first + len(rows) > len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._rows[first : first + len(rows)] = rows
            places = range(first, first + len(rows))
            self._row_of.update(zip(numbers[start : start + _BATCH], places, strict=True))

    def of(self, numbers: Sequence[int]) -> tuple[Array, Array, Array]:
        """Of sets that are here: all free thousandths of GPUs, for each request those of the cards that serve
        it, 0 if they are too few, and the pods that they serve.
        """
        rows = self._rows[[self._row_of[number] for number in numbers]]
        middle = 1 + len(self._counts)
        return rows[:, 0], rows[:, 1:middle], rows[:, middle:]

    def _rows_of(self, sets: Sequence[SetOfCards]) -> Array:
        free, thousandths = _cards(sets, self._requests.shape[1])
        of_card = times(free.reshape(thousandths.size, free.shape[2]), self._requests)
        of_card = of_card.reshape(*thousandths.shape, len(self._counts))
        is_serving = of_card > 0
        sums = (thousandths[:, :, None] * is_serving).sum(axis=1)
        has_enough = (is_serving.sum(axis=1) >= self._counts) & (self._counts > 0)
        pods = of_card.sum(axis=1)
        for number in np.flatnonzero(self._counts != 1):
            pods[:, number] = pods_on(of_card[:, :, number], int(self._counts[number]))
        every = thousandths.sum(axis=1)[:, None]
        return np.concatenate([every, sums * has_enough, pods], axis=1)


def pods_on(of_card: Array, count: int) -> Array:
    """The pods that cards serve, each on `count` distinct ones. of_card: how many each card serves."""
    pods: Array = of_card.sum(axis=1) // max(1, count) * (count > 0)
    while count > 1:
        fewer: Array = np.minimum(of_card, pods[:, None]).sum(axis=1) // count
        if (fewer == pods).all():
            break
        pods = fewer
    return pods


def _cards(sets: Sequence[SetOfCards], resources: int) -> tuple[Array, Array]:
    """The free amounts of each card of each set, and its free thousandths, by the scarcest resource."""
    width = max((len(each) for each in sets), default=0)
    none = ((0,) * resources, (0,) * resources)
    cards = np.array([(*each, *[none] * (width - len(each))) for each in sets], dtype=np.int64)
    cards = cards.reshape(len(sets), width, 2, resources)
    free, most = cards[:, :, 0], cards[:, :, 1]
    shares = np.where(most > 0, WHOLE * free // np.maximum(1, most), WHOLE)
    return free, shares.min(axis=2, initial=WHOLE) * (most > 0).any(axis=2)


def table(vectors: Sequence[Vector], names: Sequence[str]) -> Array:
    """A row for each vector, 0 where it lacks a name."""
    rows = [[dict(vector).get(name, 0) for name in names] for vector in vectors]
    return np.array(rows, dtype=np.int64).reshape(len(vectors), len(names))


def times(free: Array, requests: Array) -> Array:
    """[row of free amounts, row of requests]: how many times the requests fit, exact below 2**53."""
    found = np.full((len(free), len(requests)), float(UNLIMITED))
    for column in range(requests.shape[1]):
        asked = requests[:, column]
        some = np.flatnonzero(asked)
        if len(some) == len(asked):
            np.minimum(found, free[:, column, None] / asked, out=found)
        elif len(some):
            found[:, some] = np.minimum(found[:, some], free[:, column, None] / asked[some])
    return found.astype(np.int64)
