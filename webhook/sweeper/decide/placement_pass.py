"""Places for all complete gangs, the most urgent first, each on what the earlier ones leave.

Each gang passes through CHECKS and STEPS, until a step answers. A step is a function of the attempt and of
the state of the pass (see attempt): it answers GangPlaced, GangWaits or PassedOver, or returns the attempt
for the next step. A new rule is a new step.

A pass is bounded in time. Half of it is shared equally among the namespaces with waiting gangs: within its
share, the most urgent gangs of each are placed, with a work budget of a share. The rest is for the others,
one of each namespace in turn, among them those whose question takes more than a share. So the gangs of one
user do not keep those of others from being asked about. The answer for one gang in a pass is reused for gangs
with the same question, since capacity only shrinks until the next pass.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from webhook.configuration.settings import Settings
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget
from webhook.sweeper.decide.answer_basis import AnswerBasis, NodeChanges, States
from webhook.sweeper.decide.attempt import (
    RETRY_SECONDS,
    Attempt,
    GangMemory,
    GangPlaced,
    GangWaits,
    Outcome,
    PassedOver,
    PassInput,
    PassState,
    Step,
    Stopwatch,
)
from webhook.sweeper.decide.core_questions import (
    QUESTIONS,
    DivisionInput,
    divided,
    place_again,
    without_part,
)
from webhook.sweeper.decide.missing_pods import grown
from webhook.sweeper.decide.moved_gangs import MOVES
from webhook.sweeper.decide.node_rules import RuleKind, nodes_of
from webhook.sweeper.decide.orders import NO_HURRY, Cause, GangOutcome, Orders
from webhook.sweeper.decide.plan import new_plan
from webhook.sweeper.decide.reservation_kinds import LATER_STAGES
from webhook.sweeper.decide.reservations import (
    STARVATION,
    ReservationInput,
    ReservationLedger,
    ReservationSource,
    opened,
)
from webhook.sweeper.decide.steps import (
    allow_nodes,
    ask_without_refusals,
    await_former_place,
    await_former_pods,
    commit,
    complete,
    divide,
    explain,
    make_question,
    move_gangs,
    not_evicted,
    not_gated_by_others,
    not_in_backoff,
    of_existing_owner,
    of_served_schedulers,
    only_cpu_pods,
    place_anywhere,
    place_cpu_pods,
    place_minimum,
    place_on_reserved_nodes,
    preempt,
    reserve,
    reserve_nodes_for_later_pods,
    skip_unchanged,
    volume_claims_are_free,
)
from webhook.sweeper.decide.waiting_plans import plans_with_victims
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang, by_age
from webhook.sweeper.observe.view import View

CHECKS: Final[tuple[Step, ...]] = (
    not_evicted,
    of_existing_owner,
    not_gated_by_others,
    of_served_schedulers,
    not_in_backoff,
    complete,
)
"""Whether a gang is to be placed now; run for all gangs before any of them is placed."""

STEPS: Final[tuple[Step, ...]] = (
    volume_claims_are_free,
    divide,
    only_cpu_pods,
    # Which nodes may it use?
    allow_nodes,
    skip_unchanged,
    # The question, and its answer:
    make_question,
    place_on_reserved_nodes,
    place_anywhere,
    await_former_pods,
    place_minimum,
    await_former_place,
    preempt,
    move_gangs,
    reserve_nodes_for_later_pods,
    place_cpu_pods,
    commit,
    # It does not fit.
    ask_without_refusals,
    reserve,
    explain,
)
"""How a gang gets its place, or the reason why it has none."""

STEPS_IN_A_SECOND: Final = 1_000_000
"""Of the work budget, see placement.budget."""
LEAST_SHARE_SECONDS: Final = 0.02
"""A gang of 64 identical pods takes less on 5,000 nodes."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlacingMemory:
    """What passes remember of placing; losing it delays, and repeats questions of gangs without a place.

    ledger: the reservations. stamp: the last gas-ts given. nodes: those after the last pass, by emptied_below
    of AnswerBasis.
    """

    gangs: Mapping[GangKey, GangMemory] = field(default_factory=dict)
    ledger: ReservationLedger = field(default_factory=ReservationLedger)
    stamp: int = 0
    nodes: Mapping[int | None, States] = field(default_factory=dict)


