"""Reservations for gangs that have waited long, and for pods that are created only later. Pure.

For a gang that has waited long and does not fit, the nodes are reserved that become free most easily, gang
after gang as each finds no place.

Some pods are created only once the first pods of their gang run. A plan names nodes for them, and they are
reserved from the plan, so that a later leader reserves them too. They are bounded with all other
reservations. Their number is bounded, apart from nodes that were created for the gang. Their time is bounded
for each stage, which has more pods than the one before and begins once those ran, and in all by as much time
for each node. A leader pod that never becomes ready keeps nodes empty for a while only, and its gang's later
pods then look for others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.placement import Budget, Snapshot
from webhook.placement.capacity import count_slots_by_node
from webhook.placement.victims import choose_among, units_on
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.reservations import (
    LATER_STAGE,
    STARVATION,
    Reservation,
    ReservationInput,
    ReservationLedger,
    ReservationSource,
    share_of,
)
from webhook.sweeper.observe.gangs import PodGang, urgency
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.text import counted


@dataclass(frozen=True)
class _Stage(Reservation):
    """The reservation of a plan. pods: how many it has had at most; stage_since: since when so many.

    last: when its reservations end, whatever stages come. ran: uids of its pods that have run.
    """

    pods: int = 0
    stage_since: float = 0.0
    last: float = 0.0
    ran: frozenset[str] = frozenset()


def reserve_for_later_stages(given: ReservationInput) -> Sequence[Reservation]:
    """The reservations of plans; plans whose stage began first come first."""
    ledger, view = given.ledger, given.view
    plans = {
        key: each for key, each in view.placements.items() if each.spec.later_pod_nodes and each.spec.pods
    }
    before = {each.holder: each for each in ledger.reservations if isinstance(each, _Stage)}
    found, begun = list[Reservation](), []
    for key, plan in plans.items():
        there = [pod for pod in view.pods_of(plan) if not view.lost_owners.of(pod)]
        stage = _stage(key, plan, there, before.get(plan.metadata.uid), ledger)
        if there and ledger.now.seconds < stage.until:
            begun.append((replace(stage, priority=urgency(there)), plan))
        else:
            found.append(stage)
    left = _most(ledger, [plan for _, plan in begun]) - len(_others(ledger, view))
    for stage, plan in sorted(begun, key=lambda each: (each[0].stage_since, each[0].gang)):
        found.append(replace(stage, nodes=_nodes(stage, plan, max(0, left), ledger)))
        left -= len(found[-1].counted)
    return found


LATER_STAGES: Final = ReservationSource(LATER_STAGE, reserve_for_later_stages)


def reported_stage(plan: Placement, until: float, ends: datetime, hold_seconds: float) -> Reservation:
    """The reservation of a plan whose status says when its present stage ends, see Reservation."""
    since = until - hold_seconds
    nodes = frozenset(plan.status.reserved_nodes).intersection(plan.spec.later_pod_nodes)
    return _Stage(
        LATER_STAGE, plan.key, nodes, since, until, ends,
        whose=f"{plan.metadata.namespace}/{plan.spec.gang}", holder=plan.metadata.uid, priority=0,
        pods=len(plan.spec.pods), stage_since=since, last=until,
    )  # fmt: skip


def _most(ledger: ReservationLedger, begun: Sequence[Placement]) -> int:
    """How many nodes may be reserved in all.

    A share of fewer nodes, as some have failed, takes nothing from who began when there were more.
    """
    return max([ledger.most, *(share_of(plan.spec.usable_nodes, ledger.settings) for plan in begun)])


def _others(ledger: ReservationLedger, view: View) -> frozenset[str]:
    """The other nodes that count against the share, without those that a gang's own plan reserves."""
    plans = view.placements
    return frozenset().union(
        *(
            each.counted.difference(plans[each.gang].spec.later_pod_nodes if each.gang in plans else ())
            for each in ledger.reservations
            if each.kind is not LATER_STAGE
        )
    )


def _stage(
    key: str, plan: Placement, there: Sequence[Pod], before: _Stage | None, ledger: ReservationLedger
) -> _Stage:
    """How far a plan is, with no nodes yet.

    A pod that takes the place of another begins no stage, nor does one before the earlier ones ran.
    """
    now, seconds = ledger.now.seconds, ledger.settings.reserve_hold_seconds
    holder, count = plan.metadata.uid, len(plan.spec.pods)
    ran = frozenset(pod.metadata.uid for pod in there if pod.status.phase == "Running")
    first = since = now
    last = now + seconds * (1 + len(plan.spec.later_pod_nodes))
    if before is not None:
        ran |= before.ran
        if count <= before.pods or len(ran) < before.pods:
            count, since = before.pods, before.stage_since
            first, last = before.since, before.last
        elif before.nodes or ledger.cooling() != ledger.cooling(but=holder):
            first, last = before.since, before.last
    until = min(since + seconds, last)
    if before is not None and before.until == until:
        ends = before.ends  # the sentence about it does not change from pass to pass
    else:
        ends = ledger.now.at + timedelta(seconds=until - now)
    return _Stage(
        LATER_STAGE, key, frozenset(), first, until, ends,
        whose=f"{plan.metadata.namespace}/{plan.spec.gang}", holder=holder, priority=0,
        beyond_share=_made_for(key, holder, ledger), pods=count, stage_since=since, last=last, ran=ran,
    )  # fmt: skip


