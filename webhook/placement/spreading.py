"""A wish to be spread, as the solvers see it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from webhook.placement.model import Gang
from webhook.placement.snapshot import Path, Snapshot, key_of
from webhook.placement.topology import PlacementError


@dataclass(frozen=True, slots=True)
class Spreading:
    """A wish to be spread over the domains of a level. there: pods that count, by their domain's path."""

    level: int
    most: int | None
    there: Mapping[Path, int]

    def there_in(self, key: Path) -> int:
        """How many are in the domain of a path, which may be that of a domain or a node inside."""
        return self.there.get(key[: self.level + 2], 0)

    def is_full(self, key: Path) -> bool:
        """Whether the domain of a path takes no more."""
        return self.most is not None and self.there_in(key) >= self.most


def spreading(gang: Gang, snapshot: Snapshot, required: int | None, kinds: int) -> Spreading | None:
    """The wish to be spread, with what is there. Raises PlacementError for one that cannot be meant."""
    wish = gang.spread
    if wish is None:
        return None
    topology = snapshot.topology
    level = topology.level(wish.level)
    if wish.most is not None and wish.most < 1:
        raise PlacementError(f"gang {gang.name}: at most {wish.most} pods a domain; 1 is the least")
    if required is not None and level <= required:
        raise PlacementError(
            f"gang {gang.name}: the level that it is to be spread over, {wish.level}, is not below "
            f"the required {gang.required_level}"
        )
    if gang.slices:
        raise PlacementError(f"gang {gang.name}: slices are not spread; one wish excludes the other")
    if kinds > 1:
        raise PlacementError(f"gang {gang.name}: only pods that are alike can be spread, and these are not")
    there = Counter(
        key_of(snapshot.nodes[name], len(topology.level_names))[: level + 2]
        for name in (*(anchor.node for anchor in gang.anchors), *wish.peers)
        if name in snapshot.nodes
    )
    return Spreading(level, wish.most, there)
