"""The variants of a gang: the ways to ask about it, of which the first with an answer counts. Pure.

A gang has one, all of it as it is. An extension may give it others, with parts that have topology domains to
themselves, and with nodes where the gang may not be.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from webhook.placement import Topology
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View


@dataclass(frozen=True)
class Variant:
    """One way to ask about a gang: the gang, nodes where it may not be, and a sentence on these."""

    gang: PodGang
    closed: frozenset[str] = frozenset()
    note: str = ""


@dataclass(frozen=True)
class DivisionInput:
    """A gang that waits. plans: made in this pass."""

    gang: PodGang
    view: View
    plans: Sequence[NewPlan]
    topology: Topology


DivideGang = Callable[[DivisionInput], Iterator[Variant]]
"""Gives the variants of a gang, one at least. Raises PlacementError for what cannot be meant."""


def undivided(given: DivisionInput) -> Iterator[Variant]:
    """The gang as it is."""
    yield Variant(given.gang)


def variants_of(given: DivisionInput, divide: DivideGang) -> Iterator[Variant]:
    """The variants of a gang, each of which knows where other replicas of its owner are, see Spread.peers."""
    return divide(replace(given, gang=_beside_replicas(given)))


def _beside_replicas(given: DivisionInput) -> PodGang:
    """The gang with the nodes of the other pods of its owner.

    The pods of a Deployment that are to be spread do not wait for one another, so each is placed alone,
    beside those that have a node by then. Their owner is the ReplicaSet: in a rolling update the pods of each
    revision are spread by themselves.
    """
    gang, maker = given.gang, given.gang.maker
    if gang.spread is None or maker == gang.key:
        return gang
    own = {pod.metadata.uid for pod in gang.pods}
    there = given.view.spread_replicas.get(maker, {})
    nodes = [node for uid, node in there.items() if uid not in own]
    for plan in given.plans:
        if plan.gang.spread is not None and plan.gang.maker == maker:
            nodes += [entry.node for entry in plan.entries if entry.node]
    return replace(gang, spread=replace(gang.spread, peers=tuple(sorted(nodes))))
