"""Steps that give a gang a place, or the reason why it has none; `placement_pass` has their table. Pure."""

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.times import since_1970
from webhook.placement import Assignment, NoFit
from webhook.scheduling.impossible_requests import impossible
from webhook.scheduling.podrules import has_rules
from webhook.scheduling.volume_counts import used_by
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.attempt import (
    Attempt,
    Failure,
    GangPlaced,
    GangWaits,
    KnownAnswer,
    PassedOver,
    PassState,
    Variant,
    question_key_of,
)
from webhook.sweeper.decide.core_questions import (
    DivisionInput,
    ask,
    ask_around,
    beside,
    divided,
    fewer,
    has_enough,
    needed,
    no_workers,
    only_cpu_pods_wait,
    so_far,
    without_part,
)
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.missing_pods import (
    patience_for,
    seconds_to_complete,
    seconds_to_report,
    seconds_to_settle,
)
from webhook.sweeper.decide.node_rules import GangNodes, RuleKind, nodes_of
from webhook.sweeper.decide.orders import Cause, cause_of
from webhook.sweeper.decide.plan import new_plan
from webhook.sweeper.decide.preemption import VictimSearch
from webhook.sweeper.decide.remembered_answers import basis_of, own_nodes, remembered_answer
from webhook.sweeper.decide.reservation_kinds import (
    fits_on_reserved,
    later_sentence,
    reserve_for_starving,
    why_not_reserved,
)
from webhook.sweeper.decide.retries import Write
from webhook.sweeper.decide.willing_gangs import as_preemption, look_for_moves
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.plans import foreign_gates, scheduler_of
from webhook.sweeper.observe.view import View
from webhook.text import counted, joined

_SOON_SECONDS: Final = 1.0
_ENDS_SECONDS: Final = 60.0
"""A gang waits for its former pods for so long at most."""
_COUNTED_AGAIN: Final = (
    "free volumes that several nodes can use were just given to others, and are counted again"
)
_CUT: Final = "the search for pods to preempt ended at its work budget"
_OTHERS_FIRST: Final = "it starts once gangs that have waited longer have nodes reserved for their later pods"

# --- complete? ----------------------------------------------------------------------------------------


def not_evicted(attempt: Attempt, now: PassState) -> Attempt | PassedOver:
    """A gang that is evicted as a whole returns with all its pods once the others are gone."""
    return PassedOver() if attempt.gang.key in now.given.going else attempt


