"""What would help a gang that waits: the sweeper's own steps, run again on a changed gang or cluster."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.inquiry.bad_nodes import day_and_time
from webhook.inquiry.move_answer import what_moves_would_do
from webhook.inquiry.next_pass import NextPass
from webhook.placement import Gang, NoFit, Usage
from webhook.placement.victims import choose_among, units_on
from webhook.scheduling.impossible_requests import impossible, most_excluding
from webhook.sweeper.decide.attempt import Attempt, GangPlaced, GangWaits, PassState
from webhook.sweeper.decide.node_rules import RuleKind
from webhook.sweeper.decide.orders import Cause, NewPlan
from webhook.sweeper.decide.placement_pass import answer_for, reserve_again
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import PodTrait, name_of
from webhook.sweeper.observe.view import View
from webhook.text import counted, few

Named = Callable[[str], str]
"""How to print a pod or gang ("namespace/name"), which the reader may not know."""

_BEFORE_PLACING: Final = (
    Cause.INCOMPLETE,
    Cause.MISSING_PODS,
    Cause.CONTROLLER_BLOCKED,
    Cause.OTHER_GATE,
    Cause.OTHER_SCHEDULER,
)
"""The placement core is not asked about such gangs; whether they would fit is of interest all the same."""

_NO_REMEDY: Final = (Cause.OWNER_DELETED, Cause.PREEMPTING, Cause.CLUSTER_CHANGED, Cause.INTERNAL_ERROR)


def answer_now(gang: PodGang, made: NextPass) -> GangPlaced | GangWaits | None:
    """What the steps answer for its waiting pods, complete or not; None where they were not run."""
    if made.decided.state is None or gang.lost_owner is not None:
        return None
    plan = made.plan(gang.key)
    if plan is not None:
        return GangPlaced(plan)
    outcome = answer_for(gang, made.state)
    return outcome if isinstance(outcome, GangPlaced | GangWaits) else None


def what_would_help(gang: PodGang, cause: Cause | None, made: NextPass, named: Named) -> Iterator[str]:
    """The nearest miss, and what would help."""
    outcome = None if cause in _NO_REMEDY else answer_now(gang, made)
    if cause in _BEFORE_PLACING and isinstance(outcome, GangPlaced):
        yield f"But for that it would fit now, {_where(outcome.plan)}."
    if not isinstance(outcome, GangWaits):
        return
    if cause in _BEFORE_PLACING:
        yield f"But for that: {outcome.sentence}"
    if outcome.attempt is not None:
        yield from _Remedies(outcome.attempt, gang, made.state, named).sentences()


def describe_spread(asked: Gang) -> Iterator[str]:
    """How its pods are to be spread, and how many pods count already."""
    spread = asked.spread
    if spread is not None:
        how = "evenly over the domains" if spread.most is None else f"at most {spread.most} in each domain"
        there = counted(len(asked.anchors) + len(spread.peers), "pod that has", "pods that have")
        yield f"Spread: {how} of level {spread.level}, counting {there} a node already."


@dataclass(frozen=True)
class _Remedies:
    """attempt: the last one for the gang, without a place. state: of the pass, at its end."""

    attempt: Attempt
    gang: PodGang
    state: PassState
    named: Named

    def sentences(self) -> Iterator[str]:
        asked, answer, snapshot = self.attempt.asked.gang, self.attempt.answer, self.state.snapshot
        assert isinstance(answer, NoFit)
        yield from describe_spread(asked)
        if answer.nearest is not None and answer.nearest.free_slots:
            yield f"Nearest miss: {answer.nearest.sentence}."
        if sentence := most_excluding(asked, snapshot):
            yield sentence
        misplaced = tuple(self._misplaced())
        if self.attempt.asked.parts:
            parts = ", ".join(part.name for part in self.attempt.gang.parts)
            yield f"Pod sets with their own topology requests are placed all or none: {parts}."
        elif impossible(asked, snapshot, self.state.settings.counting):
            yield "What would help: change the requests or add such nodes; waiting does not help."
        else:
            yield from self._help(is_misplaced=bool(misplaced))
            yield from what_moves_would_do(self.attempt, self.state, self.named)
        yield from misplaced

    def _help(self, is_misplaced: bool) -> Iterator[str]:
        """is_misplaced: whether its own placed pods are why it does not fit."""
        constraints = list(_constraints(self.gang))
        for constraint, without in constraints:
            if plan := self._plan(without, self.state):
                yield f"What would help: without {constraint} it would fit now, {_where(plan)}."
                return
        if sentence := self._once_nodes_count_again():
            yield sentence
            return
        if ending := self._ending():
            pods = counted(len(ending), "other pod ends", "other pods end")
            yield f"What would help: it fits when {pods}: {few(self._by_gang(ending), 5)}."
            lowest = min((pod.spec.priority or 0 for pod in self.gang.gated), default=0)
            if self._find_ending(lambda use: use.priority < lowest) is None:
                yield (
                    f"Those pods do not have a lower priority than its own ({lowest}), so they are not "
                    "preempted."
                )
            return
        if not is_misplaced:
            yield self._help_in_an_empty_cluster(constraints)

    def _plan(self, gang: PodGang, state: PassState) -> NewPlan | None:
        """The plan of a gang in another state, None without a place."""
        outcome = answer_for(gang, state)
        return outcome.plan if isinstance(outcome, GangPlaced) else None

    def _without_reservations(self, state: PassState) -> PassState:
        given = replace(state.given, rules=state.given.rules.without(RuleKind.SPARE))
        return replace(state, given=given, ledger=replace(state.ledger, reservations=()))

    def _once_nodes_count_again(self) -> str:
        """Until when it waits for nodes that are reserved, or that it avoids for a time; "" otherwise."""
        is_reserved = bool(self.attempt.nodes.of_kind(RuleKind.RESERVED, RuleKind.RESERVED_NEW))
        if is_reserved and self._plan(self.gang, self._without_reservations(self.state)):
            return "What would help: it fits once the nodes that are reserved for other gangs are free."
        ends = self._ends_of_rules
        plan = self._plan(self.gang, self._avoiding_none(self.state)) if ends else None
        if plan is None:
            return ""
        at = max(ends.get(entry.node, 0.0) for entry in plan.entries)
        return (
            f"What would help: waiting until {day_and_time(int(at))}, when it no longer avoids a node; "
            f"then it fits {_where(plan)}."
        )

    @cached_property
    def _ends_of_rules(self) -> Mapping[str, float]:
        """Node -> until when the gang does not use it, in seconds since 1970, where that has an end."""
        found: dict[str, float] = {}
        for rule in self.attempt.nodes.rules:
            if rule.is_hard and rule.until < math.inf:
                found |= {node: max(rule.until, found.get(node, 0.0)) for node in rule.nodes}
        return found

    def _avoiding_none(self, state: PassState) -> PassState:
        """Once the time of each node rule that has an end is over."""
        last = max(self._ends_of_rules.values(), default=0.0)
        return replace(state, given=replace(state.given, rules=state.given.rules.at(last)))

    def _ending(self) -> Set[str]:
        """The fewest pods of others after whose end it fits ("namespace/name"); none if there are none."""
        names = self._find_ending(lambda use: True)
        if names is None or self._plan(self.gang, self._after_end_of(names)) is None:
            return frozenset()
        return names

    def _find_ending(self, may_end: Callable[[Usage], bool]) -> Set[str] | None:
        snapshot, pods = self.state.snapshot, self.state.view.by_uid
        units = units_on(snapshot, lambda use: self._may_end(use) and may_end(use))
        gangs = [each.asked.gang for each in self.attempt.variants]
        found = choose_among(gangs, snapshot, self.state.settings.options, units)
        return None if found is None else frozenset(name_of(pods[uid]) for uid in found.pods if uid in pods)

    def _may_end(self, use: Usage) -> bool:
        """Not a pod of the gang itself, nor one that a DaemonSet recreates at once."""
        stays = self.state.view.uids(PodTrait.LASTING)
        return use.uid not in stays and all(use.uid != pod.metadata.uid for pod in self.gang.pods)

    def _after_end_of(self, names: Set[str]) -> PassState:
        state, near = self.state, self.state.near
        snapshot = state.snapshot.without(state.snapshot.nodes.keys(), lambda use: use.name in names)
        uids = (pod.metadata.uid for pod in state.view.by_uid.values() if name_of(pod) in names)
        return replace(state, snapshot=snapshot, beside=near and near.without(frozenset(uids)))

    def _help_in_an_empty_cluster(self, constraints: Iterable[tuple[str, PodGang]]) -> str:
        """For a gang that fits nowhere as it is: which constraint prevents it, or that its size does."""
        uses = (use for node in self.state.snapshot.nodes.values() for use in node.usages)
        others = frozenset(use.name for use in uses if self._may_end(use))
        empty = self._avoiding_none(self._without_reservations(self._after_end_of(others)))
        if self._plan(self.gang, empty):
            return "What would help: it would fit once other pods end."
        never = "as written it would not fit even into an empty cluster"
        for constraint, without in constraints:
            if self._plan(without, empty):
                return f"What would help: without {constraint} it would fit once other pods end; {never}."
        return f"What would help: change the requests or add nodes; {never}."

    def _misplaced(self) -> Iterator[str]:
        """The placed part of a gang near which the rest does not fit, if all of it would fit elsewhere."""
        nodes = self.state.view.placed_on(self.gang.released)
        part = [pod for pod in self.gang.released if pod.metadata.uid in nodes]
        spread, _ = reserve_again(self.gang, part, self.state, self.state.ledger) if part else ("", None)
        if spread:
            where = [f"{self.named(name_of(pod))} on {nodes[pod.metadata.uid]}" for pod in part]
            yield (
                f"Misplaced: {few(where)}. If they were recreated with the rest, the whole gang would "
                f"fit, on {spread}."
            )

    def _by_gang(self, names: Set[str]) -> list[str]:
        """These pods as people know them: the gangs of several, those with most pods first."""
        view: View = self.state.view
        gangs = defaultdict[GangKey, list[str]](list)
        for pod in view.by_uid.values():
            if (name := name_of(pod)) in names:
                gangs[view.gang_of(pod)].append(name)
        ordered = sorted(gangs.items(), key=lambda item: (-len(item[1]), str(item[0])))
        return [
            f"{self.named(str(gang))} ({counted(len(pods), 'pod')})" if len(pods) > 1 else self.named(pods[0])
            for gang, pods in ordered
        ]


def _where(plan: NewPlan) -> str:
    return f"on {plan.spread}" + (", in the place of pods of lower priority" if plan.preempts else "")


def _constraints(gang: PodGang) -> Iterator[tuple[str, PodGang]]:
    """Each topology constraint of a gang, as a user writes it, and the gang without it."""
    if gang.required_level is not None:
        constraint = f"{keys.REQUIRED_TOPOLOGY_ANNOTATION}={gang.required_level}"
        yield constraint, replace(gang, required_level=None)
    for number in reversed(range(len(gang.slices))):  # for nested slices, first without the inner ones
        levels = ",".join(each.level for each in gang.slices[number:])
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION}={levels}", replace(gang, slices=gang.slices[:number])
    if gang.spread is not None and gang.spread.most is not None:
        constraint = f"{keys.SPREAD_TOPOLOGY_ANNOTATION}={gang.spread.level}:{gang.spread.most}"
        yield constraint, replace(gang, spread=None)
