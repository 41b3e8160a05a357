"""The levels of the network: by which labels a node has its place, and what people call them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from labeler.contract import keys


class PlacementError(ValueError):
    """A question that has no meaning, such as a level that the topology does not have."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The label families that place a node, coarsest level first, and what people call their levels.

    A node uses the first family whose labels it has complete. Below the last level is always the node itself.
    A level that a family lacks has the key of its next finer one.
    """

    families: tuple[tuple[str, ...], ...] = keys.TOPOLOGY_FAMILIES
    level_names: tuple[str, ...] = keys.LEVEL_NAMES

    def __post_init__(self) -> None:
        """Check that each family has a key for each level."""
        for family in self.families:
            if len(family) != len(self.level_names):
                raise PlacementError(
                    f"topology family {family} has {len(family)} keys for the {len(self.level_names)} levels "
                    f"{self.level_names}"
                )

    def path(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """A node's place: family number and level values, coarsest first; None without a full family."""
        for number, family in enumerate(self.families):
            if not labels.get(family[0]):
                continue  # most families of most nodes
            values = tuple(labels.get(key, "") for key in family)
            if all(values):
                return (str(number), *values)
        return None

    @property
    def machine(self) -> int:
        """The level whose domains are machines: the host where there is such a level, else the node."""
        host = keys.LEVEL_NAMES[-1]
        return self.level_names.index(host) if host in self.level_names else len(self.level_names)

    def names(self, families: Iterable[str]) -> tuple[str, ...]:
        """What people call the levels, and the node, where nodes are of these families (as in a path).

        That is the word of a family for its label where all of them have the same one, else the level's name.
        An operator's own names of levels are kept.
        """
        words = self._words(families)
        return (*(word or name for word, name in zip(words, self.level_names, strict=True)), "node")

    def _words(self, families: Iterable[str]) -> Sequence[str]:
        """The same, with "" for a level that the families lack, and without the node."""
        known = [self.families[int(number)] for number in set(families) if number.isdecimal()]
        if not known or self.level_names != keys.LEVEL_NAMES:
            return self.level_names
        found = []
        for level, name in enumerate(self.level_names):
            words = {
                "" if family[level] in family[level + 1 :] else keys.LEVEL_WORDS.get(family[level], name)
                for family in known
            }
            found.append(words.pop() if len(words) == 1 else name)
        return found

    def spread(self, counts: Iterable[int], families: Iterable[str] = ()) -> str:
        """How far a gang is spread, as "1 block, 16 nodes". counts: domains of each level, then nodes.

        families: of its nodes, see names.
        """
        return ", ".join(
            f"{count} {name}{'' if count == 1 else 's'}"
            for name, count in zip((*self._words(families), "node"), counts, strict=True)
            if name
        )

    def level(self, name: str) -> int:
        """Number of a level by its name or one of its label keys, 0 the coarsest; node is the last.

        Raises PlacementError for a name that is none, or a key that is not of the same level in all families.
        """
        if name in self.level_names:
            return self.level_names.index(name)
        if name in ("node", keys.HOSTNAME_LABEL):
            return len(self.level_names)
        found = {family.index(name) for family in self.families if name in family}
        if len(found) == 1:
            return found.pop()
        if found:
            meant = " and ".join(self.level_names[level] for level in sorted(found))
            raise PlacementError(f"{name} is a key of several levels, {meant}: name the level instead")
        known = f"{', '.join(self.level_names)} and node"
        raise PlacementError(f"no level {json.dumps(name)}; known: {known}")
