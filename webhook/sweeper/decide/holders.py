"""For whom nodes are held where a gang may not go: gangs that have waited longer, stages to come. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.sweeper.decide.kept import KeptNodes
from webhook.sweeper.decide.replacing import Replacing
from webhook.sweeper.decide.reservations import Held, Reservations
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View


@dataclass(frozen=True)
class Holders:
    """All for whom nodes are held."""

    reservations: Reservations
    kept: KeptNodes
    replacing: Replacing

    def before(
        self, gang: PodGang, waiting: Iterable[Pod], view: View, rank: Mapping[GangKey, int]
    ) -> dict[str, Held]:
        """Name of each holder -> what it holds. rank: each gang's place in the order of urgency.

        A gang whose pods fill up what it had goes there whoever holds it since.
        """
        waiting = list(waiting)
        if self.replacing.fills_up(gang, waiting, view):
            return {}
        reserved = self.reservations.before(rank, gang, waiting)
        return {str(key): held for key, held in reserved.items()} | self.kept.before(gang, waiting)


def held_off(found: Mapping[str, Held]) -> frozenset[str]:
    """All of these nodes."""
    return frozenset[str]().union(*(held.nodes for held in found.values()))
