"""Which answers are remembered from pass to pass, and which of them a new search would give again. Pure.

Remembered is that a gang has no place, where finding it was expensive. The question is the key: all that its
author and the rules for nodes ask for. See answer_basis for all else that it depends on.
"""

from dataclasses import replace
from typing import Final

from webhook.placement import Assignment, Gang
from webhook.sweeper.decide.answer_basis import AnswerBasis
from webhook.sweeper.decide.attempt import Attempt, KnownAnswer, PassState
from webhook.sweeper.decide.moved_gangs import nodes_after_move
from webhook.sweeper.decide.node_rules import RuleKind
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, Cause
from webhook.sweeper.decide.reservation_kinds import is_due

EXPENSIVE_STEPS: Final = 20_000
"""Work budget that a question must have taken for its answer to be remembered. A cheap question is asked
again when something has changed, as its answer then also names the current capacity."""


def remembered_answer(attempt: Attempt, now: PassState) -> KnownAnswer | None:
    """The answer of an earlier pass, unless it may be time to reserve nodes for the gang."""
    known = attempt.memory.answer
    if known is None or known.basis is None or known.question_key != attempt.question_key:
        return None
    basis = known.basis
    if _not_reservable(attempt, now) not in (None, basis.closed):
        return None
    if basis.is_proven:
        return known
    is_same = basis.is_valid(now.node_changes) and basis.search == _search_input(attempt, now, basis.below)
    return known if is_same else None


def basis_of(attempt: Attempt, now: PassState, cause: Cause) -> AnswerBasis | None:
    """What the answer depends on, None for one that is not to be remembered.

    Of a gang with rules on other pods only the proof counts that it fits nowhere without these rules, and
    nowhere in the place of victims. A gang that kube-scheduler may place on nodes that refused it is asked
    about again, since it may do so at another time.
    """
    if cause not in NO_PLACE_FOUND or attempt.budget.spent < EXPENSIVE_STEPS:
        return None
    if now.settings.moves.is_on:  # for which time matters, and what pods say of themselves
        return None
    refused = attempt.without_refusals
    if refused is not None and isinstance(refused.answer, Assignment):
        return None
    is_proven = _is_proven(attempt, cause)
    if attempt.asked.rules is not None and not (is_proven and _is_free_of_rules(attempt)):
        return None
    search = None if is_proven else _search_input(attempt, now, attempt.below)
    closed = _not_reservable(attempt, now)
    return AnswerBasis(_of_all_variants(attempt), is_proven, attempt.below, closed, search)


def _is_proven(attempt: Attempt, cause: Cause) -> bool:
    """Whether no search ended at its work budget, also the one on nodes that refused the gang."""
    refused = attempt.without_refusals
    is_decided = cause is not Cause.WORK_BUDGET and not attempt.is_undecided
    return is_decided and (refused is None or (refused.answer.proven and not refused.is_undecided))


def _is_free_of_rules(attempt: Attempt) -> bool:
    """Whether the rules on other pods do not matter to a proof: those of a single pod are in its question."""
    return len(attempt.asked.gang.members) > 1 and attempt.below is None


def own_nodes(attempt: Attempt, now: PassState) -> frozenset[str]:
    """The nodes that are reserved for the gang: for its later pods, or after it was moved."""
    placement = now.view.placements.get(attempt.gang.key.placement_key)
    later = placement.spec.later_pod_nodes if placement is not None else ()
    return frozenset(later) | nodes_after_move(attempt.gang, now.view, now.ledger)


def _of_all_variants(attempt: Attempt) -> Gang:
    """The last question, with the nodes that some variant may use, or that have refused the gang."""
    asked = attempt.asked.gang
    if len(attempt.variants) == 1 and attempt.without_refusals is None:
        return asked
    return replace(asked, excluded_nodes=attempt.excluded_but(RuleKind.REFUSED))


def _search_input(attempt: Attempt, now: PassState, below: int | None) -> object:
    """What a search reads beside the question and the nodes, equal while it would read the same.

    below: of its possible victims.
    """
    preferred = {member.pod_class.preferred for member in attempt.asked.gang.members}
    victims: object = None
    if below is not None:
        promised = [uid for plan in now.plans for group in plan.victims for uid in group.pods]
        victims = now.given.emptied.search_input(below), promised
    return preferred, now.snapshot.mix, attempt.nodes.last_resort, own_nodes(attempt, now), victims


def _not_reservable(attempt: Attempt, now: PassState) -> frozenset[str] | None:
    """The nodes that cannot be reserved for a gang, None while nothing is to be reserved for it."""
    if now.none_begins or not is_due(now.ledger, attempt.gang, now.snapshot):
        return None
    return now.ledger.taken | now.ledger.cooling()
