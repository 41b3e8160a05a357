"""What a search in this wing has chosen, and the workers that go there."""

from collections.abc import Iterator
from dataclasses import dataclass

from webhook.placement.snapshot import NodeState


@dataclass(frozen=True, slots=True)
class Filled:
    """What was chosen: a node with its odd pods, or a domain. number: among its siblings. holds: workers, in
    units of the zone around it; unit: pods in one. own: the cost of using it.
    """

    number: int
    holds: int
    unit: int
    own: int
    odd: int = 0
    node: NodeState | None = None
    parts: tuple["Filled", ...] = ()

    @property
    def cost(self) -> int:
        """The cost of using it and everything inside it."""
        return self.own + sum(part.cost for part in self.parts)

    def deliver(self, units: int, found: dict[str, tuple[int, int]]) -> None:
        """Give workers to the nodes, the first ones first: node name -> workers and state of odd pods."""
        pods = units * self.unit
        if self.node is not None:
            if pods or self.odd:
                found[self.node.name] = (pods, self.odd)
            return
        for part in self.parts:
            given = min(pods // part.unit, part.holds)
            part.deliver(given, found)
            pods -= given * part.unit

    def nodes(self) -> Iterator[NodeState]:
        """The nodes chosen, in topology order."""
        if self.node is not None:
            yield self.node
        for part in self.parts:
            yield from part.nodes()