def _made_for(gang: str, holder: str, ledger: ReservationLedger) -> frozenset[str]:
    """Nodes beyond the share that are reserved for a gang, by this plan or otherwise."""
    made = (
        each.beyond_share
        for each in ledger.reservations
        if each.gang == gang and (each.holder == holder or each.kind is not LATER_STAGE)
    )
    return frozenset().union(*made)


def _nodes(stage: _Stage, plan: Placement, most: int, ledger: ReservationLedger) -> frozenset[str]:
    """The plan's nodes, as many as may count against the share, and those that were created for its gang."""
    cooling = ledger.cooling(but=stage.holder)
    nodes = [name for name in plan.spec.later_pod_nodes if name not in cooling]
    counted = [name for name in nodes if name not in stage.beyond_share]
    return frozenset(counted[:most]) | stage.beyond_share.intersection(nodes)


def later_sentence(gang: PodGang) -> str:
    """The sentence on pods that are planned and yet to be created, "" if there are none."""
    if not gang.later:
        return ""
    return f"{len(gang.later)} of its pods are created once the first ones run, and are planned with them"


def why_not_reserved(gang: PodGang, nodes: frozenset[str], ledger: ReservationLedger) -> str:
    """Why nodes cannot be reserved now for a gang's later pods, "" if they can.

    A gang that needs more nodes than the share gets as many as possible, once no other gang has reserved any.
    """
    own, others = nodes - ledger.beyond_share, ledger.beside(gang)
    if not ledger.most or len(own | others) <= ledger.most or not others:
        return ""
    return (
        f"{counted(len(own), 'node is', 'nodes are')} to be reserved for the "
        f"{counted(len(gang.later), 'pod that is', 'pods that are')} created once its first ones run, "
        f"and other gangs have {len(others)} of the {ledger.most} that may be reserved at once "
        "(reservations.share)"
    )


# --- for gangs that have waited long ------------------------------------------------------------------


def reserve_for_starving(
    ledger: ReservationLedger,
    gang: PodGang,
    questions: Iterable[GangQuestion],
    snapshot: Snapshot,
    view: View,
    budget: Budget | None = None,
) -> ReservationLedger:
    """The ledger with the nodes that become free for the gang most easily, if it is time to reserve some.

    questions: of its variants.
    """
    if not is_due(ledger, gang, snapshot):
        return ledger
    ledger = ledger.give_up(gang.key)
    if ledger.is_paused or ledger.left <= 0 or not ledger.has_waited_long(gang):
        return ledger
    stays = view.uids(PodTrait.LASTING, PodTrait.ENDLESS)
    units, options = units_on(snapshot, lambda use: use.uid not in stays), ledger.settings.options
    closed = ledger.taken | ledger.cooling()
    gangs = [each.without(closed).gang for each in questions]
    found = choose_among(gangs, snapshot, options, units, budget)
    if found is None:
        return ledger
    pods = {name: len(snapshot.nodes[name].usages) for name in found.nodes}
    return ledger.reserve(gang.key, sorted(pods, key=lambda name: (pods[name], name)))


def is_due(ledger: ReservationLedger, gang: PodGang, snapshot: Snapshot) -> bool:
    """Whether it is time to look for nodes to reserve for a gang, or to give up what it has."""
    if _has_reserved(ledger, gang, snapshot):
        return False
    if ledger.of(gang.key.placement_key, STARVATION):
        return True
    return not ledger.is_paused and ledger.left > 0 and ledger.has_waited_long(gang)


def _has_reserved(ledger: ReservationLedger, gang: PodGang, snapshot: Snapshot) -> bool:
    """Whether new nodes are reserved for it, or nodes all of which still exist."""
    own = [each for each in ledger.reservations if each.gang == gang.key.placement_key]
    return any(each.kind.of_new_nodes and each.nodes for each in own) or any(
        each.kind is STARVATION and each.nodes <= snapshot.nodes.keys() for each in own
    )


def fits_on_reserved(
    names: frozenset[str], asked: GangQuestion, snapshot: Snapshot, budget: Budget | None
) -> bool:
    """Whether these nodes, which are reserved for others, would take a pod of the gang."""
    some = [snapshot.nodes[name] for name in sorted(names & snapshot.nodes.keys())]
    classes = dict.fromkeys(member.pod_class for member in asked.gang.members)
    return bool(some) and any(any(count_slots_by_node(each, some, budget).counts) for each in classes)
