"""Which plans still hold: those for nodes that are there and did not refuse, with room for what they plan.

A plan that does not hold is not rolled back; its pods that still wait are placed anew. Of a gang that is
bound as one all are, as long as none is released: some alone would hold nodes while they wait for the others.
"""

import logging
from collections.abc import Set

from webhook.kube.objects import Pod
from webhook.kube.planned import PlannedPod
from webhook.placement import Snapshot
from webhook.placement.cards.state import overbooked_cards
from webhook.sweeper.decide.backoff import Backoff
from webhook.sweeper.decide.orders import Pair
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.view import View
from webhook.workloads.pod_group_names import bind_group_of

logger = logging.getLogger(__name__)


def with_valid_plans(view: View, backoff: Backoff, sent: SentReleases) -> View:
    """The view with the plans that hold: without those for nodes that refused the gang.

    A pod that we have released and that the watch still shows gated is where we sent it.
    """
    refused = {
        own.uid
        for pod in view.gated
        if (own := view.planned.get(pod.metadata.uid)) is not None
        and own.node in backoff.nodes_of(view.gang_of(pod), view.maker_of(pod))
    }
    refused |= _bound_with(refused, view, sent)
    planned = {uid: each for uid, each in view.planned.items() if uid not in refused}
    planned.update((uid, each.planned) for uid, each in sent.done.items())
    return view.with_plans(planned)


def without_overbooked(view: View, snapshot: Snapshot, sent: SentReleases) -> View:
    """The view without unreleased parts of plans on nodes that others have filled meanwhile.

    It is the same view if there are none. A plan that preempts is on full nodes by intent.
    """
    preempting = {
        planned.uid
        for placement in view.placements.values()
        if placement.spec.preempts
        for planned in placement.spec.pods
    }
    wanted = {pod.metadata.uid: _wanted(pod, view) for pod in view.gated if pod.metadata.uid in view.planned}
    dropped = {
        uid
        for uid, planned in view.planned.items()
        if uid not in preempting and uid not in sent and _is_overbooked(snapshot, planned, wanted[uid])
    }
    return without_plans(view, dropped, sent)


def _bound_with(uids: Set[str], view: View, sent: SentReleases) -> Set[str]:
    """The pods that are planned and bound together with these, of gangs of which none is released."""
    if not uids:
        return frozenset()
    gangs: dict[GangKey, set[str]] = {}
    for pod in view.gated:
        if bind_group_of(pod):
            gangs.setdefault(view.gang_of(pod), set()).add(pod.metadata.uid)
    lost = (own for gang, own in gangs.items() if own & uids and not _has_begun(gang, own, view, sent))
    return frozenset().union(*lost) & view.planned.keys()


def _has_begun(gang: GangKey, gated: Set[str], view: View, sent: SentReleases) -> bool:
    """Whether a pod of it is released, also one that the watch still shows gated."""
    others = view.index.mates.get(gang, ())
    return any(uid in sent for uid in gated) or any(not pod.metadata.deletion_timestamp for pod in others)


def without_plans(view: View, uids: Set[str], sent: SentReleases) -> View:
    """The view without the plans for these pods, the same if there are none."""
    uids = uids | _bound_with(uids, view, sent)
    for uid in uids:
        logger.warning("plan_dropped pod=%s node=%s", view.planned[uid].name, view.planned[uid].node)
    if not uids:
        return view
    return view.with_plans({uid: each for uid, each in view.planned.items() if uid not in uids})


def _wanted(pod: Pod, view: View) -> frozenset[str]:
    try:
        return frozenset(name for name, _ in view.class_of(pod).requests)
    except ValueError:
        return frozenset()


def _is_overbooked(snapshot: Snapshot, planned: PlannedPod, wanted: frozenset[str]) -> bool:
    """Whether a node has less than nothing left of what the pod planned for it wants, cards included."""
    state = snapshot.nodes.get(planned.node)
    if state is None:
        return True
    if any(amount < 0 for name, amount in state.free.items() if name in wanted):
        return True
    return bool(planned.annotations) and bool(overbooked_cards(state.node, state.usages))


def unfinished(
    view: View, backoff: Backoff, sent: SentReleases, waiting: Set[str] = frozenset()
) -> list[Pair]:
    """What an earlier pass, or leader, planned and did not come to release, in the order of the plans.

    waiting: uids of pods that wait for victims, or for what an extension writes.
    """
    gated = {pod.metadata.uid: pod for pod in view.gated}
    return [
        (pod, planned)
        for uid, planned in view.planned.items()
        if (pod := gated.get(uid)) is not None
        and uid not in sent
        and uid not in waiting
        and not backoff.seconds_left(view.gang_of(pod), view.now.seconds)
    ]
