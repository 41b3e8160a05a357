"""For whom nodes are held where a gang may not go: gangs that have waited longer, stages to come. Pure."""

from collections.abc import Iterable, Mapping

from webhook.kube.objects import Pod
from webhook.sweeper.decide.kept import KeptNodes
from webhook.sweeper.decide.replacing import Replacing
from webhook.sweeper.decide.reservations import Held, Reservations
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View


def holders(
    gang: PodGang,
    waiting: Iterable[Pod],
    view: View,
    rank: Mapping[GangKey, int],
    reservations: Reservations,
    kept: KeptNodes,
    replacing: Replacing,
) -> dict[str, Held]:
    """Name of each holder -> what it holds. rank: each gang's place in the order of urgency.

    A gang whose pods fill up what it had goes there whoever holds it since.
    """
    waiting = list(waiting)
    if replacing.fills_up(gang, waiting, view):
        return {}
    reserved = reservations.before(rank, gang, waiting)
    return {str(key): held for key, held in reserved.items()} | kept.before(gang, waiting)


def held_off(found: Mapping[str, Held]) -> frozenset[str]:
    """All of these nodes."""
    return frozenset[str]().union(*(held.nodes for held in found.values()))