@dataclass
class _Results:
    """The results of a pass so far: orders, memory, and gangs that may be released unpinned.

    cut: gangs whose question took more than their namespace's share, so that it is asked again later.
    """

    memories: dict[GangKey, GangMemory]
    outcomes: list[GangOutcome] = field(default_factory=list)
    due_seconds: float = NO_HURRY
    unasked: set[GangKey] = field(default_factory=set)
    refused: list[Attempt] = field(default_factory=list)
    cut: set[GangKey] = field(default_factory=set)

    def remember_cost(self, attempt: Attempt, outcome: Outcome, seconds: float, at: float) -> None:
        """Remember how long the question about a gang took, if it was asked, and when."""
        if isinstance(outcome, PassedOver):
            return
        key = attempt.gang.key
        known = self.memories[key]
        if known.cost_seconds and not attempt.budget.spent:  # it got a known answer
            seconds = known.cost_seconds
        self.memories[key] = replace(known, cost_seconds=seconds, asked_at=at)


def remembered(
    memory: PlacingMemory,
    given: ReservationInput,
    settings: Settings,
    sources: Iterable[ReservationSource] = (),
) -> PlacingMemory:
    """With the input of a pass; gangs that do not exist any more are forgotten.

    sources: of reservations other than those for later stages.
    """
    gangs = {gang.key: _known(memory.gangs.get(gang.key), gang, given.view) for gang in given.gangs}
    given = replace(given, ledger=memory.ledger)
    return replace(memory, gangs=gangs, ledger=opened(given, (LATER_STAGES, MOVES, *sources), settings))


def _known(before: GangMemory | None, gang: PodGang, view: View) -> GangMemory:
    growth = grown(before.growth if before else None, gang, _waiting(gang, view), view.now.seconds)
    if before is not None:
        return replace(before, growth=growth)
    return GangMemory(growth, asked_at=view.now.seconds - RETRY_SECONDS)


def place(
    gangs: Sequence[PodGang], given: PassInput, memory: PlacingMemory, watch: Stopwatch
) -> tuple[Orders, PlacingMemory, PassState]:
    """New plans, and for each gang without one the reason; and the state at the end of the pass.

    memory: of this pass; a gang that it lacks, after a defect there, counts as new.
    """
    new = {gang.key: _known(None, gang, given.view) for gang in gangs if gang.key not in memory.gangs}
    memories = _with_valid_answers({**memory.gangs, **new}, memory.nodes, given)
    found = _Results(memories, due_seconds=given.settings.interval_seconds)
    due, now = _checked(gangs, begin(gangs, given, memory.ledger), found)
    for attempt in _in_time(due, given.settings.pass_seconds, watch, found):
        key, began = attempt.gang.key, watch.seconds()
        outcome = _through(STEPS, attempt, now)
        assert not isinstance(outcome, Attempt), "the last step always answers"
        seconds = max(watch.seconds() - began, attempt.budget.spent / STEPS_IN_A_SECOND)
        asked_at = now.at
        if attempt.is_limited and _is_cut(attempt, outcome):
            found.cut.add(key)
            asked_at = found.memories[key].asked_at
        else:
            now = _conclude(attempt.gang, outcome, now, found)
        found.remember_cost(attempt, outcome, seconds, asked_at)
        watch.heartbeat()
    now = _unpin(now, found.refused)
    orders = Orders(
        plans=now.plans,
        outcomes=tuple(found.outcomes),
        due_seconds=found.due_seconds,
        unasked=frozenset(found.unasked),
    )
    nodes = {
        below: given.emptied.states(now.snapshot, below)
        for below in {each.emptied_below for each in _bases(found.memories)}
    }
    return orders, PlacingMemory(found.memories, now.ledger, memory.stamp, nodes), now


