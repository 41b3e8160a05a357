"""The levels of the topology: the labels that locate a node, and the names of the levels."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from labeler.contract import keys


class PlacementError(ValueError):
    """An invalid request, such as a level that the topology does not have."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The label families that locate a node, coarsest level first, and the names of the levels.

    A node uses the first family of which it has all labels. Below the last level is always the node itself.
    If a family lacks a level, it repeats the key of the next finer level.
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
        """A node's path: family number and level values, coarsest first; None without a complete family."""
        for number, family in enumerate(self.families):
            if not labels.get(family[0]):
                continue  # the case of most families and nodes
            values = tuple(labels.get(key, "") for key in family)
            if all(values):
                return (str(number), *values)
        return None

    def names(self, families: Iterable[str]) -> tuple[str, ...]:
        """The words for the levels, and for the node, if nodes are of these families (as in a path).

        A level has the families' word for its label if all of them use the same word, else its own name.
        Level names that the operator sets are used unchanged.
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
        """The spread of a gang, as "1 block, 16 nodes". counts: domains of each level, then nodes.

        families: those of its nodes, see `names`.
        """
        return ", ".join(
            f"{count} {name}{'' if count == 1 else 's'}"
            for name, count in zip((*self._words(families), "node"), counts, strict=True)
            if name
        )

    def level(self, name: str) -> int:
        """The number of a level by its name or one of its label keys: 0 is the coarsest, the node the last.

        Raises PlacementError for an unknown name, and for a key that is of different levels in two families.
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
            raise PlacementError(f"{name} is a key of several levels, {meant}; name the level instead")
        known = f"{', '.join(self.level_names)} and node"
        raise PlacementError(f"no level {json.dumps(name)}; known: {known}")
