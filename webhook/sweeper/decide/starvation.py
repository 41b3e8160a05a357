"""Reserving nodes for a gang that has waited long and does not fit. Pure."""

from collections.abc import Iterable

from webhook.placement import Budget, Snapshot, victims
from webhook.placement.capacity import count_slots_by_node
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.reservations import STARVATION, Reservation, ReservationLedger, nodes_of
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View


def reserve_for_starving(
    ledger: ReservationLedger,
    gang: PodGang,
    asked: GangQuestion,
    snapshot: Snapshot,
    view: View,
    budget: Budget | None = None,
) -> ReservationLedger:
    """The ledger with the nodes that become free for the gang most easily, if it is time to reserve some."""
    if _has_reserved(ledger, gang, snapshot):
        return ledger
    ledger = ledger.give_up(gang.key)
    if ledger.is_paused or ledger.left <= 0 or not ledger.has_waited_long(gang):
        return ledger
    stays = view.uids(Sort.LASTING, Sort.ENDLESS)
    found = victims.find(
        asked.without(ledger.taken | ledger.cooling()).gang,
        snapshot,
        ledger.settings.options,
        lambda use: use.uid not in stays,
        budget,
    )
    if found is None:
        return ledger
    pods = {name: len(snapshot.nodes[name].usages) for name in found.nodes}
    return ledger.reserve(gang.key, sorted(pods, key=lambda name: (pods[name], name)))


def _has_reserved(ledger: ReservationLedger, gang: PodGang, snapshot: Snapshot) -> bool:
    """Whether new nodes are reserved for it, or nodes all of which are there still."""
    own = [each for each in ledger.reservations if each.gang == gang.key.placement_key]
    return any(each.kind.of_new_nodes and each.nodes for each in own) or any(
        each.kind is STARVATION and each.nodes <= snapshot.nodes.keys() for each in own
    )


def fits_on_reserved(
    others: Iterable[Reservation],
    asked: GangQuestion,
    snapshot: Snapshot,
    budget: Budget | None,
    excluded: frozenset[str] = frozenset(),
) -> bool:
    """Whether nodes that are reserved for others would take a pod of the gang, but for new ones.

    excluded: nodes that it could not use anyway.
    """
    names = nodes_of(each for each in others if not each.kind.of_new_nodes) - excluded
    some = [snapshot.nodes[name] for name in sorted(names & snapshot.nodes.keys())]
    classes = dict.fromkeys(member.pod_class for member in asked.gang.members)
    return bool(some) and any(any(count_slots_by_node(each, some, budget).counts) for each in classes)