def _bases(memories: Mapping[GangKey, GangMemory]) -> set[AnswerBasis]:
    """What remembered answers depend on; several gangs may share one."""
    known = (each.answer for each in memories.values())
    return {each.basis for each in known if each is not None and each.basis is not None}


def _with_valid_answers(
    memories: dict[GangKey, GangMemory], before: Mapping[int | None, States], given: PassInput
) -> dict[GangKey, GangMemory]:
    """The memories without answers that are not valid any more. before: see PlacingMemory.nodes."""
    invalid = set[AnswerBasis]()
    for below, bases in grouped((each.emptied_below, each) for each in _bases(memories)).items():
        changes = NodeChanges(before.get(below, {}), given.emptied.states(given.snapshot, below))
        invalid |= {each for each in bases if not each.is_valid(changes)}
    if not invalid:
        return memories
    return {
        key: replace(each, answer=None) if each.answer and each.answer.basis in invalid else each
        for key, each in memories.items()
    }


def _checked(gangs: Sequence[PodGang], now: PassState, found: _Results) -> tuple[list[Attempt], PassState]:
    """The gangs to be placed now. The reservation of a gang ends when all of its pods have a place."""
    await_victims = {placement.key for placement, _ in plans_with_victims(now.view)}
    due = []
    for gang in gangs:
        waiting = tuple(_waiting(gang, now.view))
        if not waiting:
            if gang.key.placement_key not in await_victims:
                now = replace(now, ledger=now.ledger.placed(gang.key))
            continue
        budget = Budget(QUESTIONS * now.settings.options.bound)
        outcome = _through(CHECKS, Attempt(gang, waiting, found.memories[gang.key], budget), now)
        if isinstance(outcome, Attempt):
            due.append(outcome)
        else:
            now = _conclude(gang, outcome, now, found)
    return due, now


def begin(gangs: Sequence[PodGang], given: PassInput, ledger: ReservationLedger) -> PassState:
    """The state before the first of these gangs is asked about."""
    return PassState(
        given,
        given.snapshot,
        ledger.in_order(gangs),
        given.view.volumes,
        promised=tuple(group for each, _ in plans_with_victims(given.view) for group in each.spec.victims),
    )


def _is_cut(attempt: Attempt, outcome: Outcome) -> bool:
    """Whether a larger budget may give another answer."""
    if isinstance(outcome, GangPlaced):
        return attempt.budget.exhausted or not outcome.plan.answer.proven
    return attempt.budget.exhausted or (isinstance(outcome, GangWaits) and outcome.cause is Cause.WORK_BUDGET)


def _in_time(due: Sequence[Attempt], seconds: float, watch: Stopwatch, found: _Results) -> Iterator[Attempt]:
    """The gangs to place in this pass. due: the most urgent first."""
    started = watch.seconds()
    rest = []
    for attempt, is_in_share in _in_shares(due, seconds / 2, watch, found):
        if not is_in_share or watch.seconds() - started >= seconds / 2:
            rest.append(attempt)
        else:
            yield attempt
    rest = _round_robin([*rest, *(each for each in due if each.gang.key in found.cut)], found)
    for position, attempt in enumerate(rest):
        if watch.seconds() - started >= seconds:
            found.unasked.update(each.gang.key for each in rest[position:])
            found.due_seconds = 0.0
            return
        yield attempt


def _round_robin(rest: Iterable[Attempt], found: _Results) -> list[Attempt]:
    """Those that were asked about the longest ago first, one of each namespace before a second one of any.

    Not in fair order: positions in that change from pass to pass, and no gang may be skipped by that. New
    gangs precede those that were asked about within RETRY_SECONDS: not for ever, as any number may be new.
    """
    memories, served_at = found.memories, dict[str, float]()
    for key, memory in memories.items():
        if memory.cost_seconds:
            served_at[key.namespace] = max(memory.asked_at, served_at.get(key.namespace, -inf))
    earlier, places = Counter[str](), dict[GangKey, tuple[int, float]]()
    ordered = sorted(rest, key=lambda each: (memories[each.gang.key].asked_at, by_age(each.gang)))
    for each in ordered:
        key = each.gang.key
        places[key] = earlier[key.namespace], served_at.get(key.namespace, memories[key].asked_at)
        earlier[key.namespace] += 1
    return sorted(ordered, key=lambda each: places[each.gang.key])