def of_existing_owner(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """The pods of a controller that is gone are no gang: what is left of them would be a smaller one."""
    lost = attempt.gang.lost_owner
    if lost is None:
        return attempt
    return GangWaits(cause_of(lost), lost.sentence, is_final=lost.is_confirmed)


def not_gated_by_others(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """A place taken now would be empty, and be missing to gangs that may run."""
    holders = foreign_gates(attempt.waiting, now.settings.gate_prefix)
    if not holders:
        return attempt
    reason = f"its pods have the scheduling gate {', '.join(holders)}; it is placed once that is removed"
    return GangWaits(Cause.OTHER_GATE, reason, is_final=True)


def of_served_schedulers(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """Pods are released to the schedulers of the settings alone."""
    strange = {scheduler_of(pod) for pod in attempt.waiting}.difference(now.settings.scheduler_names)
    if not strange:
        return attempt
    served = ", ".join(sorted(now.settings.scheduler_names))
    reason = f"its scheduler {min(strange)!r} is not one that topogate serves: {served}"
    return GangWaits(Cause.OTHER_SCHEDULER, reason, is_final=True)


def not_in_backoff(attempt: Attempt, now: PassState) -> Attempt | PassedOver:
    """A gang that the API server has refused altogether is retried with backoff."""
    seconds = now.given.retries.seconds_left((Write.GANG, attempt.gang.key), now.at)
    return PassedOver(due_seconds=seconds) if seconds > 0 else attempt


def complete(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """All pods are there that are expected, or it has been quiet for long enough."""
    gang = attempt.gang
    if gang.alone or only_cpu_pods_wait(gang, attempt.waiting, now.view):
        return attempt
    if gang.blocked_reason and not now.settings.start_with_fewer:
        sentence = "it waits until its controller can create the other pods"
        return GangWaits(Cause.CONTROLLER_BLOCKED, sentence, is_final=True)
    seconds = seconds_to_complete(gang, attempt.memory.growth, now.settings, now.at)
    if seconds <= 0:
        return attempt
    expected = "its size is not known" if gang.size is None else f"{gang.size} are expected"
    sentence = f"{counted(len(gang.pods), 'pod is', 'pods are')} there, {expected}"
    patience = patience_for(gang, now.settings)
    sentence += f"; those that are there are placed once no other has come for {patience:.0f} s"
    to_report = seconds_to_report(gang, attempt.memory.growth, now.settings, now.at)
    if to_report and not attempt.memory.is_short:
        return GangWaits(Cause.INCOMPLETE, sentence, due_seconds=min(seconds, to_report))
    return GangWaits(Cause.MISSING_PODS, sentence, due_seconds=seconds)


# --- allowed nodes ------------------------------------------------------------------------------------


def volume_claims_are_free(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """A claim that only one pod may use has gone to a plan of this pass: the next pass reads it again."""
    found = (
        claim for pod in attempt.waiting for claim in now.volume_claims_of(pod) if claim in now.volume_claims
    )
    claim = next(found, None)
    return (
        attempt
        if claim is None
        else GangWaits(Cause.INSUFFICIENT_CAPACITY, used_by(claim, now.volume_claims[claim]))
    )


def divide(attempt: Attempt, now: PassState) -> Attempt:
    """The gang by its pod sets, and its variants."""
    given = DivisionInput(attempt.gang, now.view, now.plans, now.settings.topology)
    found = divided(given, now.given.divide)
    variants = tuple(Variant(GangNodes((rule,))) for rule in found.rules)
    return replace(attempt, gang=found.gang, variants=variants)


def only_cpu_pods(attempt: Attempt, now: PassState) -> Attempt | GangPlaced:
    """Where only CPU-only pods wait, these are placed beside the others."""
    gang = attempt.gang
    if attempt.workers or (gang.later and not now.view.placed_on(gang.workers)):
        return attempt
    asked, answer = no_workers(gang, now.snapshot)
    return commit(place_cpu_pods(replace(attempt, asked=asked, answer=answer), now), now)


def allow_nodes(attempt: Attempt, now: PassState) -> Attempt:
    """The nodes that it does not use, by all rules that apply to it; see node_rules."""
    common = now.nodes_for(attempt.gang, attempt.workers).rules
    variants = tuple(Variant(GangNodes((*each.nodes.rules, *common))) for each in attempt.variants)
    return replace(attempt, variants=variants, nodes=variants[0].nodes)


def skip_unchanged(attempt: Attempt, now: PassState) -> Attempt | PassedOver | GangWaits:
    """A gang that found no place finds none while nothing has changed; and volumes must be counted again.

    Half of a change is not what the author asks for, as tools write it pod by pod: so it settles first.
    """
    memory = attempt.memory
    growth, last = memory.growth, memory.failure
    minimum, excluded = attempt.gang.minimum, attempt.excluded_but()
    # A pod that only takes capacity may help a gang that wants to be near it, and no other gang.
    has_own_rules = any(has_rules(pod.spec) for pod in attempt.waiting)
    version = now.given.usage_version if has_own_rules else now.given.freed_version
    waiting, movable = len(attempt.waiting), _movable_gangs(attempt, now)
    failure = Failure(growth.members, minimum, excluded, version, now.at, waiting, movable)
    if last is not None and (seconds := seconds_to_settle(growth, now.settings, now.at)):
        return PassedOver(is_known=True, due_seconds=seconds)
    if last is not None and last.at >= growth.changed_at and last.still_holds(failure):
        return PassedOver(is_known=True)
    volumes = now.volumes
    if volumes is not None and volumes.are_late(attempt.workers):
        return GangWaits(Cause.WORK_BUDGET, _COUNTED_AGAIN, due_seconds=_SOON_SECONDS)
    return replace(attempt, failure=failure)


# --- question, place ----------------------------------------------------------------------------------


def make_question(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """Make the question; a gang with the same question as one that found no place gets the same answer.

    So does a gang whose own answer of an earlier pass is still valid.
    """
    asked = now.question(attempt.gang, attempt.workers)
    first, *others = (replace(each, asked=asked.without(each.nodes.hard)) for each in attempt.variants)
    of_others = tuple(each.nodes.hard for each in others)
    key = question_key_of(attempt.gang, first.asked), of_others, _of_refusals(attempt, now)
    attempt = replace(attempt, variants=(first, *others), asked=first.asked, question_key=key)
    known = now.answers.get(attempt.question_key) or remembered_answer(attempt, now)
    sentence = known.sentence_for(attempt.gang.key) if known is not None else ""
    if known is None or not sentence:
        return attempt
    note = joined(sentence, attempt.note(known.capacity, now.settings))
    return GangWaits(known.cause, note, known, attempt.failure if known.lasts else None)


def _of_refusals(attempt: Attempt, now: PassState) -> Hashable:
    """What decides whether kube-scheduler may choose among the nodes that have refused the gang."""
    nodes = attempt.nodes
    if not nodes.of_kind(RuleKind.REFUSED):
        return None
    return nodes.hard_but(RuleKind.REFUSED), _may_be_unpinned(attempt, now)


def place_on_reserved_nodes(attempt: Attempt, now: PassState) -> Attempt:
    """Later pods, and those of a moved gang, go where capacity is reserved for them, if all fit there."""
    own = own_nodes(attempt, now)
    if not own:
        return attempt
    others = now.snapshot.nodes.keys() - own
    for each in attempt.as_variants():
        answer = ask(each.asked.without(others), now.snapshot, now.settings.options, attempt.budget)
        if not isinstance(answer, NoFit):
            return replace(each, answer=answer)
    return attempt


def place_anywhere(attempt: Attempt, now: PassState) -> Attempt:
    """The best place on allowed nodes, variant by variant."""
    if not isinstance(attempt.answer, NoFit):
        return attempt
    return _first_placed(replace(each, answer=_ask(each, each.asked, now)) for each in attempt.as_variants())


def _first_placed(answered: Iterable[Attempt]) -> Attempt:
    """The first that has a place, else the last of them: the attempt as each of its variants."""
    is_undecided = False
    for attempt in answered:
        attempt = replace(attempt, is_undecided=is_undecided)
        if not isinstance(attempt.answer, NoFit):
            break
        is_undecided |= not attempt.answer.proven
    return attempt


def await_former_pods(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """A gang that is recreated waits for its former pods to end, where it then uses fewer domains.

    While they end one by one, the first nodes with capacity for all may lie in several domains. It waits for
    at most a minute, and only for pods whose grace period ends by then; nobody else gets its place meanwhile.
    """
    answer = attempt.answer
    ending, seconds = ([], 0.0) if isinstance(answer, NoFit) else _ending_soon(attempt.gang, now.view)
    if isinstance(answer, NoFit) or not ending:
        return attempt
    later = replace(now, snapshot=without_part(ending, now.view, now.snapshot))
    better = _ask(attempt, attempt.asked, later)
    if isinstance(better, NoFit) or better.objective.domains >= answer.objective.domains:
        return attempt
    return _until_they_end(attempt, ending, seconds, "it will use fewer topology domains")


def await_former_place(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """A gang without a place waits in the same way where it fits once its former pods have ended.

    Until then no other gang is evicted or moved for it.
    """
    ending, seconds = _ending_soon(attempt.gang, now.view)
    if not isinstance(attempt.answer, NoFit) or not ending:
        return attempt
    later = replace(now, snapshot=without_part(ending, now.view, now.snapshot))
    answered = (replace(each, answer=_ask(each, each.asked, later)) for each in attempt.as_variants())
    then = _first_placed(answered)
    if isinstance(then.answer, NoFit):
        return attempt
    return _until_they_end(then, ending, seconds, "it will fit")


def _until_they_end(attempt: Attempt, ending: Sequence[Pod], seconds: float, what: str) -> GangWaits:
    """A gang waits for so many seconds with its place. what: what it gains by that."""
    pods = counted(len(ending), "pod of it is", "pods of it are")
    sentence = f"{pods} about to end, on whose nodes {what}"
    return GangWaits(Cause.INCOMPLETE, sentence, due_seconds=seconds, keeps_place=True, attempt=attempt)


def _ending_soon(gang: PodGang, view: View) -> tuple[list[Pod], float]:
    """Its pods that are deleted and will end within a minute, and in how many seconds the last one will."""
    at, found, last = view.now.at.timestamp(), list[Pod](), 0.0
    for pod in view.index.mates.get(gang.key, ()):
        seconds = (since_1970(pod.metadata.deletion_timestamp) or 0.0) - at
        if pod.spec.node_name and 0 < seconds <= _ENDS_SECONDS:
            found.append(pod)
            last = max(last, seconds)
    return found, last


def place_minimum(attempt: Attempt, now: PassState) -> Attempt:
    """As many pods of an elastic gang as fit, from its minimum on: in the variant that takes the most."""
    if not isinstance(attempt.answer, NoFit) or needed(attempt.gang, attempt.workers) >= len(attempt.workers):
        return attempt
    found = [_with_fewer(each, now) for each in attempt.as_variants()]
    placed = [each for each in found if not isinstance(each.answer, NoFit)]
    if placed:
        return max(placed, key=lambda each: len(each.asked.pods))
    variants = tuple(Variant(each.nodes, each.asked) for each in found)
    return replace(_first_placed(found), variants=variants)


def _with_fewer(attempt: Attempt, now: PassState) -> Attempt:
    """The attempt with the most pods that fit, else with as many as are needed."""

    def ask_for(pods: Sequence[Pod]) -> tuple[GangQuestion, Assignment | NoFit]:
        asked = now.question(attempt.gang, pods, attempt.nodes.hard)
        return asked, _ask(attempt, asked, now)

    asked, answer = fewer(attempt.gang, attempt.workers, ask_for)
    return replace(attempt, asked=asked, answer=answer)


def reserve_nodes_for_later_pods(attempt: Attempt, now: PassState) -> Attempt | GangWaits:
    """A gang whose controller creates some pods later begins only with nodes reserved for those.

    Otherwise its first pods would run, and hold GPUs, for nothing, while others take the rest. If there is
    such a place, none of these nodes may be one whose reservation expired unused.
    """
    answer = attempt.answer
    if isinstance(answer, NoFit) or not _begins(attempt.gang, now):
        return attempt
    cooling = _cooling(attempt.gang, now)
    later = plan.nodes_for_later_pods(attempt.asked, answer)
    if attempt.preemption is None and not cooling.isdisjoint(later):
        other = _ask(attempt, attempt.asked.without(cooling), now)
        answer = answer if isinstance(other, NoFit) else other
    return _may_begin(replace(attempt, answer=answer), answer, now)


def place_cpu_pods(attempt: Attempt, now: PassState) -> Attempt:
    """The CPU-only pods of a gang that has its place are placed near the others."""
    gang, answer, cpu_pods = attempt.gang, attempt.answer, attempt.cpu_pods
    if isinstance(answer, NoFit) or not cpu_pods:
        return attempt
    others = {**now.view.placed_on(gang.workers), **answer.nodes}
    avoid = now.nodes_for(gang, cpu_pods).hard | gang.division.excluded_beside(others)
    snapshot, options = now.snapshot.assume(answer, attempt.asked.gang), now.settings.options
    found = beside(gang, cpu_pods, others, snapshot, avoid=avoid, options=options, class_of=now.class_of)
    return replace(attempt, beside=found)


def commit(attempt: Attempt, now: PassState) -> Attempt | GangPlaced:
    """Where there is capacity, perhaps in the place of victims, it has its place."""
    if isinstance(attempt.answer, NoFit):
        return attempt
    names = attempt.preemption.names if attempt.preemption is not None else ()
    return GangPlaced(new_plan(attempt, now), names)


# --- no capacity -----------------------------------------------------------------------------------------


def preempt(attempt: Attempt, now: PassState) -> Attempt:
    """In the place of gangs and pods of lower priority, unless it runs without the waiting pods.

    Of several variants, in the one whose victims are the least important, then the fewest.
    """
    gang = attempt.gang
    if not isinstance(attempt.answer, NoFit) or has_enough(gang, attempt.workers):
        return attempt
    promised = (*now.promised, *(group for plan in now.plans for group in plan.victims))
    search = VictimSearch(
        gang, now.view, now.snapshot, promised, now.given.keeps, now.settings, attempt.budget
    )
    searched = ((each, search.find(each.asked, each.nodes.last_resort)) for each in attempt.as_variants())
    found = [(each, victims) for each, victims in searched if victims is not None]
    possible = [(each, victims) for each, victims in found if not victims.is_too_large]
    if not possible:
        is_undecided = attempt.is_undecided or bool(found)
        return replace(attempt, below=search.below(attempt.asked), is_undecided=is_undecided)
    as_variant, chosen = min(possible, key=lambda each: each[1].harm)
    return replace(as_variant, answer=chosen.assignment, preemption=chosen)


def move_gangs(attempt: Attempt, now: PassState) -> Attempt:
    """Willing gangs are moved for one that waits for place, unless it runs without the waiting pods.

    Of several variants, for the one for which the least is moved.
    """
    gang = attempt.gang
    if not isinstance(attempt.answer, NoFit) or not _may_move_others(attempt, now):
        return attempt
    found = look_for_moves(gang, [each.asked for each in attempt.variants], now, attempt.budget)
    if found.moves is None:
        return replace(attempt, moves=found.sentence)
    as_variant = next(each for each in attempt.as_variants() if each.asked is found.asked)
    return replace(as_variant, answer=found.moves.assignment, preemption=as_preemption(found.moves, now))


def _movable_gangs(attempt: Attempt, now: PassState) -> Set[GangKey]:
    """The gangs that could be moved for a gang; none while none may be."""
    return now.view.movable_gangs if _may_move_others(attempt, now) else frozenset[GangKey]()


def _may_move_others(attempt: Attempt, now: PassState) -> bool:
    """Whether a gang has waited long enough for that, and does not run without the waiting pods."""
    gang, limits = attempt.gang, now.settings.moves
    is_due = limits.is_on and now.ledger.has_waited(gang, limits.after_seconds)
    return is_due and not has_enough(gang, attempt.workers)


def ask_without_refusals(attempt: Attempt, now: PassState) -> Attempt:
    """Whether there is capacity but for nodes that have refused it, which kube-scheduler may choose then."""
    if not attempt.nodes.of_kind(RuleKind.REFUSED) or not _may_be_unpinned(attempt, now):
        return attempt
    asked = now.question(attempt.gang, attempt.workers)
    questions = (
        replace(each, asked=asked.without(each.nodes.hard_but(RuleKind.REFUSED)))
        for each in attempt.as_variants()
    )
    answered = (replace(each, answer=_ask(each, each.asked, now)) for each in questions)
    return replace(attempt, without_refusals=_first_placed(answered))


def reserve(attempt: Attempt, now: PassState) -> Attempt:
    """For a gang that has waited long, nodes are reserved, where it is known which would help."""
    gang, asked = attempt.gang, attempt.asked
    is_known = not asked.parts and (asked.rules is None or attempt.answer.proven)
    if not is_known or now.none_begins or has_enough(gang, attempt.workers):
        return attempt
    questions = [each.asked for each in attempt.variants]
    ledger = reserve_for_starving(now.ledger, gang, questions, now.snapshot, now.view, attempt.budget)
    return replace(attempt, ledger=ledger)


def explain(attempt: Attempt, now: PassState) -> GangWaits:
    """Why it waits."""
    gang, answer, nodes, budget = attempt.gang, attempt.answer, attempt.nodes, attempt.budget
    assert isinstance(answer, NoFit)
    cut = _CUT if budget.exhausted else ""
    sentence = joined(
        so_far(gang, attempt.workers), answer.sentence,
        impossible(attempt.asked.gang, now.snapshot, now.settings.counting), cut,
        *(rule.note for rule in nodes.of_kind(RuleKind.DOMAIN)), later_sentence(gang), attempt.moves,
    )  # fmt: skip
    if answer.hopeless:
        cause = Cause.INVALID_REQUEST
    elif budget.exhausted or not answer.proven:
        cause = Cause.WORK_BUDGET
    else:
        # New nodes are for other gangs: one that may not use them may ask for its own.
        is_reserved = fits_on_reserved(_reserved_nodes(attempt), attempt.asked, now.snapshot, budget)
        cause = Cause.RESERVED if is_reserved else Cause.INSUFFICIENT_CAPACITY
    known = KnownAnswer(
        gang.key, attempt.question_key, attempt.asked.gang, sentence, cause, capacity=answer.free_slots,
        basis=basis_of(attempt, now, cause),
    )  # fmt: skip
    note = joined(sentence, attempt.note(answer.free_slots, now.settings))
    return GangWaits(
        cause, note, known, attempt.failure, ledger=attempt.ledger, unpinned=attempt.without_refusals,
        attempt=attempt,
    )  # fmt: skip


def _reserved_nodes(attempt: Attempt) -> frozenset[str]:
    """The nodes that some variant of it could use if they were not reserved for others."""
    reserved = RuleKind.RESERVED, RuleKind.RESERVED_NEW
    names = nodes_of(rule for rule in attempt.nodes.of_kind(RuleKind.RESERVED) if rule.is_hard)
    return names and names - attempt.excluded_but(*reserved)


# --- helpers of several steps -------------------------------------------------------------------------


def _ask(attempt: Attempt, asked: GangQuestion, now: PassState) -> Assignment | NoFit:
    options = now.settings.options
    return ask_around(asked, now.snapshot, options, attempt.budget, attempt.nodes.last_resort)


def _begins(gang: PodGang, now: PassState) -> bool:
    """Whether none of its pods has a place, while more are to be created once the first ones run."""
    return bool(gang.later) and not now.view.placed_on(gang.workers)


def _cooling(gang: PodGang, now: PassState) -> frozenset[str]:
    """Nodes that a plan of this gang cannot reserve at the moment."""
    placement = now.view.placements.get(gang.key.placement_key)
    return now.ledger.cooling(but=placement.metadata.uid if placement is not None else "")


def _may_begin(attempt: Attempt, answer: Assignment, now: PassState) -> Attempt | GangWaits:
    """The attempt, or why a gang that has capacity waits all the same, also for gangs of the same question.

    Once one has waited long, those after it begin no more, or they would use up the share of reservations.
    """
    gang = attempt.gang
    if not _begins(gang, now):
        return attempt
    nodes = frozenset(plan.nodes_for_later_pods(attempt.asked, answer)) - _cooling(gang, now)
    note = why_not_reserved(gang, nodes, now.ledger) or now.none_begins
    if not note:
        return attempt
    has_waited = not now.none_begins and now.ledger.has_waited_long(gang)
    known = KnownAnswer(gang.key, attempt.question_key, attempt.asked.gang, note, Cause.RESERVED, lasts=False)
    return GangWaits(Cause.RESERVED, note, known, none_begins=_OTHERS_FIRST if has_waited else "")


def _may_be_unpinned(attempt: Attempt, now: PassState) -> bool:
    return not attempt.cpu_pods and may_run_unpinned(attempt.gang, attempt.workers, now.view)


def may_run_unpinned(gang: PodGang, waiting: Sequence[Pod], view: View) -> bool:
    """Whether kube-scheduler may choose the nodes of the waiting pods without a promise being broken.

    That they all start, or lie as the gang requires, or have cards, we alone see to.
    """
    if gang.required_level is not None or gang.slices or gang.parts or gang.later:
        return False
    if any(map(gang.division.own_labels, gang.pods)):
        return False
    if any(view.class_of(pod).wants_cards for pod in waiting):
        return False
    placement = view.placements.get(gang.key.placement_key)
    return len(waiting) == 1 or (placement is not None and placement.is_complete)
