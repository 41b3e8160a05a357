"""How a gang is divided into pods that have topology domains to themselves. Pure.

The core knows undivided gangs alone: an extension divides them, see variants_of in decide.asking. What the
core needs of a divided gang it asks the Division that the extension has given it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, Gang, NoFit, Options, Snapshot
from webhook.sweeper.observe.membership import Claim


@dataclass(frozen=True)
class DomainLayout:
    """Where the groups of a gang go that have domains of their own.

    answers: each group with members, and its place. nodes: of all groups. closed_to_others: where the other
    pods of the gang may not be.
    """

    answers: tuple[tuple[Gang, Assignment], ...]
    nodes: frozenset[str]
    closed_to_others: frozenset[str]


class Division:
    """What is special about a divided gang; of an undivided one nothing is."""

    def labels_of(self, pod: Pod) -> frozenset[str]:
        """The node labels of which a pod has a domain with its like to itself.

        Its rules on other pods over these labels, which its controller writes, are kept by the division.
        """
        return frozenset()

    def place_groups(
        self, groups: Sequence[tuple[Gang, Claim]], snapshot: Snapshot, options: Options, budget: Budget
    ) -> DomainLayout | NoFit:
        """A domain for each of these groups, or why there is none. Raises PlacementError."""
        raise NotImplementedError

    def excluded_beside(self, placed: Mapping[str, str]) -> frozenset[str]:
        """Nodes where pods of the gang may not be that want no domain. placed: uid -> node of its others."""
        return frozenset()

    def domains(self, placed: Mapping[str, str]) -> Mapping[str, str]:
        """The domains that it has to itself, as its plan remembers them, see PlacementSpec.domains.

        placed: uid -> node of its pods, those that are yet to be made as well.
        """
        return {}


UNDIVIDED: Final = Division()