def _in_shares(
    due: Sequence[Attempt], seconds: float, watch: Stopwatch, found: _Results
) -> Iterator[tuple[Attempt, bool]]:
    """Each gang, and whether it is asked about within its namespace's share of this time.

    The first one of a namespace always is, unless it alone took more than the share in the last pass; of a
    new gang, as much is expected as of the cheapest one of its namespace. Its work budget is the share. The
    time until the next gang is taken is what a gang has used.
    """
    share = max(seconds / max(1, len({each.gang.key.namespace for each in due})), LEAST_SHARE_SECONDS)
    steps = int(share * STEPS_IN_A_SECOND)
    used: dict[str, float] = {}
    least: dict[str, float] = {}
    for attempt in due:
        namespace, cost = attempt.gang.key.namespace, found.memories[attempt.gang.key].cost_seconds
        if cost:
            least[namespace] = min(cost, least.get(namespace, cost))
    for attempt in due:
        key = attempt.gang.key
        is_cheap = (found.memories[key].cost_seconds or least.get(key.namespace, 0.0)) <= share
        is_in_share = is_cheap and used.get(key.namespace, 0.0) < share
        began = watch.seconds()
        yield (attempt.limited(steps) if is_in_share else attempt), is_in_share
        used[key.namespace] = used.get(key.namespace, 0.0) + watch.seconds() - began


def answer_for(gang: PodGang, now: PassState, budget: Budget | None = None) -> Outcome:
    """The answer for the waiting pods of one gang, complete or not, as if nothing was known of it before.

    budget: that of a gang in a pass unless another is given.
    """
    waiting = tuple(_waiting(gang, now.view))
    budget = budget or Budget(QUESTIONS * now.settings.options.bound)
    outcome = _through(STEPS, Attempt(gang, waiting, _known(None, gang, now.view), budget), now)
    assert not isinstance(outcome, Attempt), "the last step always answers"
    return outcome


def _through(steps: Iterable[Step], attempt: Attempt, now: PassState) -> Attempt | Outcome:
    """The answer of the first step that has one; the attempt if none has."""
    try:
        for step in steps:
            answer = step(attempt, now)
            if not isinstance(answer, Attempt):
                return answer
            attempt = answer
        return attempt
    except ValueError as error:  # the user's request is invalid: no level, no quantity
        if attempt.gang.fault == OWN_ERROR:  # perhaps in this pass only, so its reservation stays
            return GangWaits(Cause.INTERNAL_ERROR, OWN_ERROR)
        return GangWaits(Cause.INVALID_REQUEST, str(error), is_final=True)
    except Exception:  # one bad gang never stops the others
        logger.exception("gang_failed gang=%s", attempt.gang.key)
        return GangWaits(Cause.INTERNAL_ERROR, OWN_ERROR)


def _conclude(gang: PodGang, outcome: Outcome, now: PassState, found: _Results) -> PassState:
    """Record the result for a gang; returns the state for those after it."""
    memory = found.memories[gang.key]
    if isinstance(outcome, PassedOver):
        found.due_seconds = min(found.due_seconds, outcome.due_seconds)
        if not outcome.is_known:
            found.unasked.add(gang.key)
        return now
    if isinstance(outcome, GangPlaced):
        if outcome.victims and outcome.victims != memory.victims:  # also while it cannot be written
            logger.info("gang_preempts gang=%s victims=%s", gang.key, ",".join(outcome.victims[:10]))
        found.memories[gang.key] = GangMemory(memory.growth, victims=outcome.victims)
        return now.with_plan(outcome.plan)
    is_short = outcome.cause is Cause.MISSING_PODS
    answer = outcome.known if outcome.known is not None and outcome.known.basis is not None else None
    found.memories[gang.key] = replace(memory, failure=outcome.failure, is_short=is_short, answer=answer)
    return _conclude_waits(gang, outcome, now, found)


