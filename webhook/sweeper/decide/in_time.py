"""The gangs of a pass, within its time: the most urgent for half of it, then the others in turn.

The turn goes on from where the pass before has stopped, so nobody's many gangs keep anybody's from being
asked about.
"""

from collections.abc import Callable, Iterator, Sequence

from webhook.kube.objects import Pod
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.observe.gangs import GangKey, PodGang, by_age


class InTime:
    """Remembers whose turn is next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: GangKey | None = None

    def of(
        self, due: Sequence[tuple[PodGang, list[Pod]]], now: Round, seconds: float
    ) -> Iterator[tuple[PodGang, list[Pod]]]:
        """The gangs to place in this pass of so many seconds; due: the most urgent first."""
        started = self._clock()
        number = 0
        while number < len(due) and (number == 0 or self._clock() - started < seconds / 2):
            yield due[number]
            number += 1
        # By age whoever's turn it is: that moves from pass to pass, and nobody must be passed over by that.
        rest = sorted(due[number:], key=lambda each: by_age(each[0]))
        first = next((i for i, (gang, _) in enumerate(rest) if gang.key == self._next), 0)
        self._next = None
        in_turn = [*rest[first:], *rest[:first]]
        for position, (gang, waiting) in enumerate(in_turn):
            if self._clock() - started >= seconds:
                self._next = gang.key
                now.unasked.update(each.key for each, _ in in_turn[position:])
                now.later(0.0)
                return
            yield gang, waiting
