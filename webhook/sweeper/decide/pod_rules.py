"""Places for a gang whose pods have rules on other pods, which kube-scheduler applies pod by pod. Pure.

The placement core knows no such rules. The questions to it are likely to meet them: anywhere; in one domain,
where pods have affinity; at most so many in each domain, or as evenly as possible, where they are to be
spread; and pod by pod. Acceptance checks each answer, pod by pod, and only an accepted one counts: so no plan
breaks a rule. The result is proven best where the question left nothing out, or was equivalent to the rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Gang,
    Member,
    NoFit,
    Options,
    PlacementError,
    Snapshot,
    place,
)
from webhook.placement.bounds import least_domains
from webhook.placement.question import by_rank
from webhook.scheduling.acceptance import Acceptance
from webhook.sweeper.decide.gang_question import broken, in_order, together
from webhook.sweeper.decide.limits import MOST_DOMAINS, LimitSearch, parted

ONE_BY_ONE: Final = 64
"""Pods of a gang up to which each is asked about alone where nothing else has helped."""

Answer = Assignment | NoFit


def ask_by_rules(
    gang: Gang, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Answer:
    """The best place that is found for a gang; its members are placed in the order of their release.

    Raises PlacementError as place does.
    """
    return _RuleSearch(gang, rules, snapshot, options, budget or Budget(4 * options.bound)).answer()


@dataclass(frozen=True)
class _Candidate:
    """A question. is_exact: whether it and the others together are equivalent to the rules.

    least: see least_domains.
    """

    gang: Gang
    snapshot: Snapshot
    is_exact: bool
    least: tuple[int, ...] = ()


class _RuleSearch:
    """The ways in which one gang is asked about."""

    def __init__(
        self, gang: Gang, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget
    ) -> None:
        self.gang = gang
        self.rules = rules
        self.domains = rules.there.domains
        self.snapshot = snapshot
        self.options = options
        self.budget = budget
        self.is_one_kind = len(rules.classes) == 1
        self.limits = LimitSearch(rules, snapshot, options, self.budget)

    def answer(self) -> Answer:
        if len(self.gang.members) == 1:
            return self._one()
        candidates = list(self._candidates())
        relaxed = None
        if not self._is_hopeless() and not _are_split(candidates):
            relaxed = self._place(self.gang, self.snapshot)
            if isinstance(relaxed, NoFit):
                return relaxed
            if found := in_order(relaxed, self.rules):
                return found
            candidates = [candidate for candidate in candidates if not self._is_plain(candidate)]
        return self._best_of(candidates) or self._one_by_one() or self._no_fit(relaxed)

    def _no_fit(self, relaxed: Answer | None) -> NoFit:
        """Why it has no place. relaxed: the place without these rules, None where that was not asked."""
        answer = relaxed or self._place(self.gang, self.snapshot)
        return answer if isinstance(answer, NoFit) else broken(self.gang, self.rules, self.snapshot)

    def _best_of(self, candidates: Sequence[_Candidate]) -> Assignment | None:
        """The best answer that keeps the rules."""
        best: Assignment | None = None
        is_decided = True
        for candidate in candidates:
            if best is not None and candidate.least > best.objective.domains:
                continue  # whatever is found there is no better
            some, is_sure = self._within_limits(candidate.gang, candidate.snapshot)
            is_decided = is_decided and is_sure
            best = self._better(best, some, candidate)
            if self.budget.exhausted:
                is_decided = is_decided and candidate is candidates[-1]
                break
        if best is not None and not is_decided:
            return replace(best, proven=False)  # one of the others may hold something better
        return best

    def _better(
        self, best: Assignment | None, some: Assignment | None, candidate: _Candidate
    ) -> Assignment | None:
        """The better of the best so far and of this answer, if that meets the rules."""
        found = None if some is None else in_order(some, self.rules)
        if found is None or (best is not None and found.objective >= best.objective):
            return best
        return replace(found, proven=found.proven and candidate.is_exact)

    def _is_plain(self, candidate: _Candidate) -> bool:
        """Whether a way asks for no more than the gang itself does."""
        return candidate.gang is self.gang and candidate.snapshot is self.snapshot and not self.limits.limits

    def _within_limits(self, gang: Gang, snapshot: Snapshot) -> tuple[Assignment | None, bool]:
        """A place within the limits, and whether that, or that there is none, is proven."""
        try:
            if not self.limits.limits:
                answer = self._place(gang, snapshot)
                return None if isinstance(answer, NoFit) else answer, answer.proven
            found = self.limits.place(gang, self.limits.limits, snapshot)
        except PlacementError:  # the gang's other requests cannot be combined with this question
            return None, True
        return found, found is not None and found.proven

    def _place(self, gang: Gang, snapshot: Snapshot) -> Answer:
        return place(gang, snapshot, self.options, self.budget)

    def _is_hopeless(self) -> bool:
        """Whether the places without these rules cannot keep them: fewer domains than there must be."""
        wanted = len(self.gang.members)
        return any(
            each.apart or len(each.present) * (each.skew + min(each.present.values(), default=0)) < wanted
            for each in self.limits.limits
        )

    # --- one pod ----------------------------------------------------------------------------------

    def _one(self) -> Answer:
        """A gang of one pod: the current answer of each node is complete."""
        self.rules.reset()
        (member,) = self.gang.members
        return self._place(
            replace(self.gang, members=(self._exclusions(member, self.snapshot),)), self.snapshot
        )

    def _exclusions(self, member: Member, snapshot: Snapshot) -> Member:
        excluded = self.rules.excluded_nodes(member.name, snapshot.nodes)
        if not excluded:
            return member
        own = member.pod_class.rules
        rules = replace(own, exclusions=(*own.exclusions, *sorted(excluded.items())))
        return replace(member, pod_class=replace(member.pod_class, rules=rules))

    def _one_by_one(self) -> Assignment | None:
        """Each pod where it may go beside those before it, as near to them as possible.

        A single pod has no request for slices or spread.
        """
        if len(self.gang.members) > ONE_BY_ONE or self.gang.slices or self.gang.spread is not None:
            return None
        self.rules.reset()
        snapshot, anchors = self.snapshot, list(self.gang.anchors)
        waiting, found = by_rank(self.gang.members), list[Assignment]()
        while waiting:
            left = []
            for member in waiting:
                alone = replace(
                    self.gang, members=(self._exclusions(member, snapshot),), anchors=tuple(anchors)
                )
                answer = self._place(alone, snapshot)
                if isinstance(answer, NoFit):
                    left.append(member)
                    continue
                found.append(answer)
                node = answer.placed[0].node
                snapshot = snapshot.assume(answer, alone)
                anchors.append(Anchor(node, member.rank))
                self.rules.add(member.name, node)
            if len(left) == len(waiting) or self.budget.exhausted:
                return None
            waiting = left
        joined = together(self.gang, found, snapshot)
        order = {each.placed[0].member: number for number, each in enumerate(found)}
        return replace(joined, placed=tuple(sorted(joined.placed, key=lambda each: order[each.member])))

    # --- together in one domain -------------------------------------------------------------------

    def _candidates(self) -> Iterator[_Candidate]:
        """The questions where pods have affinity."""
        keys = self._keys_of_new_domains()
        if not keys:
            yield _Candidate(self.gang, self.snapshot, is_exact=True)
            return
        key = max(keys, key=lambda each: len(self.domains.by_value(each)))  # the others lie around it
        level = self.limits.level(key)
        exact = self.is_one_kind and len(keys) == 1 and not self.limits.limits
        if level is not None and not self.limits.limits:
            yield self._candidate_at_level(level, exact)
            return
        nodes = self.domains.by_value(key)
        some = sorted(nodes, key=lambda each: (-len(nodes[each]), each))[:MOST_DOMAINS]
        parts = parted(self.snapshot, self.domains, key, some)
        found = [self._candidate(parts[value], exact and len(some) == len(nodes)) for value in some]
        yield from sorted(
            (candidate for candidate in found if candidate is not None), key=lambda candidate: candidate.least
        )

    def _keys_of_new_domains(self) -> set[str]:
        """The labels of which pods must share a domain, where no existing pod meets their affinity."""
        return {
            tally.key
            for kind in self.rules.classes
            if not any(any(each.base.values()) for each in kind.near)
            for tally in kind.near
        }

    def _candidate_at_level(self, level: str, is_exact: bool) -> _Candidate:
        """All of the gang in one domain of a level; a finer one that it requires itself says more."""
        required, level_of = self.gang.required_level, self.snapshot.topology.level
        if required is not None and level_of(required) > level_of(level):
            return _Candidate(self.gang, self.snapshot, is_exact=False)
        return _Candidate(replace(self.gang, required_level=level), self.snapshot, is_exact)

    def _candidate(self, snapshot: Snapshot, is_exact: bool) -> _Candidate | None:
        """All of the gang in one domain; None if that has no capacity for it."""
        least = least_domains(self.gang, snapshot, self.options, self.budget)
        return None if least is None else _Candidate(self.gang, snapshot, is_exact, least)


def _are_split(candidates: Sequence[_Candidate]) -> bool:
    """Whether there is no way to have all of the gang in one domain of the coarsest level.

    Where such a domain has all of it, so mostly has one of the label.
    """
    return any(candidate.least for candidate in candidates) and min(
        candidate.least for candidate in candidates
    )[:1] > (1,)