def _conclude_waits(gang: PodGang, outcome: GangWaits, now: PassState, found: _Results) -> PassState:
    found.outcomes.append(GangOutcome(gang, outcome.sentence, outcome.cause))
    found.due_seconds = min(found.due_seconds, outcome.due_seconds)
    if outcome.unpinned is not None:
        found.refused.append(outcome.unpinned)
    ledger = outcome.ledger or now.ledger
    if outcome.is_final:
        ledger = ledger.give_up(gang.key)
    if outcome.none_begins:
        ledger, now = ledger.leave_share_to_stages(), replace(now, none_begins=outcome.none_begins)
    now = replace(now, ledger=ledger)
    if outcome.keeps_place and outcome.attempt is not None:
        now = now.without_place_of(outcome.attempt)
    return now if outcome.known is None else now.with_answer(outcome.known)


def reserve_again(
    gang: PodGang, part: Sequence[Pod], now: PassState, ledger: ReservationLedger
) -> tuple[str, ReservationLedger]:
    """The place of the whole gang if its released pod set were deleted, "" if none; it is then reserved.

    now: the state of a pass in which the gang's other pods have found no place. ledger: the current one.
    """
    if gang.key.placement_key not in ledger.order:
        return "", ledger
    if any(made.gang.key == gang.key for made in now.plans):
        return "", ledger
    if not _waiting(gang, now.view):
        return "", ledger  # it has a place, and waits for its turn there
    try:
        answer = _again(gang, part, now, ledger)
    except ValueError:
        return "", ledger
    if answer is None:
        return "", ledger
    return answer.spread, ledger.reserve(gang.key, sorted(set(answer.nodes.values())))


def _again(
    gang: PodGang, part: Sequence[Pod], now: PassState, ledger: ReservationLedger
) -> Assignment | None:
    """The place in the first variant of the gang that has one."""
    settings, view = now.settings, now.view
    given = DivisionInput(gang, view, now.plans, settings.topology)
    found = divided(given, now.given.divide)
    # Its new pods could not use these nodes, nor those that are spare after the deletion, so that it would be
    # for nothing.
    then = now.given.rules.on(without_part(part, view, now.snapshot))
    now = replace(now, given=replace(now.given, rules=then), ledger=ledger)
    budget = Budget(QUESTIONS * settings.options.bound)
    for rule in found.rules:
        avoid = now.nodes_for(gang, (*gang.gated, *part), rule).hard
        answer = place_again(
            found.gang, part, view, now.snapshot, avoid, settings.options, budget, now.near, now.class_of
        )
        if answer is not None:
            return answer
    return None


def _waiting(gang: PodGang, view: View) -> list[Pod]:
    """The pods of a gang that have no place."""
    return [pod for pod in gang.gated if pod.metadata.uid not in view.planned]


def _unpin(now: PassState, refused: Iterable[Attempt]) -> PassState:
    """Release one gang that all nodes with capacity refuse, if it then takes no place of others.

    That is, if no node is planned or reserved for any gang, and all released pods are bound.
    """
    view = now.view
    stuck = nodes_of(now.given.rules.of_kind(RuleKind.STUCK))
    under_way = {node for pod, node in view.sent if not pod.spec.node_name} - stuck
    for attempt in refused:
        own = now.ledger.of(attempt.gang.key.placement_key, STARVATION)
        promised = now.plans or view.planned or under_way or now.ledger.taken - own
        if not promised and isinstance(attempt.answer, Assignment):
            plan = new_plan(attempt, now, unpinned=True)
            now = replace(now, plans=(*now.plans, plan))
    return now
