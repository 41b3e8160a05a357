"""The progress of gangs in which nothing moves, worked out once: in a large cluster those are nearly all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement, PlacementStatus


@dataclass(frozen=True)
class _Still:
    """What a status was worked out from. nodes: those of the members as they were then."""

    placement: Placement
    members: Sequence[Pod]
    others: int
    nodes: Mapping[str, Node | None]
    status: PlacementStatus

    def holds(
        self, placement: Placement, members: Sequence[Pod], others: int, nodes: Mapping[str, Node]
    ) -> bool:
        """Whether it is the same now. What has not changed is the same object, so that it is quick."""
        return (
            self.placement is placement
            and self.others == others
            and self.members == members
            and all(nodes.get(name) is node for name, node in self.nodes.items())
        )


class Still:
    """Remembers the statuses of gangs from one pass to the next."""

    def __init__(self) -> None:
        self._known: dict[str, _Still] = {}
        self._used: dict[str, _Still] = {}

    def status(
        self,
        placement: Placement,
        members: Sequence[Pod],
        others: int,
        nodes: Mapping[str, Node],
        work_out: Callable[[], tuple[PlacementStatus, Sequence[str]]],
    ) -> PlacementStatus:
        """The status of a gang none of whose pods waits.

        members: its pods that are there; others: how many more count. work_out gives the status, and the
        names of the nodes on which it depends; all else that it depends on is given here.
        """
        known = self._known.get(placement.key)
        if known is None or not known.holds(placement, members, others, nodes):
            status, names = work_out()
            known = _Still(placement, members, others, {name: nodes.get(name) for name in names}, status)
        self._used[placement.key] = known
        return known.status

    def end_round(self) -> None:
        """Forget what was not asked for since the last round."""
        self._known, self._used = self._used, {}
