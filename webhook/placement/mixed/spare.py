"""The room that odd pods take at least from workers in slices, in place of the pods themselves.

Theory (a surrogate relaxation, as in surrogate). In a domain that holds whole slices, odd pods take away room
for at least as many workers as they do on the nodes best for them. So the nodes that any solution uses there
have room for its slices and so much more, and what is cheapest with that spare room costs no more than the
gang. Inside such a domain it does not matter on which nodes the spare room is, so that is the knapsack of
workers alone. Where the pods find places on the nodes found (see sharing), these are the gang's optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from webhook.placement.mixed.odd import Stepwise, Sums
from webhook.placement.question import Counts
from webhook.placement.snapshot import NodeState


@dataclass(frozen=True)
class Spare:
    """Room that is left beside the workers. losses: see odd.Stepwise."""

    losses: tuple[int, ...]
    sums: Sums
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def states(self) -> Sequence[object]:
        """The room left so far."""
        return self.losses

    @property
    def most(self) -> int:
        """So much room stands on as many nodes at most."""
        return self.losses[-1]

    def below(self, unit: int) -> Stepwise:
        """Where no slice has its domain below, all room is alike."""
        return self if unit > 1 else NONE

    def rooms(self, nodes: Sequence[NodeState], alone: Sequence[Counts]) -> list[tuple[int, ...]]:
        """See odd.Stepwise."""
        return [self._rooms(rooms[0]) for rooms in alone]

    def _rooms(self, room: int) -> tuple[int, ...]:
        if room not in self.known:
            self.known[room] = tuple(room - loss if room >= loss else -1 for loss in self.losses)
        return self.known[room]


NONE = Spare((0,), (((0, 0),),))
"""No room beside the workers."""


def spare_room(losses: Sequence[int], sums: Sums, more: int = 0) -> Spare:
    """Spare room for odd pods, and so much more. losses, sums: of their states, see odd.Stepwise.

    Told apart by the odd pods placed so far, or by the room left so far, whichever has fewer states; the
    second lets domains share the room for one odd pod.
    """
    most = losses[-1] + more
    if most + 1 >= len(losses):
        return Spare((*losses[:-1], most), sums)
    by_room = tuple(
        tuple((before, before + added) for before in range(most + 1 - added)) for added in range(most + 1)
    )
    return Spare(tuple(range(most + 1)), by_room)
